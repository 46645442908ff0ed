"""The text of docs/reference/classes.md: the classes of the public API, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from crawler import (
    Context,
    Crawl,
    Drop,
    Form,
    Handle,
    OutgoingRequest,
    ParsedPage,
    Request,
    Retry,
    Router,
    SharedValues,
    Stats,
)
from crawler.testing import Result, page, recorded_items, run_handler

CLASSES = (Crawl, Stats, Router, Handle, Context, ParsedPage, Form, Request, Retry, SharedValues, OutgoingRequest, Drop)
TESTING = (page, recorded_items, run_handler, Result)

INTERNAL = frozenset({"of", "result", "route_of", "count", "fields"})
"""Public for other modules of the crawler, not for users."""

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "classes"
"""A program for each class."""

LONGEST = 100
"""Characters of a signature that is in one line."""

NOT_CALLED = {"__aenter__": "async with", "__anext__": "async for"}
"""Methods that a statement calls."""


def api_page(made: str) -> str:
    """Each class with its members."""
    lines = [
        "# Classes for programs and handlers",
        "",
        made,
        "",
        "From the docstrings of the code. All are imported from `crawler`. [Extract data from",
        "pages](../how-to/extract-data.md) explains how they work together, and [Python API](api.md) lists all names. A",
        "test runs the examples on sites of its own, whose hosts end in `.test`. In signatures, `Json` is what JSON has,",
        "`JsonDict` a dict of it, and `Values` text, a number, True, False, None or a list of these.",
    ]
    for cls in CLASSES:
        lines += ["", f"## `{cls.__name__}`", "", *_signature(cls.__name__, cls), _text(cls), *_example(cls.__name__)]
        for name, member in _members(cls):
            lines += ["", f"### `{cls.__name__}.{name}`" if name.isidentifier() else f"### `{name}` a `{cls.__name__}`"]
            lines += ["", *([] if isinstance(member, property) else _signature(name, member)), _text(member)]
    lines += ["", "## Tests of handlers", "", "These are imported from `crawler.testing`."]
    lines += _example("testing")
    for member in TESTING:
        lines += [
            "",
            f"### `{member.__name__}`",
            "",
            *([] if member is Result else _signature(member.__name__, member)),
        ]
        lines += [_text(member)]
    return "\n".join(lines) + "\n"


def _example(name: str) -> list[str]:
    """The program for the class `name`."""
    return ["", "```python", (EXAMPLES / f"{name}.py").read_text().rstrip(), "```"]


def _members(cls: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(cls).items():
        if name in NOT_CALLED:
            yield NOT_CALLED[name], member
        elif not name.startswith("_") and name not in (*INTERNAL, *getattr(cls, "__struct_fields__", ())):
            yield name, member


def _signature(name: str, member: object) -> list[str]:
    """The signature as a block; none for what a statement calls, and for a class that nobody makes."""
    if not name.isidentifier() or member in (Handle, Context, ParsedPage, Stats):
        return []
    assert callable(member)
    parameters = [one for one in inspect.signature(member).parameters.values() if one.name != "self"]
    words = [*map(str, parameters)]
    if (at := next((n for n, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY), None)) is not None:
        words.insert(at, "*")
    returned = inspect.signature(member).return_annotation
    ending = "" if returned in ("None", inspect.Signature.empty) else f" -> {returned}"
    text = f"{name}({', '.join(words)}){ending}"
    if len(text) > LONGEST:
        text = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){ending}"
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return ["```py", text, "```", ""]


def _text(member: object) -> str:
    found = inspect.getdoc(member)
    assert found, f"{member} has no docstring"
    return found
