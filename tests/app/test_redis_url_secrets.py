"""No secret in a Redis URL appears in what any command prints, or in a log or page, whichever part of the URL it is in."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from tests.e2e.harness import Running, wait_until
from tests.frontier.test_servers import debian_redis
from tests.ports import free_port
from tests.typed import Typed
from tests.valkey import ValkeyProcess

PASSWORD, OF_SENTINEL, OF_KEY = "s3cr3t-main", "s3cr3t/watch", "s3cr3t+key"

COMMANDS = (
    ("seed", "http://a.invalid/", "-s", "crawler.toml"),
    *(("status",), ("status", "--json"), ("top", "--once"), ("domains",), ("shards",), ("types",)),
    *(("why", "http://a.invalid/"), ("pause",), ("status",), ("top", "--once"), ("resume",), ("dead", "list")),
    *(("block", "a.invalid"), ("unblock", "a.invalid"), ("delay", "a.invalid", "2"), ("retry", "a.invalid")),
    *(("refresh", "--all"), ("reshard", "--shards", "32"), ("repair",), ("doctor",), ("audit", ".")),
    *(("config", "show"), ("config", "explain", "replica.redis"), ("config", "apply", "crawler.toml")),
    *(("forget", "a.invalid", ".", "--dry-run"), ("forget", "a.invalid", "none"), ("stop",), ("status",)),
    *(("run", "-q"), ("crawl", "-q"), ("seed", "http://b.invalid/"), ("resume",), ("status", "--crawl", "other")),
    *(("run", "--crawl", "other"), ("repair", "--crawl", "other"), ("crawl", "--crawl", "other")),
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ValkeyProcess, dict[str, str]]]:
    """A server, and URLs of it by what is special about them. Each secret is one that the URL needs."""
    folder = tmp_path_factory.mktemp("secrets")
    server = debian_redis()  # the bundled Valkey has no TLS
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    locked = serialization.BestAvailableEncryption(OF_KEY.encode())
    forms = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    (folder / "key.pem").write_bytes(key.private_bytes(*forms))
    port, tls, sentinel = (free_port() for _ in range(3))
    options = ("--requirepass", PASSWORD, "--port", str(port), "--tls-port", str(tls), "--tls-auth-clients", "yes")
    for name, file in (("cert-file", "server.pem"), ("key-file", "server.pem"), ("ca-cert-file", "ca.pem")):
        options += (f"--tls-{name}", str(folder / file))
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {sentinel}\nbind 127.0.0.1\ndir {folder}\nrequirepass {OF_SENTINEL}\n"
        f"sentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main {PASSWORD}\n"
    )
    files = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "server.pem", "ssl_keyfile": "key.pem"}
    by_tls = "&".join(f"{name}={folder / file}" for name, file in files.items())
    with ValkeyProcess(folder, persistent=False, binary=server, options=options) as main:
        with (folder / "sentinel.log").open("wb") as log:
            watching = subprocess.Popen([str(server), str(config), "--sentinel"], stdout=log, stderr=log)
        try:
            wait_until(lambda: b"monitor" in (folder / "sentinel.log").read_bytes(), "the Sentinel to start")
            yield (
                main,
                {
                    "user": f"redis://default:{PASSWORD}@127.0.0.1:{port}/0",
                    "option": f"redis://127.0.0.1:{port}?client_name=c&password={PASSWORD}&username=default",
                    "encoded": f"redis://127.0.0.1:{port}?pass%77ord={PASSWORD}",
                    "socket": f"unix://{main.socket}?password={PASSWORD}",
                    "sentinel": f"redis+sentinel://:{PASSWORD}@127.0.0.1:{sentinel}/main/0?sentinel_password={quote(OF_SENTINEL)}",
                    "key": f"rediss://:{PASSWORD}@127.0.0.1:{tls}?{by_tls}&ssl_password={quote(OF_KEY)}",
                    "mistyped": f"redis://:{PASSWORD}@127.0.0.1:{port}?pasword={PASSWORD}-2&db=0",
                    "wrong": f"redis://127.0.0.1:{port}?password={PASSWORD}-2&db=0",
                    "wrong key": f"rediss://:{PASSWORD}@127.0.0.1:{tls}?{by_tls}&ssl_password={PASSWORD}-2",
                    "away": f"redis+sentinel://:{PASSWORD}@127.0.0.1:{free_port()}/main?sentinel_password={PASSWORD}-2",
                },
            )
        finally:
            watching.kill()
            watching.wait()


@pytest.fixture
def urls(servers: tuple[ValkeyProcess, dict[str, str]]) -> dict[str, str]:
    return servers[1]


@pytest.fixture
def main(servers: tuple[ValkeyProcess, dict[str, str]]) -> ValkeyProcess:
    return servers[0]


@pytest.mark.parametrize(
    "form",
    [
        "user",
        "key",
        *(pytest.param(form, marks=pytest.mark.long) for form in ("option", "encoded", "socket", "sentinel")),
    ],
)
def test_no_command_prints_it(urls: dict[str, str], form: str, typed: Typed, tmp_path: Path, crawl_name: str) -> None:
    (tmp_path / "crawler.toml").write_text("")
    (tmp_path / "none").mkdir()
    codes: dict[tuple[str, ...], int] = {}
    for words in COMMANDS:
        options, environment = ["--crawl", crawl_name], {}
        if "--crawl" in words or words[0] in ("audit", "doctor") or words[:2] == ("config", "explain"):
            options = []
        if words[0] == "audit" or words[:2] == ("config", "explain"):
            environment["CRAWLER_REPLICA__REDIS"] = urls[form]
        else:
            options += ["--redis", urls[form]]
        done = typed(*words, *options, environment=environment)
        codes[words] = done.code
        assert "s3cr3t" not in unquote(done.out + done.err), (words, done.out + done.err)
    assert codes[COMMANDS[0]] == codes["status",] == 0, codes
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"s3cr3t" in file.read_bytes()]


@pytest.mark.parametrize("form", ["mistyped", "wrong", "wrong key", "away"])
def test_no_error_has_it(urls: dict[str, str], form: str, typed: Typed) -> None:
    for words in (("seed", "http://a.invalid/"), ("status",), ("doctor",), ("repair",), ("reshard", "--shards", "8")):
        done = typed(*words, "--redis", urls[form])
        assert done.code != 0
        assert "s3cr3t" not in unquote(done.out + done.err), (words, done.out + done.err)


PAGES = ("/", "/snapshot", "/sd", "/why?url=http://a.test/", "/domain?name=a.test", "/readyz", "/healthz", "/metrics")
SHOWN = (("status",), ("why", "http://a.test/"), ("crawl", "-q"), ("config", "check", "crawler.toml"), ("doctor",))


@pytest.mark.e2e
@pytest.mark.parametrize("form", ["user", "option", "socket"])
def test_no_log_or_page_of_a_replica_has_it_whether_redis_answers_or_not(
    urls: dict[str, str], main: ValkeyProcess, form: str, tmp_path: Path, typed: Typed, crawl_name: str
) -> None:
    environment = {"CRAWLER_REPLICA__REDIS": urls[form], "CRAWLER_REPLICA__INTERVAL": "0.5"}
    (tmp_path / "crawler.toml").write_text("")
    seeded = typed("seed", "http://a.invalid/", "--crawl", crawl_name, environment=environment)
    replica = Running([sys.executable, "-m", "crawler", "run", "--crawl", crawl_name], tmp_path, "run", environment)

    def shown() -> list[str]:
        done = [typed(*words, environment=environment) for words in SHOWN]
        return [text for one in done for text in (one.out, one.err)] + [page(found[1], path) for path in PAGES]

    try:
        found = wait_until(lambda: re.search(r"replica_started .*address=(\S+)", replica.err), "a replica to start")
        texts = [seeded.out, *shown()]
        main.kill()
        wait_until(lambda: "redis_away" in replica.err, "the replica to notice")
        texts += shown()
    finally:
        replica.kill()
        if not main.socket.exists():
            main.start()
    assert seeded.code == 0
    assert sum("cannot serve now" in text for text in texts) >= 4
    assert [text for text in (*texts, replica.out, replica.err) if "s3cr3t" in text] == []


def page(address: str, path: str) -> str:
    """The page, also of an error."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
