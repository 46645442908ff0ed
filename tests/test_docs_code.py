"""Docstrings, reference pages and code agree: Redis keys, events, and the documents that the code names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec

from crawler import events
from frontier.keys import CrawlKeys
from frontier.peers import Health

ROOT = Path(__file__).parent.parent
LUA = ROOT / "frontier" / "lua"
KEY = r"`(\{[^`]*)`"


def rows() -> dict[str, str]:
    """Key -> type, as the page about Redis keys has them."""
    page = (ROOT / "docs" / "reference" / "redis-keys.md").read_text()
    return dict(re.findall(rf"^\| {KEY} \| (\w+) \|", page, re.MULTILINE))


def named_keys(cls: type) -> list[str]:
    """The attributes of `cls` that build a key."""
    return [name for name, member in vars(cls).items() if type(member).__name__ == "_Key"]


def built(keys: object, tag: str) -> Iterator[str]:
    """Every key that an object of `frontier.keys` builds, with `<parameter>` for what completes it."""
    cls = type(keys)
    yield from (getattr(keys, name) for name in named_keys(cls))
    for name, member in vars(cls).items():
        if inspect.isfunction(member) and not name.startswith("_") and name not in ("shard_of", "of"):
            yield member(keys, *(f"<{one}>" for one in list(inspect.signature(member).parameters)[1:]))
    yield from (value for value in getattr(keys, "__dict__", {}).values() if isinstance(value, str) and tag in value)


def completed() -> set[str]:
    """The keys below `peers`: named in the headers of the scripts, or by the class that keeps health records."""
    headers = "".join(file.read_text() for file in LUA.glob("*.lua"))
    health = vars(Health(None, "{crawl}:peers", 1.0))["_key"]  # type: ignore[arg-type]
    names = re.findall(r"(?<![\w:])peers:\w+(?::<\w+>)?(?=\s+(?:hash|string|set|zset)\b)", headers)
    return {*(f"{{crawl}}:{name}" for name in names), health, f"{health}:<replica>"}


def test_the_page_lists_exactly_the_keys_that_the_code_builds() -> None:
    keys = CrawlKeys("crawl", 1)
    shard = {key.replace("{crawl:0}", "{crawl:shard}") for key in built(keys.shards[0], "{crawl:0}")}
    assert {*built(keys, "{crawl"), *shard, *completed()} == set(rows())


def test_the_page_gives_each_key_the_type_that_the_scripts_say() -> None:
    types = {key.rpartition("}:")[2].rpartition("budget:")[2]: kind for key, kind in rows().items()}
    headers = "\n".join(
        line for file in sorted(LUA.glob("*.lua")) for line in file.read_text().splitlines() if line.startswith("--")
    )
    said = re.findall(r"(?<![\w:])([a-z]+(?::[a-z]+)?(?::<\w+>)?)\s+(zset|hash|set|string)\b", headers)
    compared = {(name, kind) for name, kind in said if name in types}
    assert len(compared) > 15
    assert {(name, kind) for name, kind in compared if types[name] != kind} == set()


EVENTS = get_args(events.Event)


def constructed() -> set[str]:
    """Names that are called anywhere in the crawler. Patterns of `match` are not calls."""
    names = set()
    for path in (ROOT / "crawler").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                func = node.func
                names.add(
                    func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
                )
    return names


def test_every_event_is_in_the_union() -> None:
    declared = {kind for kind in vars(events).values() if inspect.isclass(kind) and issubclass(kind, msgspec.Struct)}
    assert {kind for kind in declared if kind.__module__ == events.__name__} == set(EVENTS)


def test_every_event_is_emitted() -> None:
    assert {kind.__name__ for kind in EVENTS} - constructed() == set()


def test_documents_that_the_code_names_exist() -> None:
    missing = [
        (str(path.relative_to(ROOT)), name)
        for package in ("crawler", "frontier", "politeness")
        for path in sorted((ROOT / package).rglob("*.*"))
        if path.suffix in {".py", ".lua", ".html"}
        for name in re.findall(r"(?<![\w/.-])docs/[\w/-]+\.md", path.read_text())
        if not (ROOT / name).exists()
    ]
    assert missing == []
