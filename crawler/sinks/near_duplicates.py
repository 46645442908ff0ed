"""Detects near-duplicates of earlier pages, and soft 404s: error pages with status 200.

Both are detected from the content alone. Requesting made-up URLs, to learn how a site answers them (Bar-Yossef et al., Sic
transit gloria telae, WWW 2004), would only burden the sites.

A page is a soft 404 if it is short and its title or heading says so, or if its text is that of a page of the same domain
that had status 404 or 410 or was recognized by its words. Longer pages are articles about such errors. Prieto et al.
(Analysis and detection of Soft-404 pages, 2013) also use length, words and title.

What is dropped is gone, so more is asked: a soft 404 needs the very title and text of an earlier error page, because its
words are in titles of short pages of other kinds, too; a near-duplicate needs the title and heading of the other page.
Pages of products or of applications may differ in little else.
"""

from __future__ import annotations

import re
from collections import deque
from functools import cache
from operator import itemgetter
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec
from xxhash import xxh3_64_intdigest

from crawler.page import NO_CONTENT, Content, Page
from crawler.parse.text import GONE, SHORT_CHARACTERS, NearIndex, is_near, simhash, words_of

Treatment = Literal["off", "mark", "drop"]

_SHORT_WORDS = 150
_DOMAINS = 4_096  # domains whose error pages are remembered
_TEXTS = 4  # per domain, because the servers of a domain may have different error pages

_SAYS_SO = (
    r"^\W*(?:(?:error|http|status)\W*)*404\W*$"
    r"|\b404\b.{0,40}\b(?:error|not found|page)\b|\b(?:error|http)\W{0,3}404\b"
    r"|\b(?:page|file|site|url|document|content|resource|article|item|product|that|it)\b.{0,40}"
    r"(?:not found|(?:not|n['’]t) be found|not? (?:longer )?(?:exists?|available)\b|n['’]t exist)"
    r"|^\W*(?:\w+\W+)?not found\W*$|nothing (?:was )?found"
    r"|(?:seite|datei|inhalt).{0,40}(?:nicht (?:gefunden|vorhanden|verfügbar)|existiert nicht)"
    r"|page.{0,20}(?:introuvable|n['’]existe (?:pas|plus)|non trouvée)"
    r"|página.{0,20}(?:no (?:se ha )?encontrad[oa]|no existe|não (?:foi )?encontrada|não existe)"
    r"|pagina.{0,20}(?:non (?:è stata )?trovata|non esiste|niet gevonden|bestaat niet|nu a fost găsită)"
    r"|stron[ay].{0,30}(?:nie (?:została |istnieje|znalezion))|stránka.{0,20}(?:nenalezena|neexistuje|nebyla nalezena)"
    r"|sidan.{0,20}(?:hittades inte|finns inte|kunde inte hittas)|sid(?:en|a).{0,20}ikke (?:fun[dn]et|findes)"
    r"|страниц[аы].{0,20}не (?:найден|существует)|сторінк[ау].{0,20}не (?:знайдено|існує)"
    r"|sayfa.{0,20}bulunamad|ページ.{0,20}(?:見つかりません|存在しません)|页面?.{0,8}(?:未找到|找不到|不存在)|(?:未找到|找不到).{0,8}页面"
    r"|頁面?.{0,8}(?:找不到|不存在)|페이지.{0,12}(?:찾을 수 없|없습니다)"
)
"""Titles and headings of error pages. The words "not found" alone are not enough."""


@cache
def _says_so() -> re.Pattern[str]:
    return re.compile(_SAYS_SO, re.IGNORECASE)


class Likeness:
    """Compares pages with earlier ones. `remembered`: how many; `simhash`: whether to return the fingerprints."""

    def __init__(self, near: Treatment, soft_404: Treatment, remembered: int = 0, simhash: bool = False) -> None:
        self._near, self._soft_404 = near, soft_404
        self._takes_prints = simhash or near != "off"
        self._index = NearIndex(remembered if near != "off" else 0)
        self._unsure: list[tuple[int, int, str]] = []
        self._error_pages = ErrorPages()

    def judge(self, page: Page, content: Content) -> Content:
        """The `content` of `page`, with the results that the settings ask for."""
        assert page.exchange is not None
        soft_404 = near_of = None
        is_certain = is_copy = False
        fingerprint = content.simhash if self._takes_prints else None
        if self._soft_404 != "off":
            soft_404, is_certain = self._error_pages.is_soft_404(page, content)
        if page.exchange.status in GONE:
            return NO_CONTENT
        if self._near != "off" and fingerprint is not None:
            title_digest = _digest(_without_url(f"{page.title}\n{content.heading}", page.url))
            near_of, is_copy = self._near_of(page, fingerprint, title_digest)
        judged = msgspec.structs.replace(content, simhash=fingerprint, near_of=near_of, soft_404=soft_404)
        drops = (is_copy and self._near == "drop") or (is_certain and self._soft_404 == "drop")
        return msgspec.structs.replace(judged, text=None, markdown=None, is_dropped=True) if drops else judged

    def _near_of(self, page: Page, fingerprint: int, title_digest: int) -> tuple[str | None, bool]:
        """The URL of a page like `page`, and whether that one has its `title_digest`, too."""
        unsure = [(url, other == title_digest) for known, other, url in self._unsure if is_near(known, fingerprint)]
        found = max(unsure, key=itemgetter(1), default=None) or self._index.find(fingerprint, title_digest)
        url, is_copy = found or (None, False)
        if not is_copy and _may_be_original(page):
            self._unsure.append((fingerprint, title_digest, page.url))
        return (url, is_copy) if url != page.url else (None, False)  # the same page, fetched again

    def confirm(self) -> None:
        for known in self._unsure:
            self._index.add(*known)
        self._unsure.clear()

    def undo(self) -> None:
        self._unsure.clear()


def _may_be_original(page: Page) -> bool:
    """Whether `page` does not say itself that it is not the one to keep: many old versions are found before the new one."""
    return not page.noindex and (not page.canonical or _bare(page.canonical) == _bare(page.url))


def _bare(url: str) -> str:
    """`url` without what differs between two URLs of one page on sites whose canonical URLs are never linked."""
    return url.partition("://")[2].removeprefix("www.").rstrip("/")


class ErrorPages:
    def __init__(self) -> None:
        self._texts: dict[str, deque[tuple[int, int]]] = {}  # the last domain that had an error page is at the end

    def is_soft_404(self, page: Page, content: Content) -> tuple[bool, bool]:
        """Whether `page` is an error page with another status than 404 and 410, and whether that is certain, because it has
        title and text of an earlier one. Remembers error pages."""
        assert page.exchange is not None
        is_gone = page.exchange.status in GONE
        path = urlsplit(page.url).path
        if len(content.compared) > SHORT_CHARACTERS or len(path) <= 1:
            return False, False  # the home page, which some domains also show for missing pages
        text = _without_url(content.compared, page.url)
        if len(words_of(text)) > _SHORT_WORDS:
            return False, False
        says_so = not is_gone and any(_says_so().search(said) for said in (page.title, content.heading))
        text = f"{_without_url(page.title, page.url)}\n{text}"
        fingerprint, digest = simhash(text), _digest(text)
        if fingerprint is None:
            return says_so, False
        known = self._texts.get(page.domain, ())
        is_known = any(is_near(one, fingerprint) for one, _ in known)
        is_certain = any(one == digest for _, one in known)
        if (is_gone or says_so) and not is_certain:
            self._learn(page.domain, fingerprint, digest)
        return not is_gone and (says_so or is_known), not is_gone and is_certain

    def _learn(self, domain: str, fingerprint: int, digest: int) -> None:
        texts = self._texts.pop(domain, deque(maxlen=_TEXTS))
        self._texts[domain] = texts
        texts.append((fingerprint, digest))
        if len(self._texts) > _DOMAINS:
            del self._texts[next(iter(self._texts))]


def _digest(text: str) -> int:
    return xxh3_64_intdigest(b" ".join(words_of(text)))


def _without_url(text: str, url: str) -> str:
    """`text` without the URL and its path, which many error pages repeat."""
    path = urlsplit(url).path
    for said in (url, unquote(url), path, unquote(path)):
        text = text.replace(said, " ")
    return text
