"""Compares what is read from random robots.txt files and headers with a naive reading, 100,000 times by default.

    python -m tests.fuzz.usage_preferences [--inputs N] [--seed N]

Exits with 1 after a difference. The naive reading is as simple as the drafts are written, without regard to time: the
library http_sf parses structured fields (RFC 9651), `robots_usage` follows draft-ietf-aipref-attach-05 section 3, and
`combine` draft-ietf-aipref-vocab-08 section 5.1. It shares no code with `politeness`, but the naive matcher of its tests.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterable

from http_sf import parse
from http_sf.types import Token

from crawler.parse.document import noted_fields, robots_tags, usage_of
from crawler.parse.html import ExtractPolicy, extract
from politeness.robots_match import Rules, UsageRules
from politeness.tdmrep import SiteUsage
from tests.politeness.test_robots_properties import byte_count, naive_match, tokens

AGENT = "ourbot"
KEYS = ("train-ai", "ai-use", "search", "train-ai", "bots", "a", "*", "Search", "x_1.*-", "")
_VALUES = (
    '=y|=n|=n|=y||=no|="n"|=?1|=1|=1.5|=123456789012.123|=1234567890123.1|=-|=@1|=:YQ==:|=:Y=Q:|=()|=(y n)|=(n;a ?0)|=(y|'
    '=%"a%c3%a4"|=%"%c3"|=%"%C3%A4"|="\\""|="\\n"|=1234567890123456|=@1.5|=*a:/b|="é"|= n|=\t'
)
VALUES = _VALUES.split("|")
PARAMETERS = (";a", ";a=n", ";  b=?0", ";A", "; c", " ;d", ";e=", ';f="x"')
SEPARATORS = (", ", ",", " , ", "\t,\t", ", ,", " ", ";")
PATHS = (
    *("/", "/a", "/a/", "/*", "/*b", "/a*b", "/ab", "/a$", "/*b$"),
    *("/%61", "/a%2fb", "/a?b=c", "/é", "a", "*", "/a*", "/:b"),
)
URLS = ("/", "/a", "/a/", "/ab", "/a/b", "/b", "/a?b=c", "/a%2fb", "/é", "/x/ab", "/:b", "/%3Ab")
LINES = (
    *("User-agent: *", "User-agent: ourbot", "user-agent: OURBOT", "User-Agent: other", "User-agent: ourbot of us"),
    *(
        "Allow: /",
        "Disallow: /never",
        "Crawl-delay: 1",
        "Sitemap: /s",
        "",
        "# comment",
        "Content-Usage:",
        "nonsense: x",
    ),
)
NAMES = ("Content-Usage", "content-usage ", "CONTENT-USAGE\t", "Content-Usages", "Content Usage")


def statement(rng: random.Random) -> str:
    """A dictionary, nearly always with a mistake in a later member at most."""
    members = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        key, value = rng.choice(KEYS), rng.choice(VALUES if rng.random() < 0.4 else VALUES[:4])
        members.append(key + value + ("" if rng.random() < 0.8 else rng.choice(PARAMETERS)))
    separator = ", " if rng.random() < 0.7 else rng.choice(SEPARATORS)
    return separator.join(members) + ("" if rng.random() < 0.9 else rng.choice((",", " ", "\t", "#x", "\0")))


def robots(rng: random.Random) -> bytes:
    lines = [rng.choice(LINES[:3]).encode()] if rng.random() < 0.9 else []
    for _ in range(rng.randint(1, 12)):
        if rng.random() < 0.4:
            lines.append(rng.choice(LINES).encode())
            continue
        name = NAMES[0] if rng.random() < 0.8 else rng.choice(NAMES)
        path = rng.choice(PATHS) + rng.choice((" ", "  ", "\t")) if rng.random() < 0.7 else ""
        lines.append(f"{name}:{rng.choice((' ', '', '  '))}{path}{statement(rng)}".encode())
    body = rng.choice((b"\n", b"\r\n", b"\r")).join(lines)
    if rng.random() < 0.1:
        at = rng.randrange(len(body) + 1)
        body = body[:at] + rng.randbytes(rng.randint(1, 4)) + body[at:]
    return body


def headers(rng: random.Random) -> list[tuple[bytes, bytes]]:
    """Header fields as a parser of HTTP returns them."""
    choices = [
        ("Content-Usage", statement),
        ("content-usage", statement),
        (
            "X-Robots-Tag",
            lambda rng: rng.choice(("noai", "ourbot: noai, noindex", "other: noai", "noindex", "noimageai")),
        ),
        ("tdm-reservation", lambda rng: rng.choice(("1", "0", "2", "", "yes", "1, 0"))),
        ("TDM-Policy", lambda rng: rng.choice(("https://a.test/p", "not a url", ""))),
        ("Server", lambda rng: "x"),
    ]
    picked = rng.sample(choices, rng.randint(0, 4))
    return [(name.encode(), make(rng).strip(" \t").encode("utf-8")) for name, make in picked]


Preferences = dict[str, str]
"""Category -> "y" or "n"."""

CATEGORIES = ("train-ai", "ai-use", "search")


def preferences(value: bytes) -> Preferences:
    try:
        found = parse(value.strip(b" "), tltype="dictionary")
    except ValueError:
        return {}
    words = {name: str(item[0]) for name, item in found.items() if isinstance(item[0], Token)}
    return {name: words[name] for name in CATEGORIES if words.get(name) in ("y", "n")}


def combine(statements: Iterable[Preferences]) -> Preferences:
    every = list(statements)
    combined = {}
    for name in CATEGORIES:
        said = {one.get(name) for one in every} - {None}
        if said:
            combined[name] = "n" if "n" in said else "y"
    return combined


def written(found: Preferences) -> str:
    return ", ".join(f"{name}={found[name]}" for name in CATEGORIES if name in found)


def product_token(value: bytes) -> str:
    """The product token at the start of a User-agent line, in lower case. Digits count, as in `politeness`."""
    return re.match("[A-Za-z0-9_-]*", value.decode("latin-1"))[0].lower()  # type: ignore[index]


def robots_usage(body: bytes, agent: str, path: str) -> Preferences:
    """What the robots.txt `body` says to `agent` about `path`."""
    rules: dict[str, list[bytes]] = {agent: [], "*": []}
    seen: set[str] = set()
    names: set[str] = set()
    in_rules = False
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        name, colon, value = line.split(b"#")[0].strip().partition(b":")
        field, value = name.strip().lower(), value.strip()
        if not colon:
            continue
        if field == b"user-agent":
            names = set() if in_rules else names
            in_rules = False
            names |= {"*" if value.split()[:1] == [b"*"] else product_token(value)} & rules.keys()
            seen |= names
        elif field in (b"allow", b"disallow", b"content-usage"):
            in_rules = True
            for group in names if field == b"content-usage" else ():
                rules[group].append(value)
    group = agent if agent in seen else "*"
    return longest(rules[group] if group in seen else [], path)


def longest(rules: list[bytes], path: str) -> Preferences:
    url = tuple(tokens(path, ""))
    best, said = -1, []
    for value in rules:
        pattern, statement = b"", value
        if value.startswith(b"/"):
            end = min([at for at in (value.find(b" "), value.find(b"\t")) if at >= 0], default=len(value))
            pattern, statement = value[:end], value[end:].strip(b" \t")
        anchored = pattern.endswith(b"$")
        parts = tuple(tokens(pattern[: len(pattern) - anchored], "*")) + ("$",) * anchored
        if value and naive_match(parts, url):
            length = byte_count(parts)
            if length > best:
                best, said = length, []
            if length == best:
                said.append(preferences(statement))
    return combine(said)


def naive(body: bytes, fields: list[tuple[bytes, bytes]], path: str) -> str:
    """What the naive parser says of all of it."""
    said = [robots_usage(body, AGENT, path)]
    lowered = [(name.lower(), value) for name, value in fields]
    if values := [value for name, value in lowered if name == b"content-usage"]:
        said.append(preferences(b", ".join(values)))
    for name, value in lowered:
        if name == b"x-robots-tag" and value in (b"noai", b"ourbot: noai, noindex"):
            said.append({"train-ai": "n", "ai-use": "n"})
        if name == b"tdm-reservation":
            said.append({b"1": {"train-ai": "n", "ai-use": "n"}, b"0": {"train-ai": "y"}}.get(value, {}))
    return written(combine(said))


def ours(body: bytes, fields: list[tuple[bytes, bytes]], path: str) -> str:
    """What the crawler says of all of it."""
    rules = Rules.parse(body, AGENT).usage or UsageRules()
    noted = noted_fields(fields)
    found = extract(b"", "https://a.test/", "text/plain", ExtractPolicy(user_agent=AGENT), robots_tags(noted))
    return str(usage_of(SiteUsage(rules.stated("https://a.test" + path)), noted, found, is_image=False))


def differences(inputs: int, seed: int) -> list[str]:
    """The inputs about which the two do not agree, and what each says."""
    rng = random.Random(seed)
    found = []
    for _ in range(inputs):
        body, fields, path = robots(rng), headers(rng), rng.choice(URLS)
        expected, got = naive(body, fields, path), ours(body, fields, path)
        if expected != got:
            found.append(f"{body!r} {fields!r} {path}: {got!r}, naive: {expected!r}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = differences(options.inputs, options.seed)
    for line in found[:20]:
        print(line)
    print(f"usage: {options.inputs} robots.txt files and headers, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
