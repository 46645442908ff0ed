"""`crawler doctor` renders a page, and says what keeps the browser in."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from crawler.browser.process import find_browser, find_isolation
from crawler.cli.doctor import browser
from crawler.errors import BrowserFailed
from crawler.settings.load import Settings

WANTED = replace(Settings(), render=replace(Settings().render, mode="always"))

try:
    find_browser()
except BrowserFailed:
    pytest.skip("needs Debian's chromium-headless-shell", allow_module_level=True)


async def test_it_finds_the_browser_and_its_isolation() -> None:
    found = {finding.check: finding for finding in await browser(WANTED)}
    assert found["browser"].result == "good" and "renders a page" in found["browser"].found
    if find_isolation().kind == "namespace":
        assert found["its isolation"].found.startswith("by the kernel")


async def test_it_doubts_flags_and_condemns_a_browser_that_does_not_start() -> None:
    flags = replace(WANTED, replica=replace(WANTED.replica, browser_isolation="flags"))
    found = {finding.check: finding for finding in await browser(flags)}
    assert found["its isolation"].result == "doubtful" and "flags only" in found["its isolation"].found
    broken = replace(WANTED, replica=replace(WANTED.replica, browser="/bin/false"))
    first, *_ = await browser(broken)
    assert first.result == "bad" and "does not start" in first.found
    absent = replace(Settings(), replica=replace(WANTED.replica, browser="/no/such/file"))
    (only,) = await browser(absent)
    assert only.result == "good"  # none is wanted
