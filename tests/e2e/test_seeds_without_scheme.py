"""Seeds without a scheme whose hosts answer over http only are fetched over http."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.harness import CRAWLER, Running, quick
from tests.site import Site

pytestmark = pytest.mark.e2e


def test_http_is_used_where_https_does_not_answer(tmp_path: Path) -> None:
    """Once for each host. A seed with https stays with it."""
    with Site(lambda request: '<a href="/linked">') as site:
        settings = quick(tmp_path, site.host_map("a.test", "b.test"))
        (tmp_path / "crawler.toml").write_text(settings)
        (tmp_path / "seeds").write_text("a.test\na.test/x?y=1 priority=3\nhttps://b.test/\n")
        command = [*CRAWLER, "crawl", "-f", "seeds", "--settings", "crawler.toml", "--quiet"]
        once = {"CRAWLER_POLITENESS__TRIES": "1"}
        done = Running(command, tmp_path, "crawl", once).wait()
        assert done.code == 0, done.err
        assert sorted(site.asked) == ["/", "/linked", "/robots.txt", "/x?y=1"]
        assert "2 seeds without a scheme: https does not answer there, so http is used" in done.out
        assert not any(request.host == "b.test" for request, _ in site.answered)
