"""A crawl with `[identity]` keys: a site that verifies accepts every request, and nobody learns the keys."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from crawler.identity.keys import make_key
from crawler.identity.web_bot_auth import key_set
from tests.e2e.harness import Bench, Web, bench
from tests.identity.signed_requests import DIRECTORY
from tests.identity.site import Refused, Site
from tests.simweb.features import Features
from tests.simweb.server import Record

pytestmark = pytest.mark.e2e


def accept(site: Site, record: Record, later_s: float = 0.0, target: str = "") -> None:
    site.accept(record.method, record.host, target or record.path, record.signed, record.wall + later_s)


def signing(crawler: Bench, *keys: Path) -> None:
    crawler.configure({"identity": {"keys": [str(key) for key in keys], "directory": DIRECTORY}})


def test_a_site_that_verifies_accepts_every_request_of_a_crawl(tmp_path: Path) -> None:
    """Given two replicas on a web with redirects, sitemaps and errors, then a verifier that remembers nonces accepts every
    request, that for a robots.txt as well, and refuses each one when it is sent again, later, or for another path."""
    key = make_key(tmp_path / "key.pem")
    features = replace(Features.mixed(), sitemaps=1.0)
    with Web(tmp_path, domains=12, pages=120, features=features) as web, bench(tmp_path, web) as crawler:
        signing(crawler, tmp_path / "key.pem")
        done = crawler.crawl("--replicas", "2").wait()
        assert done.code == 0, done.err
        records = web.records()
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    directory = key_set([key])
    site, forgetful = Site({DIRECTORY: directory}), lambda: Site({DIRECTORY: directory})
    paths = {record.path for record in records}
    assert "/robots.txt" in paths
    assert any("sitemap" in path for path in paths)
    assert any(300 <= record.status < 400 for record in records)
    for record in records:
        accept(site, record)
    for record in records:
        with pytest.raises(Refused, match="replayed"):
            accept(site, record)
        with pytest.raises(Refused, match="expired"):
            accept(forgetful(), record, later_s=61)
        with pytest.raises(Refused, match="does not fit"):
            accept(forgetful(), record, target="/other")
    assert key.thumbprint.encode() not in stored
    assert b"key.pem" not in stored
    assert DIRECTORY.encode() not in stored


@pytest.mark.long
def test_each_replica_signs_with_a_key_of_its_own(tmp_path: Path) -> None:
    """Given two replicas of one crawl with different keys, and a third one without, then their requests say so."""
    one, two = make_key(tmp_path / "one.pem"), make_key(tmp_path / "two.pem")
    with Web(tmp_path, domains=16, pages=160) as web, bench(tmp_path, web) as crawler:
        crawler.seed()
        crawler.type("pause")
        files = (["one.pem"], ["two.pem", "one.pem"], [])
        environments = [
            {"CRAWLER_IDENTITY": json.dumps({"keys": [str(tmp_path / f) for f in files_], "directory": DIRECTORY})}
            if files_
            else {}
            for files_ in files
        ]
        replicas = [crawler.start("run", "--until-empty", environment=each) for each in environments]
        crawler.begin(3)
        assert [replica.wait().code for replica in replicas] == [0, 0, 0]
        records = web.records()
    site = Site({DIRECTORY: key_set([one, two])})
    for record in records:
        if record.signed is not None:
            accept(site, record)
    used = {name for record in records for name in (one.thumbprint, two.thumbprint) if name in str(record.signed)}
    assert used == {one.thumbprint, two.thumbprint}
    assert any(record.signed is None for record in records)
