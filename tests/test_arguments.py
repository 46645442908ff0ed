"""Every public function says what to write instead of an argument that it cannot use."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pytest

import crawler
from crawler import (
    Context,
    Crawl,
    Form,
    Handle,
    OutgoingRequest,
    ParsedPage,
    Refused,
    Request,
    Router,
    SharedValues,
    UserError,
    testing,
)
from crawler.request import RequestOptions
from tests.reference.api import CLASSES, INTERNAL, TESTING

URL = "http://a.test/"
HTML = "<form id=f><input name=q><button>Go</button></form><p><a href=/b>b</a>"
PAGE = testing.page(URL, HTML)

NAN = math.nan
WRONG = (None, "", "5", "((", -1, NAN, object(), [], [None], b"", 10**400, True, {}, {"a": None}, {1})
WORDS = {
    type(None): "None",
    str: "str",
    bytes: "bytes",
    bool: "bool",
    int: "int float",
    float: "float",
    list: "Iterable Sequence Fields Linked",
    dict: "Mapping JsonDict Fields",
    set: "Iterable Linked",
}
"""Each value of a type fits a parameter whose hint has one of these words."""

GIVEN = {
    "url": URL, "urls": URL, "seeds": URL, "css": "a", "name": "items", "item": {"a": 1}, "value": 1, "expression": "//a",
    "target": "items.jsonl", "folder": Path("saved"), "page": PAGE, "router": Router(), "exchange": PAGE.exchange,
    "function": print,
}  # fmt: skip
"""Values of parameters that have no default."""

OBJECTS: dict[type, Callable[[], object]] = {
    Crawl: Crawl,
    ParsedPage: lambda: testing.page(URL, HTML),
    Form: lambda: testing.page(URL, HTML).form(),
    Request: lambda: Request(URL),
    OutgoingRequest: lambda: OutgoingRequest(URL),
}
NOT_FOR_USERS = {Context, Form, OutgoingRequest, SharedValues, Handle, ParsedPage, crawler.Stats}
"""Classes whose objects are made by the crawler."""

NEEDED = re.compile("does not run yet|no such file or folder|there is no crawl|declared with `async def`")
"""What is said of calls that need a crawl, or its output, whatever their arguments."""

ANY = {"Any", "object", "Json"}


class Call(NamedTuple):
    """`function` of an object of the class `of`, and one of its parameters."""

    of: type | None
    function: str
    parameter: str
    hint: str

    def __str__(self) -> str:
        return f"{self.of.__name__ if self.of else 'testing'}.{self.function}({self.parameter})"

    def __call__(self, value: object) -> object:
        if self.of is None:
            function = getattr(testing, self.function, None) or getattr(crawler, self.function)
        elif self.function == "__init__":
            function = self.of
        else:
            function = getattr(OBJECTS.get(self.of, self.of)(), self.function)
        others = {
            one.name: GIVEN[one.name]
            for one in inspect.signature(function).parameters.values()
            if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD and one.name != self.parameter
        }
        returned = function(**others, **{self.parameter: value})
        return asyncio.run(returned) if inspect.iscoroutine(returned) else returned

    def takes(self, value: object) -> bool:
        """Whether its type says so."""
        words = set(re.findall(r"\w+", self.hint))
        if "Linked" in words:
            words |= {"str", "None"}
        return bool(words & ANY) or not words.isdisjoint(WORDS.get(type(value), "").split())


def calls() -> Iterator[Call]:
    functions = [(None, one) for one in (*TESTING, crawler.number, crawler.decoded) if inspect.isfunction(one)]
    for cls in CLASSES:
        for name, member in vars(cls).items():
            is_init = name == "__init__" and cls not in NOT_FOR_USERS
            if inspect.isfunction(member) and (is_init or not name.startswith("_")) and name not in INTERNAL:
                functions.append((cls, member))
    for of, function in functions:
        for one in inspect.signature(function).parameters.values():
            hint = str(one.annotation)
            if "RequestOptions" in hint:
                for option, written in RequestOptions.__annotations__.items():
                    yield Call(of, function.__name__, option, str(written))
            elif one.name != "self" and one.kind is not one.VAR_KEYWORD:
                yield Call(of, function.__name__, one.name, hint)


@pytest.mark.parametrize("call", list(calls()), ids=str)
def test_a_wrong_argument_is_named(call: Call, tmp_path: Path) -> None:
    with chdir(tmp_path):
        for value in WRONG:
            try:
                call(value)
            except (UserError, TypeError, ValueError, Refused) as error:
                assert "\n" not in str(error), value
                is_of_call = NEEDED.search(str(error)) is not None
                names = [call.parameter, call.parameter.removesuffix("s")]
                if call.takes(value):
                    names += [repr(value), *map(repr, value if isinstance(value, dict) else ())]
                is_named = any(name.lower() in str(error).lower() for name in names)
                assert is_named or (is_of_call and call.takes(value)), (value, type(error), str(error))
            except RuntimeError as error:
                assert NEEDED.search(str(error))
                assert call.takes(value), value
            else:
                assert call.takes(value), value
