"""The spiders of the guide for users of Scrapy: Scrapy's and ours find the same items on the same sites."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler import Crawl
from tests.e2e.harness import PATIENCE_S, ROOT
from tests.fuzz.differential import PEERS
from tests.reference.api import EXAMPLES
from tests.spiders.server import ON_SALE, PRODUCTS, SITES, Sites
from tests.test_docs import blocks

OURS = ROOT / "docs" / "examples"
THEIRS = OURS / "scrapy"
NAMES = sorted(path.stem for path in THEIRS.glob("*.py"))
HOSTS = ("quotes.test", "shop.test", "store.test", *(f"site{number}.test" for number in range(SITES)))

Items = list[dict[str, Any]]


@pytest.fixture
def proxies() -> Iterator[list[Sites]]:
    """Two servers that are proxies for the spiders that change them."""
    with Sites() as one, Sites() as other:
        yield [one, other]


def copied(program: Path, proxies: list[Sites], folder: Path) -> Path:
    """A copy of `program` in `folder`, with the ports of the proxies that run."""
    text = program.read_text()
    for port, proxy in zip(("8001", "8002"), proxies, strict=True):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{proxy.port}")
    folder.mkdir(exist_ok=True)
    (folder / program.name).write_text(text)
    return folder / program.name


def theirs(name: str, sites: Sites, proxies: list[Sites], folder: Path) -> Items:
    """The items of Scrapy's spider, whose proxy is the server."""
    program = copied(THEIRS / f"{name}.py", proxies, folder)
    words = [PEERS, "-m", "scrapy", "runspider", program, "-O", "items.jsonl", "-s", "DOWNLOAD_DELAY=0"]
    environment = os.environ | {"http_proxy": sites.url, "PYTHONPATH": ""}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]


def ours(name: str, sites: Sites, proxies: list[Sites], folder: Path) -> Items:
    """The items of our program."""
    program = copied(OURS / f"{name}.py", proxies, folder)
    if name == "proxies":  # no host of the host map is asked for through a proxy
        program.write_text(program.read_text().replace("http://shop.test/", sites.url))
    run(program, sites)
    return list(Crawl(settings={"replica": {"out": str(folder / "crawl-out")}}).items("items"))


def run(program: Path, sites: Sites) -> str:
    """What `program`, which finds the sites by their names, prints."""
    words, limit_s = [sys.executable, program], PATIENCE_S
    done = subprocess.run(
        words,
        cwd=program.parent,
        env=environment(sites),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment(sites: Sites) -> dict[str, str]:
    """In which programs find the sites by their names, and do not wait."""
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "CRAWLER_FETCH__HOST_MAP": ",".join(sites.host_map(*HOSTS)),
        "CRAWLER_FETCH__ALLOW": "127.0.0.1",
        "CRAWLER_FETCH__PORTS": f"80,{sites.port}",
        "CRAWLER_POLITENESS__DELAY": "0",
        "CRAWLER_POLITENESS__TRIES": "2",
        "CRAWLER_POLITENESS__BACKOFF_BASE": "0.05",
        "CRAWLER_REPLICA__INTERVAL": "0.5",
        "CRAWLER_SCOPE__GUESS_SITEMAPS": "false",
    }


def contents(items: Items, folder: Path, path: str) -> Items:
    """`items` with what is in their file, whose path is at `path`."""
    return [
        {"name": item["name"], "bytes": next(folder.rglob(Path(item[path]).name)).read_bytes().hex()} for item in items
    ]


def comparable(items: Items) -> list[str]:
    return sorted(json.dumps(item, sort_keys=True) for item in items)


def lines(program: Path) -> int:
    """How many lines `program` has, without empty ones, in the form that both kinds get from the same formatter."""
    form = ["--line-length", "88", "--config", "format.skip-magic-trailing-comma=true", "--isolated"]
    words = [Path(sys.executable).with_name("ruff"), "format", *form, "-"]
    done = subprocess.run(words, input=program.read_text(), capture_output=True, text=True, check=True)
    return sum(bool(line.strip()) for line in done.stdout.splitlines())


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_both_find_the_same_items(name: str, proxies: list[Sites], tmp_path: Path) -> None:
    if not PEERS.exists():
        pytest.fail("Scrapy is missing") if os.environ.get("CI") else pytest.skip("needs Scrapy in .peers")
    with Sites() as sites:
        found = theirs(name, sites, proxies, tmp_path / "theirs")
        for proxy in proxies:
            proxy.asked_for.clear()
    with Sites() as sites:
        own = ours(name, sites, proxies, tmp_path / "ours")
        if name == "images":
            found = [{"name": item["name"], "path": item["files"][0]["path"]} for item in found]
            found, own = (
                contents(items, tmp_path / folder, "path") for items, folder in ((found, "theirs"), (own, "ours"))
            )
        if name == "proxies":
            assert all(proxy.asked_for.total() >= PRODUCTS / 4 for proxy in proxies)
            assert sites.asked_for.total() == 0
        if name == "priority":
            assert {int(item["name"].removeprefix("Product ")) for item in own[: len(ON_SALE)]} == set(ON_SALE)
        assert len(own) >= 3
        assert comparable(own) == comparable(found)


@pytest.mark.long
def test_a_second_run_finds_only_what_is_new(proxies: list[Sites], tmp_path: Path) -> None:
    with Sites() as sites:
        first = ours("news", sites, proxies, tmp_path)
        sites.stories += 2
        both = ours("news", sites, proxies, tmp_path)
        assert (len(first), len(both)) == (3, 5)
        assert [count for url, count in sites.asked_for.items() if "/news/" in url] == [1] * 5
        assert sites.asked_for["shop.test/news"] == 2


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_examples_of_the_reference_print_what_they_say(example: Path, tmp_path: Path) -> None:
    with Sites() as sites:
        printed = run(copied(example, [sites, sites], tmp_path), sites)
    said = re.findall(r"print\(.*\)  # (.*)$", example.read_text(), re.MULTILINE)
    without_time = re.sub(r"in \d+ s", "", "\n".join(said))
    assert printed
    assert set(without_time.splitlines()) <= set(re.sub(r"in \d+ s", "", printed).splitlines())


FIRST = {
    "from-scrapy": (("https://quotes.toscrape.com/tag/humor/", "http://quotes.test/page/1/"), ("/tag/humor", "")),
    "from-crawlee": (("https://crawlee.dev", "http://shop.test/products"),),
}
"""The first example of a guide, and what stands there for the sites of this test."""


@pytest.mark.parametrize(("guide", "name", "count"), [("from-scrapy", "quotes", 12), ("from-crawlee", "pages", 9)])
def test_the_first_example_of_a_guide_runs(guide: str, name: str, count: int, tmp_path: Path) -> None:
    (program,) = blocks(ROOT / "docs" / "how-to" / f"{guide}.md", "python")
    for written, there in FIRST[guide]:
        program = program.replace(written, there)
    (tmp_path / "program.py").write_text(program)
    with Sites() as sites:
        run(tmp_path / "program.py", sites)
    crawl = Crawl(settings={"replica": {"out": str(tmp_path / "crawl-out")}})
    assert len(list(crawl.items(name))) == count
