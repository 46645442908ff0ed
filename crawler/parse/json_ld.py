"""Reads the JSON-LD of a page (schema.org data in `script` elements), and finds values in it. Pure.

Pages have JSON-LD with raw line breaks in texts, with broken parts, and with what an attacker puts there. A part that
cannot be read is left out. The rest is limited in bytes and in objects; no value is nested deeper than the recursion
limit of the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from crawler.parse import tree

if TYPE_CHECKING:
    from turbohtml import Document

MAX_BYTES = 1 << 20
"""Bytes of all JSON-LD of a page that is read."""

MAX_VALUES = 20_000
"""Objects and lists that are searched, and values that are returned, for one path."""

_SCRIPTS = 'script[type^="application/ld+json" i]'
_END = object()
_SPACES = dict.fromkeys(range(0x20), " ")


def json_ld_of(document: Document) -> list[Any]:
    """What the JSON-LD scripts of `document` contain, in the order of the page."""
    found, left = [], MAX_BYTES
    for script in document.select(_SCRIPTS):
        text = tree.restored(script.text)
        left -= len(text)
        if left < 0:
            break
        try:
            # JSON allows no control characters within texts, but pages have line breaks there.
            found.append(msgspec.json.decode(text.translate(_SPACES)))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            continue
    return found


def values_at(found: Sequence[Any], path: str) -> list[Any]:
    """The values to which `path` leads in `found`. Its first part is a type, such as `Product`: objects of it are found
    wherever they are; an empty path is for the objects at the top. The other parts are keys. The items of lists take
    the place of these."""
    kind, *keys = path.split(".")
    values = _flat(_of_type(found, kind) if kind else _tops(found))
    for key in keys:
        values = _flat(value[key] for value in values if isinstance(value, dict) and key in value)
    return [value["@value"] if isinstance(value, dict) and "@value" in value else value for value in values]


def _flat(values: Any) -> list[Any]:
    """`values` with the items of lists in place of these."""
    flat: list[Any] = []
    steps, waiting = 0, [iter(values)]
    while waiting and steps < MAX_VALUES:
        value = next(waiting[-1], _END)
        steps += 1
        if value is _END:
            waiting.pop()
        elif isinstance(value, list):
            waiting.append(iter(value))
        else:
            flat.append(value)
    return flat


def _tops(found: Sequence[Any]) -> Iterator[Any]:
    for value in _flat(found):
        graph = value.get("@graph") if isinstance(value, dict) else None
        yield graph if isinstance(graph, list) else value


def _of_type(found: Sequence[Any], kind: str) -> Iterator[dict[str, Any]]:
    """The objects of the type `kind` in `found`, outer ones before those that they contain."""
    waiting: list[Any] = [list(found)]
    for _ in range(MAX_VALUES):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, dict) and kind in _types(value.get("@type")):
            yield value
        inner = list(value.values()) if isinstance(value, dict) else value
        waiting += [one for one in reversed(inner) if isinstance(one, (dict, list))]


def _types(said: object) -> set[str]:
    """The names of the types in the value of `@type`, also without a prefix as in `https://schema.org/Product`."""
    texts = {one for one in (said if isinstance(said, list) else [said]) if isinstance(one, str)}
    return texts | {one.rpartition("/")[2].rpartition(":")[2] for one in texts}
