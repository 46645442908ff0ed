"""The recipes of the documentation do what they promise: with one replica and with three, and although one is killed, each
item is there exactly once. Their settings, programs and export commands are taken from the pages."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from tests.e2e.harness import EVEN, ROOT, Bench, Running, Web, bench, repeated, wait_until
from tests.e2e.victims import kill
from tests.postgres import PASSWORD, PostgresProcess, need_postgres
from tests.simweb.resource import Product, Story, article

pytestmark = [pytest.mark.e2e, pytest.mark.long]
REPLICAS = pytest.mark.parametrize("replicas", [1, 3])


class Recipe:
    """A page of the documentation."""

    def __init__(self, name: str) -> None:
        self.text = (ROOT / "docs" / "how-to" / f"recipe-{name}.md").read_text()

    def block(self, language: str) -> str:
        found = re.search(rf"^```{language}\n(.*?)^```", self.text, re.MULTILINE | re.DOTALL)
        return found[1] if found else ""

    def exports(self) -> list[list[str]]:
        """The `crawler export` commands, as words."""
        return [shlex.split(line)[1:] for line in re.findall(r"^crawler export .*$", self.text, re.MULTILINE)]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with Web(tmp_path, domains=4, pages=48, features=replace(EVEN, articles=True, varied=False)) as web:
        yield web


@pytest.fixture
def crawler(tmp_path: Path, web: Web) -> Iterator[Bench]:
    with bench(tmp_path, web, has_server=True) as crawler:
        yield crawler


def crawl(crawler: Bench, recipe: Recipe, replicas: int, *words: str) -> None:
    """Crawl as `recipe` says, to the end. One replica is killed in the middle, and replaced."""
    crawler.configure({**tomllib.loads(recipe.block("toml")), "frontier": {"lease": 1.5}})
    (crawler.folder / "shop.py").write_text(recipe.block("python"))
    crawler.type("seed", "-f", str(crawler.seeds), *words)
    crawler.type("pause")
    crawler.web.stop_at(20)
    first, *others = [crawler.start("run", "--until-empty", *words) for _ in range(replicas)]
    crawler.begin(replicas)
    with crawler.web.stopped():
        kill(first.pid)
    assert first.wait().code == -signal.SIGKILL
    last = crawler.start("run", "--until-empty", *words)
    assert [one.wait().code for one in (*others, last)] == [0] * replicas
    assert not list(crawler.out.glob("*.open"))


def start(
    crawler: Bench, words: list[str], url: str = "", environment: Mapping[str, str] = MappingProxyType({})
) -> Running:
    """Start a command of a recipe, with the folder of this crawl, and `url` for that of a database."""
    words = [url if "://" in word else word.replace("crawl-out", str(crawler.out)) for word in words]
    name = "-".join(words[-2:]).replace("/", "_")
    return Running(
        [sys.executable, "-m", "crawler", *words], crawler.folder, name, {"PYTHONPATH": str(ROOT), **environment}
    )


def pages(web: Web) -> set[str]:
    """The URLs of the HTML pages that a perfect crawl finds."""
    visits = web.expected.visits.items()
    found = {url: web.world.resource(url) for url, visit in visits if visit.status == 200}
    return {url for url, resource in found.items() if resource is not None and resource.markup is not None}


def articles(web: Web, kind: type) -> dict[str, Any]:
    """The products or stories of the web, by the URL of their page."""
    found = {url: article(web.world.seed, url) for url in pages(web)}
    return {url: one for url, one in found.items() if isinstance(one, kind)}


@REPLICAS
def test_a_shop_to_postgresql(crawler: Bench, web: Web, replicas: int) -> None:
    need_postgres()
    recipe = Recipe("shop-to-postgresql")
    following, once = recipe.exports()
    with PostgresProcess() as server:
        crawler.out.mkdir()
        follower = start(crawler, following, server.url, {"PGPASSWORD": PASSWORD})
        crawl(crawler, recipe, replicas, "--app", "shop:router")
        found = articles(web, Product)
        assert len(found) > 3
        count = "SELECT count(*) FROM products"
        wait_until(
            lambda: server.query("SELECT to_regclass('products')")[0][0] and server.query(count)[0][0] == len(found),
            "all products in the table",
        )
        follower.send(signal.SIGINT)
        assert follower.wait().code == 0, follower.err
        rows = server.query("SELECT url, name, price FROM products")
        assert {url: (name, price) for url, name, price in rows} == found
        last = start(crawler, once, server.url, {"PGPASSWORD": PASSWORD}).wait()
        assert (last.code, last.out) == (0, f"{len(found)} items; 0 rows of the table products new or replaced\n")


@REPLICAS
def test_a_site_to_markdown(crawler: Bench, web: Web, replicas: int) -> None:
    recipe = Recipe("site-to-markdown")
    crawl(crawler, recipe, replicas)
    texts = [line["url"] for line in crawler.lines() if line["markdown"]]
    assert repeated(texts) == []
    assert set(texts) == pages(web)
    (words,) = recipe.exports()
    assert words[words.index("--out") + 1] == "notes"
    done = start(crawler, words).wait()
    assert done.code == 0, done.err
    heads = [path.read_text().split("\n", 2)[1] for path in (crawler.folder / "notes").rglob("*.md")]
    assert sorted(heads) == sorted(f'url: "{url}"' for url in texts)


@REPLICAS
def test_a_news_archive(crawler: Bench, web: Web, replicas: int) -> None:
    recipe = Recipe("news-archive")
    crawl(crawler, recipe, replicas)
    (words,) = recipe.exports()
    done = start(crawler, words).wait()
    assert done.code == 0, done.err
    with zipfile.ZipFile(crawler.folder / "news.wacz") as packed:
        lists = [packed.read(f"pages/{name}.jsonl").splitlines()[1:] for name in ("pages", "extraPages")]
    listed = [msgspec.json.decode(line) for lines in lists for line in lines]
    texts = {one["url"]: one["text"] for one in listed}
    assert len(listed) == len(texts)
    assert texts.keys() == pages(web)
    found = articles(web, Story)
    assert len(found) > 3
    for url, story in found.items():
        assert story.headline in texts[url]
