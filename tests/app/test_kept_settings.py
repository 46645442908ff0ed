"""The settings of a crawl that are kept beside its output."""

from __future__ import annotations

from pathlib import Path

from crawler.app.crawl_settings import keep_settings, kept_settings
from crawler.settings.load import CrawlSettings, load


def test_the_file_can_be_used_as_a_settings_file(tmp_path: Path) -> None:
    """It has no passwords, and only what differs from the defaults."""
    tables = {
        "politeness": {"delay": 0.2},
        "scope": {"exclude": ["a'b\"c\\d"]},
        "app": {"odd key": 1},
        "frontier": {"shards": 64},
        "extract": [{"name": "shop", "match": "/p", "fields": {"name": {"css": "h1"}}}],
    }
    secret = {"archive": {"upload": "s3://user:hidden@bucket/x"}}
    keep_settings(tmp_path, "news", CrawlSettings.of(tables | secret))
    path = kept_settings([tmp_path], "news")
    assert path is not None
    assert load(path).crawl == CrawlSettings.of(tables)
    text = path.read_text()
    assert "hidden" not in text
    assert "max_pages" not in text
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"# caf\xe9\n")  # by an editor
    keep_settings(tmp_path, "news", CrawlSettings())
    assert load(path).crawl == CrawlSettings()


def test_without_a_name_only_one_crawl_can_be_meant(tmp_path: Path) -> None:
    assert kept_settings([tmp_path]) is None
    for name in ("a", "a-b"):
        keep_settings(tmp_path, name, CrawlSettings())
    assert kept_settings([tmp_path]) is None
    assert kept_settings([tmp_path], "a") == tmp_path / "a.settings.toml"
    keep_settings(tmp_path / "gone", "a", CrawlSettings())
    assert not (tmp_path / "gone").exists()
