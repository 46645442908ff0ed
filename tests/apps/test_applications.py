"""Real applications are crawled with the defaults: all their content, each page once, and few other requests."""

from __future__ import annotations

import os
import re
import tempfile
import urllib.request
from pathlib import Path

import pytest

from tests.apps.__main__ import by_crawler
from tests.apps.applications import APPLICATIONS, start

pytestmark = [pytest.mark.e2e, pytest.mark.long]

LIMIT_S = 400.0


@pytest.mark.parametrize("name", APPLICATIONS)
def test_all_content_is_fetched_once_and_the_crawl_ends(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CRAWLER_SCOPE__GUESS_SITEMAPS")
    application = APPLICATIONS[name]
    if os.environ.get("CI") and not application.in_ci:
        pytest.skip("takes minutes, or its package does")
    if not application.is_installed:
        if os.environ.get("CI"):
            raise RuntimeError(f"CI must install {name}; see .ci/run")
        pytest.skip(f"needs {', '.join(map(str, application.needs))}")
    # Not in `tmp_path`: each session of pytest closes its parent to other users, such as that of Apache.
    with tempfile.TemporaryDirectory() as folder, start(name, Path(folder)) as site:
        crawl = by_crawler(site, tmp_path, LIMIT_S)
        if site.cookie:
            request = urllib.request.Request(site.url + site.private, headers={"Cookie": site.cookie})
            with urllib.request.urlopen(request) as response:
                assert response.url == site.url + site.private, "logged out"
    assert set(crawl.content(site)) == site.content
    assert len(crawl.urls) == len(set(crawl.urls))
    assert crawl.has_ended
    assert len(crawl.urls) <= application.most, crawl.row(site)
    for line in crawl.lines:
        if name_of_page := site.page(line["url"]):
            number = re.sub(r"\D", "", name_of_page)
            for column, pattern in application.says.items():
                wanted = pattern.replace("URL", re.escape(line["url"])).replace("N", number)
                assert re.fullmatch(wanted, line[column] or ""), (line["url"], column, line[column])
