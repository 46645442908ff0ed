"""The Markdown files of an export, `<domain>/<path>-<title>-<hash>.md`: front matter in YAML, and the main text.

Links between pages that both have a file are relative, and which pages have one is known once all were read. So each text
is a draft at first. Then files whose text is the same stay as they are, and others are replaced.
"""

from __future__ import annotations

import contextlib
import json
import re
import unicodedata
from base64 import b32encode
from collections.abc import Collection, Mapping
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from posixpath import relpath
from urllib.parse import quote, unquote, urlsplit

from crawler.page import Page
from crawler.parse.text import content_of
from crawler.sinks.files import whole_file
from crawler.sinks.lines import iso_time
from frontier.domains import domain_of, host_of
from frontier.errors import BadUrl
from frontier.urls import canonicalize

_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST = 80  # bytes of a part of a file name
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # what could change the settings of a terminal


def draft(page: Page, visit: str, drafts: Path, out: Path) -> Path | None:
    """Write the draft of `page`, and return where its file in `out` is to be, None without text. `visit`: "" if
    unknown."""
    content = content_of(page, "markdown", structured=False)
    if content.markdown is None:
        return None
    assert page.exchange is not None
    fields = {
        "url": page.url,
        "title": page.title,
        "date": content.published or "",
        "lang": page.lang,
        "canonical": page.canonical,
    }
    lines = [f"{name}: {_quoted(value)}\n" for name, value in fields.items() if value or name == "title"]
    if page.exchange.started_at:  # known
        lines.append(f"fetched: {iso_time(page.exchange.started_at)}\n")
    if visit:
        lines.append(f"visit: {visit}\n")
    path = _path(page, out)
    text = f"---\n{''.join(lines)}---\n\n{_CONTROLS.sub('', content.markdown).rstrip()}\n"
    (drafts / path.stem).write_text(text, encoding="utf-8", errors="replace")
    return path


def _path(page: Page, out: Path) -> Path:
    parts = urlsplit(page.url)
    words = [_slug(unquote(parts.path))]
    if parts.query or not words[0]:  # the path does not tell what the page is
        words.append(_slug(page.title))
    name = "-".join([*filter(None, words)] or ["index"])
    return out / _folder(page.domain) / f"{name}-{_hash(page.url)}.md"


def _folder(domain: str) -> str:
    return _UNSAFE.sub("-", domain)


def _hash(url: str) -> str:
    """With fewer bits, a site could find two URLs that share a file."""
    digest = blake2b(url.encode(errors="replace"), digest_size=16).digest()
    return b32encode(digest).decode().lower().rstrip("=")


def _slug(text: str) -> str:
    words = _UNSAFE.sub("-", unicodedata.normalize("NFC", text)).encode(errors="replace")[:_LONGEST]
    return words.decode(errors="ignore").strip("-.")


_NO_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def _quoted(text: str) -> str:
    """`text` as a string that YAML and JSON have in common."""
    whole = json.dumps(text.encode(errors="replace").decode(), ensure_ascii=False)
    return _NO_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", whole)


def remove_others(out: Path, urls: Collection[str], files: Mapping[str, Path]) -> tuple[dict[str, Path], int]:
    """Remove the files in `out` of pages among `urls` that are not among `files`. Those with other names or in other
    folders, such as copies, were not made by this export, and stay. Returns the other files by the URLs of their pages,
    and how many were removed."""
    kept, wanted, removed = {}, set(files.values()), 0
    for path in out.glob("*/*.md"):
        url = _url(path)
        if path in wanted or url not in urls:
            kept[url] = path
        elif not path.stem.endswith(f"-{_hash(url)}") or path.parent.name != _folder(domain_of(host_of(url))):
            continue
        else:
            path.unlink(missing_ok=True)
            removed += 1
    return kept, removed


def _url(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as lines:
        if next(lines, "") != "---\n":
            return ""
        for line in takewhile(lambda line: line != "---\n", lines):
            if line.startswith("url: "):
                value = line.removeprefix("url: ").strip()
                with contextlib.suppress(ValueError):
                    return str(json.loads(value)) if value.startswith('"') else value
    return ""


_OF_VISIT = re.compile(r"^fetched: .*\n(?:visit: .*\n)?", re.MULTILINE)


def write_changed(path: Path, text: str) -> None:
    """Write `text` to the file at `path`, unless nothing but what it says of the visit has changed. Raises OSError."""
    if path.is_file():
        before = path.read_text(encoding="utf-8", errors="replace")
        if _OF_VISIT.sub("", before, count=1) == _OF_VISIT.sub("", text, count=1):
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


_CODE_OR_LINK = re.compile(
    r"^ *+(?P<fence>`{3,}+(?![^`\n]*`)|~{3,}+)|(?P<ticks>`++)"
    r'|(?<=\]\()(?:<(?P<odd>https?:[^<>\n]*)>|(?P<url>https?:(?:\\.|\((?:\\.|[^()\s\\])*\)|[^()\s\\])*))(?=\)| ")',
    re.MULTILINE | re.DOTALL,
)
_TICKS = re.compile("`+")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


def with_relative_links(text: str, path: Path, files: Mapping[str, Path]) -> str:
    """The Markdown `text` of the file at `path`, with relative links to the pages of `files`, except in code."""

    def relative(found: re.Match[str]) -> str:
        link = _ESCAPED.sub(r"\1", found["odd"] or found["url"])
        with contextlib.suppress(BadUrl):
            target = files.get(canonicalize(link, None).href)
            if target is not None:
                _, hash_, fragment = link.partition("#")
                return quote(relpath(target, path.parent)) + hash_ + quote(fragment, safe="/?:@!$&'*+,;=~%")
        return found[0]

    ends, parts, copied, at = _ends_of_code(text), list[str](), 0, 0
    while found := _CODE_OR_LINK.search(text, at):
        if fence := found["fence"]:
            end = re.compile(rf"^ *+{fence}{fence[0]}*+[ \t]*+$", re.MULTILINE).search(text, found.end())
            at = end.end() if end else len(text)  # as in CommonMark
        elif found["ticks"]:
            at = ends.get(found.start(), found.end())
        else:
            parts += text[copied : found.start()], relative(found)
            copied = at = found.end()
    return "".join([*parts, text[copied:]])


def _ends_of_code(text: str) -> dict[int, int]:
    """Where the code ends that begins with backticks, by where these begin: with the next ones of the same number."""
    ends, next_ends = dict[int, int](), dict[int, int]()
    for ticks in reversed([found.span() for found in _TICKS.finditer(text)]):
        length = ticks[1] - ticks[0]
        if length in next_ends:
            ends[ticks[0]] = next_ends[length]
        next_ends[length] = ticks[1]
    return ends
