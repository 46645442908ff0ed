"""Settings that cannot be used are reported together, each with the place where it was set and what to write instead."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.harness import Finished
from tests.typed import Typed
from tests.valkey import ValkeyProcess

SITE = "http://a.test/"


def refused(done: Finished) -> list[str]:
    """Return the lines that the command printed on standard error, the last without "error: "."""
    assert done.code == 2, done
    assert "Traceback" not in done.err
    *lines, last = done.err.splitlines()
    assert last.startswith("error: ")
    return [*lines, last.removeprefix("error: ")]


def check(typed: Typed, folder: Path, text: str) -> list[str]:
    (folder / "c.toml").write_text(text)
    return refused(typed("config", "check", "c.toml"))


def test_all_bad_settings_of_a_file_are_reported_with_their_lines(typed: Typed, tmp_path: Path) -> None:
    text = """delay = 3
[politeness]
delya = 3
delay = "soon"

[fetch]
ports = [80,
  21001, true]
user_agent = "my crawler"
[archive]
text = "markdwn"  # [politeness]
[[extract]]
name = "a"
fields = {a = {css = "p"}}
[[extract]]
name = "b"
[politness]
delay = 1
"""
    lines = check(typed, tmp_path, text)
    told = {
        "c.toml:1: delay: there is no such setting; did you mean politeness.delay?",
        "c.toml:3: politeness.delya: there is no such setting; did you mean politeness.delay?",
        'c.toml:4: politeness.delay = "soon": must be a valid number',
        "c.toml:7: fetch.ports: must not be true or false",
        "c.toml:11: archive.text = \"markdwn\": must be 'off', 'text' or 'markdown'; did you mean markdown?",
        "c.toml:17: politness: there is no such setting; did you mean politeness?",
        "8 settings cannot be used; `crawler config explain NAME` describes a setting",
    }
    assert told <= set(lines)
    in_order = [f"c.toml:{number}" for number in (1, 3, 4, 7, 9, 11, 15, 17)]
    assert [line.partition(": ")[0] for line in lines[:-1]] == in_order


FIELD = '[[extract]]\nname = "a"\n[extract.fields]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[politeness]\ndelay = inf", "c.toml:2: politeness.delay = inf: must be a finite number"),
        ("[politeness]\ndelay = nan", "c.toml:2: politeness.delay = nan: must be a finite number"),
        ("[politeness]\ndelay = true", "c.toml:2: politeness.delay: must not be true or false"),
        ("[limits]\nmax_pages = true", "c.toml:2: limits.max_pages: must not be true or false"),
        ("[frontier]\nlease = 0.001", "c.toml:2: frontier.lease = 0.001: must be greater than or equal to 1"),
        ('[archive]\nupload = "s4://pages"', "c.toml:2: archive.upload: write it as s3://BUCKET/PREFIX"),
        ('[archive]\nupload = "s3://"', "c.toml:2: archive.upload: write it as s3://BUCKET/PREFIX"),
        ('[archive]\non_page = ["no_such:hook"]', "c.toml:2: archive.on_page: 'no_such:hook' cannot be imported"),
        ('[archive]\nsinks = ["no-such-sink"]', "c.toml:2: archive.sinks: 'no-such-sink': no installed package"),
        ('[frontier]\nscorer = "json:nothing"', "c.toml:2: frontier.scorer: 'json:nothing' cannot be imported"),
        ('[scope]\nkind = "domains"', 'c.toml:2: scope.kind: "domains" needs the list scope.domains'),
        ('[scope]\nkind = "domain"', "did you mean domains?"),
        ('[scope]\nexclude = ["["]', "c.toml:2: scope.exclude: not a regular expression: '['"),
        (
            '[scope]\nexclude = ["/b*"]',
            "c.toml:2: scope.exclude: '/b*' is found in every URL, so nothing would be fetched",
        ),
        ('[scope]\nexclude = ["*.pdf"]', "nothing to repeat at position 0; write `.*` for any characters"),
        ('[fetch]\ncontact = "a@b.test\\r\\nX: y"', "c.toml:2: fetch.contact: is sent in the User-Agent header"),
        ('[fetch]\nallow = ["10.0.0.0/99"]', "c.toml:2: fetch.allow: allowed network"),
        ('[fetch]\nallow = ["localhost:80"]', "the address of a host, or localhost"),
        ('[replica]\nredis = "http://u:secret@h"', "c.toml:2: replica.redis: the Redis URL cannot be used"),
        ('[replica]\nlisten = "127.0.0.1:99999"', "c.toml:2: replica.listen: '127.0.0.1:99999': 99999 is not a port"),
        pytest.param(f"[limits]\nmax_body = 1{'0' * 5_000}", "c.toml is not TOML: Exceeds the limit", id="digits"),
        pytest.param(f"a = {'[' * 2_000}", "c.toml is not TOML: maximum recursion depth", id="lists"),
        pytest.param(f"[scope]\nexclude = ['{'(' * 2_000}a{')' * 2_000}']", "not a regular expression: ", id="groups"),
        ("politeness = 3", "c.toml:1: politeness = 3: must be a table"),
        ("[fetch]\nports = 80", "c.toml:2: fetch.ports = 80: must be a list, such as [80]"),
        ('[fetch]\nports = ["80"]', 'fetch.ports.0 = "80": must be a valid integer: write it without quotes'),
        ('[extract]\nname = "a"', "c.toml:1: extract: must be a list of tables: write [[extract]]"),
        ("[frontier]\nmax_page = 3", "did you mean limits.max_pages?"),
        (
            FIELD + 'price = { css = "" }',
            "c.toml:1: extract.0: fields.price: needs a source: css, xpath, json_ld, "
            "microdata, rdfa, regex, page or value",
        ),
        (FIELD + "price = 3", "c.toml:4: extract.0.fields.price = 3: must be a table"),
        (FIELD + 'price = { css = "p:" }', "c.toml:4: extract.0.fields.price.css: not a CSS selector: "),
        (FIELD + 'price = { css = "p::text" }', "leave out `::text`: the value is the text of the element"),
        (FIELD + 'price = { css = "a::attr(href)" }', "beside the selector, such as attr = "),
        (FIELD + 'price = { regex = "(" }', "c.toml:4: extract.0.fields.price.regex: not a regular expression: "),
        (FIELD + 'price = { json_ld = "a..b" }', "c.toml:4: extract.0.fields.price.json_ld"),
        (FIELD + 'price = { css = "p", type = "decimale" }', "must be 'text', 'int', 'decimal'"),
        (FIELD + 'price = { css = "p", value = "3" }', "fields.price: has two sources, css and value: keep one"),
        (
            FIELD + 'price = { csss = "p" }',
            "c.toml:4: extract.0.fields.price.csss: there is no such setting; did you mean",
        ),
        ('[[extract]]\nname = "a/b"\nfields = { x = { css = "p" } }', "c.toml:2: extract.0.name"),
        ('[[extract]]\nname = "a"', "c.toml:1: extract.0.fields: is required"),
        ('[[extract]]\nname = "a"\nfields = {}', "c.toml:1: extract.0: `fields` needs at least one field"),
    ],
)
def test_a_setting_that_no_replica_could_use_is_refused(typed: Typed, tmp_path: Path, text: str, told: str) -> None:
    (line,) = check(typed, tmp_path, text)
    assert told in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("package", "text", "told"),
    [
        ("pyarrow", "[archive]\nparquet = true", "c.toml:2: archive.parquet: Parquet needs pyarrow: pip install"),
        ("obstore", '[archive]\nupload = "copies"', "c.toml:2: archive.upload: uploads need obstore: pip install"),
    ],
)
def test_a_missing_package_is_refused_before_anything_is_created(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, text: str, told: str
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    (line,) = check(typed, tmp_path, text)
    assert told in line
    (line,) = refused(typed("crawl", SITE, "-s", "c.toml"))
    assert told in line
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


def test_a_missing_hook_stops_each_start_before_anything_is_created(
    typed: Typed, tmp_path: Path, valkey: ValkeyProcess, crawl_name: str
) -> None:
    """`seed` accepts it: hooks are installed where replicas run."""
    (line,) = refused(typed("crawl", SITE, "--on-page", "no_such:hook"))
    assert line.startswith("--on-page: archive.on_page: 'no_such:hook' cannot be imported")
    assert not list(tmp_path.iterdir())
    where = ("--crawl", crawl_name, "--redis", valkey.url)
    hook = {"CRAWLER_ARCHIVE__ON_PAGE": '["no_such:hook"]'}
    assert typed("seed", SITE, *where, environment=hook).code == 0
    for replicas in ("1", "2"):
        (line,) = refused(typed("run", *where, "--replicas", replicas, environment=hook))
        assert "archive.on_page: 'no_such:hook' cannot be imported" in line


def test_seed_says_which_settings_each_replica_has_to_accept(
    typed: Typed, valkey: ValkeyProcess, crawl_name: str
) -> None:
    where = ("--crawl", crawl_name, "--redis", valkey.url)
    done = typed("seed", "http://127.0.0.1:18431/", *where, "--allow", "127.0.0.1", "--port", "18431")
    assert done.code == 0, done.err
    start = f"CRAWLER_REPLICA__ACCEPT=fetch.allow,fetch.ports crawler run {' '.join(where)}"
    assert start in " ".join(done.err.split())
    (line,) = refused(typed("run", *where))
    assert "CRAWLER_REPLICA__ACCEPT=fetch.allow,fetch.ports" in line


def test_each_bad_variable_is_named_with_what_to_write(typed: Typed, tmp_path: Path) -> None:
    environment = {
        "CRAWLER_FETCH__PORTS": "[80,21001",
        "CRAWLER_FETCH__TIMEOUT": "soon",
        "CRAWLER_POLITNESS__DELAY": "2",
        "CRAWLER_LIMITS__MAX_PAGE": "2",
        "CRAWLER_SCOPE": "seeds",
        "CRAWLER_EXTRACT": "6h",
        "CRAWLER_EXTRACT__NAME": "new.txt",
        "CRAWLER_PORT": "tcp://10.0.0.1:80",  # as Kubernetes sets it for a service `crawler`
    }
    tables = 'write a list of tables as JSON, such as CRAWLER_EXTRACT=\'[{"KEY": "VALUE"}]\''
    *lines, last = refused(typed("crawl", SITE, environment=environment))
    assert set(lines) == {
        "CRAWLER_FETCH__PORTS: fetch.ports: write a list as JSON, such as CRAWLER_FETCH__PORTS='[80, 21001]'",
        'CRAWLER_FETCH__TIMEOUT: fetch.timeout = "soon": must be a valid number',
        "CRAWLER_POLITNESS__DELAY: politness.delay: there is no such setting; did you mean CRAWLER_POLITENESS__DELAY?",
        "CRAWLER_LIMITS__MAX_PAGE: limits.max_page: there is no such setting; did you mean CRAWLER_LIMITS__MAX_PAGES?",
        'CRAWLER_SCOPE: scope: write a table as JSON, such as CRAWLER_SCOPE=\'{"KEY": "VALUE"}\'',
        f"CRAWLER_EXTRACT: extract: {tables}",
        f"CRAWLER_EXTRACT__NAME: extract.name: {tables}",
    }
    assert last.startswith("7 settings cannot be used")
    assert not list(tmp_path.iterdir())


def test_variables_with_a_list_or_a_whole_table_are_read(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("")
    environment = {"crawler_fetch__ports": "[80, 21001]", "CRAWLER_LIMITS": '{"max_pages": 7}'}
    shown = typed("config", "check", "c.toml", environment=environment).out
    assert "ports = [80, 21001]" in shown
    assert "max_pages = 7" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "--listen", "127.0.0.1:99999"), "--listen: replica.listen: '127.0.0.1:99999': 99999 is not a port"),
        (("run", "--listen", "localhost"), "--listen: replica.listen: 'localhost' is not an address"),
        (("status", "--redis", "http://h:6379"), "--redis: replica.redis: the Redis URL cannot be used; write it as"),
        (("crawl", SITE, "--delay", "inf"), "--delay: politeness.delay = inf: must be a finite number"),
        (("crawl", SITE, "--scope", "domain"), "--scope: scope.kind = \"domain\": must be 'seeds'"),
        (("crawl", SITE, "--scope", "hosts"), '--scope: scope.kind: "hosts" needs the list scope.domains'),
        (("crawl", SITE, "--host-map", "a=b"), "--host-map: fetch.host_map: host map 'a=b': expected PATTERN"),
    ],
)
def test_a_bad_option_is_named_as_it_was_typed(typed: Typed, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    (line,) = refused(typed(*words))
    assert line.startswith(told)
    assert not list(tmp_path.iterdir())


def test_problems_of_all_sources_are_reported_together(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[politeness]\ndelay = 'x'\ntries = 0\n")
    words = ("crawl", SITE, "-s", "c.toml", "--host-map", "x", "--delay", "2")
    lines = refused(typed(*words, environment={"CRAWLER_LIMITS__MAX_BODY": "0"}))
    assert [line.partition(": ")[0] for line in lines[:-1]] == [
        *("c.toml:2", "c.toml:3", "CRAWLER_LIMITS__MAX_BODY", "--host-map")
    ]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("CRAWLER_POLITENESS_DELAY", "CRAWLER_POLITENESS__DELAY"),
        ("CRAWLER_LIMITS_MAX_PAGES", "CRAWLER_LIMITS__MAX_PAGES"),
        ("CRAWLER_LIMIT_MAX_PAGES", "CRAWLER_LIMITS__MAX_PAGES"),
        ("CRAWLER_DELAY", "CRAWLER_POLITENESS__DELAY"),
        ("CRAWLER_MAX_PAGES", "CRAWLER_LIMITS__MAX_PAGES"),
        ("CRAWLER_REDIS", "CRAWLER_REPLICA__REDIS"),
        ("CRAWLER_PORTS", "CRAWLER_FETCH__PORTS"),
        ("CRAWLER_PORT", "CRAWLER_FETCH__PORTS"),
        ("CRAWLER_POLITNESS", "CRAWLER_POLITENESS"),
    ],
)
def test_a_variable_that_is_no_setting_is_reported_with_the_one_that_is(
    typed: Typed, tmp_path: Path, variable: str, meant: str
) -> None:
    for words in (("crawl", SITE), ("run",), ("status",)):
        (line,) = refused(typed(*words, environment={variable: "5"}))
        assert line == f"{variable}: there is no such setting; did you mean {meant}?"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_variable_without_a_similar_setting_is_reported(typed: Typed) -> None:
    (line,) = refused(typed("run", environment={"CRAWLER_COLOUR": "red"}))
    assert line == "CRAWLER_COLOUR: there is no such setting; `crawler config explain` lists all settings"


def test_variables_that_kubernetes_sets_for_services_are_no_settings(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("")
    url = "tcp://10.0.0.1:9410"
    services = {
        "CRAWLER_SERVICE_HOST": "10.0.0.1",
        "CRAWLER_SERVICE_PORT": "9410",
        "CRAWLER_SERVICE_PORT_METRICS": "9410",
        "CRAWLER_PORT": url,
        "CRAWLER_PORT_9410_TCP": url,
        "CRAWLER_PORT_9410_TCP_PROTO": "tcp",
        "CRAWLER_PORT_9410_TCP_PORT": "9410",
        "CRAWLER_PORT_9410_TCP_ADDR": "10.0.0.1",
        "CRAWLER_NEWS_SERVICE_HOST": "10.0.0.1",
        "CRAWLER_NEWS_PORT": "udp://10.0.0.1:53",
    }
    assert typed("config", "check", "c.toml", environment=services).code == 0
