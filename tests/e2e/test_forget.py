"""`crawler forget` on a real crawl: afterwards no file and no key names the domain, and the crawl goes on without it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawler.app.embedded_valkey import EmbeddedValkey
from crawler.sinks.forget import add_mark
from frontier.domains import is_of
from frontier.store import connect
from tests.e2e.harness import EVEN, ROOT, Bench, Finished, Web, bench, wait_until
from tests.frontier.test_forget import contents
from tests.simweb.server import read_log
from tests.sinks import readers
from tests.sinks.test_forget import check_whole, everything
from tests.typed import Typed
from tests.valkey import ValkeyProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

GONE = "d00001.test"
TABLES: dict[str, dict[str, Any]] = {
    "archive": {"via": True, "parquet": True, "metadata": True},
    "limits": {"max_pages": 60},
    "frontier": {"shards": 8, "pack_above": 16},
}


def traces_in_keys(data: Path) -> list[bytes]:
    """What names the domain in the embedded server."""

    async def search() -> list[bytes]:
        async with EmbeddedValkey(data) as server:
            store = await connect(server.url)
            try:
                return [word async for word in contents(store, "crawl") if GONE.encode() in word]
            finally:
                await store.close()

    return asyncio.run(search())


def traces_in_files(folder: Path) -> list[str]:
    """The files that name the domain anywhere but in what another site has sent."""
    sent = {
        one.url: one.payload.count(GONE.encode()) + sum(value.count(GONE) for _, value in one.http)
        for warc in readers.warc_files(folder)
        for one in readers.by_fastwarc(warc)
        if one.type == "response"
    }
    assert not [url for url in sent if is_of(url, GONE)]
    found = {name: data.count(GONE.encode()) for name, data in everything(folder).items()}
    of_others = sum(sent.values())
    assert of_others  # they link to it
    total = sum(count for name, count in found.items() if ".warc" in name)
    return [name for name, count in found.items() if count and ".warc" not in name] + ["WARC"] * (total != of_others)


def test_nothing_names_it_and_the_crawl_goes_on_without_it(tmp_path: Path) -> None:
    with Web(tmp_path, domains=6, pages=300, features=EVEN) as web, bench(tmp_path, web, "", TABLES) as crawler:
        # Given a crawl by two replicas that reached its limit, with URLs of the domain in its queue and its output,
        assert crawler.crawl("--replicas", "2").wait().code == 0
        assert traces_in_keys(tmp_path / "data")
        assert any(is_of(line["url"], GONE) for line in crawler.lines())
        counted = json.loads(crawler.type("forget", GONE, "--dry-run", "--json"))
        # which another folder lacks,
        crawler.out.rename(tmp_path / "elsewhere")
        elsewhere = crawler.run("forget", GONE, "--dry-run")
        (tmp_path / "elsewhere").rename(crawler.out)
        assert elsewhere.code == 2
        assert "so nothing is removed from files: name its folders" in elsewhere.err
        # When the domain is forgotten,
        done = crawler.run("forget", f"https://www.{GONE}/", "--json")
        assert done.code == 0, done.err
        result = json.loads(done.out)
        assert {**counted, "dry_run": False} == result
        assert result["state"]["queued"] > 10
        assert result["files"][0]["lines"] > 3
        # Then no key names it, no file, and not the server's own files,
        assert traces_in_keys(tmp_path / "data") == []
        assert traces_in_files(crawler.out) == []
        assert not [p for p in (tmp_path / "data").rglob("*") if p.is_file() and GONE.encode() in p.read_bytes()]
        check_whole(crawler.out)
        # When the crawl goes on to its end,
        crawler.apply({"limits": {"max_pages": 0}})
        requested = sum(is_of(record.url, GONE) for record in read_log(web.log))
        assert crawler.run("run", "--until-empty").code == 0
        # Then it is not requested again, and no link to it has left a trace,
        assert crawler.status()["open"] == 0
        assert traces_in_keys(tmp_path / "data") == []
        assert traces_in_files(crawler.out) == []
        assert crawler.status()["dropped"].get("forgotten", 0) == 0  # links are dropped before they are pushed
        assert sum(is_of(record.url, GONE) for record in web.records()) == requested
        # and the audit finds nothing of it.
        report = json.loads(crawler.type("audit", str(crawler.out), "--json"))
        assert report["counts"]["forgotten"] == 0
        assert len(crawler.lines()) > 200


def test_a_replica_forgets_again_what_a_snapshot_has_brought_back(tmp_path: Path) -> None:
    """Redis was restored from a snapshot from before `crawler forget`, and only the output folder has its mark."""
    with Web(tmp_path, domains=3, pages=30, features=EVEN) as web, bench(tmp_path, web, "", {}) as crawler:
        crawler.seed()
        assert any(traces_in_keys(tmp_path / "data"))
        crawler.out.mkdir()
        add_mark(crawler.out, GONE)
        done = crawler.run("run", "--until-empty")
        assert done.code == 0, done.err
        assert "forgotten_again" in done.err
        assert crawler.lines()
        assert not [line["url"] for line in crawler.lines() if is_of(line["url"], GONE)]
        assert not [record.url for record in web.records() if is_of(record.url, GONE)]
        assert traces_in_keys(tmp_path / "data") == []


def test_a_full_disk_is_reported_and_the_command_repeated(tmp_path: Path, valkey: ValkeyProcess) -> None:
    tables = {"archive": TABLES["archive"]}
    with Web(tmp_path, domains=3, pages=60, features=EVEN) as web, bench(tmp_path, web, valkey.url, tables) as crawler:
        assert crawler.crawl().wait().code == 0
        before = everything(crawler.out)
        words = [sys.executable, "-m", "crawler", "forget", GONE, "--settings", str(crawler.settings)]
        limit = ["prlimit", "--fsize=4096"]
        full = subprocess.run([*limit, *words], cwd=ROOT, capture_output=True, text=True, check=False)
        assert full.returncode == 2, full.stderr
        assert "free some space and repeat the same command" in full.stderr
        assert full.stderr.count("\n") == 1
        assert {name: data for name, data in everything(crawler.out).items() if name in before} == before
        assert crawler.run("forget", GONE).code == 0
        assert traces_in_files(crawler.out) == []
        check_whole(crawler.out)


def test_copies_in_a_store_are_replaced(tmp_path: Path) -> None:
    depot = tmp_path / "depot"
    tables = {"archive": {**TABLES["archive"], "upload": str(depot)}}
    with Web(tmp_path, domains=3, pages=30, features=EVEN) as web, bench(tmp_path, web, "", tables) as crawler:
        assert crawler.crawl().wait().code == 0
        assert any(GONE.encode() in data for data in everything(depot).values())
        (crawler.out / "all.wacz").write_bytes(b"")
        done = crawler.run("forget", GONE)
        assert done.code == 0, done.err
        assert f"left: copies that may have the domain: {crawler.out / 'all.wacz'}; export them again" in done.out
        (crawler.out / "all.wacz").unlink()
    local = ("forgotten-domains.txt", "crawl.settings.toml")
    here = {path.name: path.read_bytes() for path in crawler.out.iterdir() if path.name not in local}
    assert {path.name: path.read_bytes() for path in depot.iterdir()} == here
    assert traces_in_files(depot) == []


@pytest.fixture
def commands(tmp_path: Path) -> Any:
    with Web(tmp_path, domains=4, pages=4_000, features=EVEN) as web, bench(tmp_path, web, "", {}) as crawler:
        yield crawler


Type = Callable[..., Finished]


@pytest.fixture
def type_(commands: Bench, typed: Typed) -> Type:
    """Types a command with the settings of the crawl."""
    options = ("--settings", str(commands.settings))
    return lambda word, *words: typed(word, *options, *words, environment={"COLUMNS": "300"})


def test_a_crawl_that_runs_is_refused_in_one_line(commands: Bench) -> None:
    commands.seed()
    replica = commands.start("run")
    commands.web.wait_for(12)
    before = commands.lines()
    refused = commands.run("forget", GONE)
    assert refused.code == 2
    assert "1 replica of crawl 'crawl' runs: stop the crawl with `crawler stop --crawl crawl" in refused.err
    assert refused.err.count("\n") == 1
    assert replica.is_running
    assert len(commands.lines()) >= len(before)
    assert not (commands.out / "forgotten-domains.txt").exists()
    # A replica that was killed has left open files.
    replica.kill()
    wait_until(lambda: not commands.status()["replicas"], "the health record to expire", step_s=0.1)
    refused = commands.run("forget", GONE)
    assert refused.code == 2
    assert "crawler finish" in refused.err
    commands.type("finish", str(commands.out))
    assert commands.run("forget", GONE).code == 0


def test_it_stays_blocked_for_good(commands: Bench, type_: Type) -> None:
    commands.seed()
    assert type_("forget", GONE).code == 0
    for words in (("unblock", GONE), ("block", GONE), ("delay", GONE, "3")):
        done = type_(*words)
        assert (done.code, done.err) == (
            2,
            f"error: {GONE} was forgotten in this crawl: it stays blocked, and nothing is stored of it\n",
        )
    done = type_("seed", f"https://{GONE}/new", "https://d00000.test/new")
    assert "1 seed queued, 0 seen before" in done.out
    assert "1 seed dropped, because `crawler forget` has removed" in done.err
    said = type_("why", f"https://{GONE}/new").out
    assert "its domain was forgotten" in said
    assert "links to it" not in said
    assert type_("block", "--file", str(listed(commands.folder, f"{GONE}\nd00002.test\n"))).code == 0
    assert traces_in_keys(commands.folder / "data") == []


def test_a_domain_that_the_crawl_does_not_know_is_forgotten_only_on_demand(commands: Bench, type_: Type) -> None:
    """A typing error would block another site for good."""

    commands.seed()
    done = type_("forget", "d0001.test")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: d0001.test is not known to this crawl (did you mean d0000")
    assert done.err.endswith("nothing was changed; repeat the command with --unknown if the name is right\n")
    assert commands.status()["rules"] == []
    counted = type_("forget", "d0001.test", "--dry-run")
    assert counted.code == 0
    assert "note: d0001.test is not known to this crawl" in counted.err
    assert type_("forget", "d0001.test", "--unknown").code == 0
    again = type_("forget", "d0001.test")  # as on another machine of the crawl
    assert (again.code, again.err) == (0, "")


def listed(folder: Path, text: str) -> Path:
    path = folder / "domains.txt"
    path.write_text(text)
    return path


def test_a_list_is_blocked_as_a_whole_or_not_at_all(commands: Bench, type_: Type) -> None:
    def block(text: str) -> Finished:
        return type_("block", "--file", str(listed(commands.folder, text)))

    commands.seed()
    done = block("# objections\nd00002.test\nnot a domain\n\nhttp//typo\nd00003.test # by mail\n")
    assert done.code == 2
    assert "nothing was blocked: line 3: " in done.err
    assert "; line 5: " in done.err
    assert commands.status()["rules"] == []
    done = block("# objections\n\nwww.d00002.test\nhttps://d00003.test/a # by mail\nd00002.test\n")
    assert (done.code, done.out, done.err) == (0, "the crawl no longer fetches from 2 domains\n", "")
    done = block("d00002.test\ntypo.test\n")
    assert (done.code, done.out) == (0, "the crawl no longer fetches from 2 domains\n")
    assert done.err == "note: not known to this crawl, blocked anyway: typo.test\n"
    assert commands.run("unblock", "typo.test").code == 0
    assert [rule["domain"] for rule in commands.status()["rules"]] == ["d00002.test", "d00003.test"]
    assert type_("block").code == 2


def test_names_of_more_than_one_domain_are_refused_in_one_line(commands: Bench, type_: Type) -> None:
    commands.seed()
    for name, why in (
        ("d00001.test\nother.test", "control character"),
        ("d00001\t.test", "control character"),
        ("com", "public suffix"),
        ("co.uk.", "public suffix"),
        ("2130706433", "stands for the address 127.0.0.1"),
        ("0x7f.1", "stands for the address 127.0.0.1"),
    ):
        for command in ("forget", "block"):
            done = type_(command, name)
            assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
            assert why in done.err
    done = type_("block", "--file", str(listed(commands.folder, "com\nd00002.test\n" + "x" * 3_000_000)))
    assert "nothing was blocked: line 1: com is a public suffix" in done.err
    assert len(done.err) < 1_000
    assert commands.status()["rules"] == []
    assert type_("block", "https://github.io/").code == 0
    assert type_("block", "127.0.0.1").code == 0
