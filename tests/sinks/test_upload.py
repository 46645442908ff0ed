"""Finished files in object stores: real servers, read back with their vendors' own clients, and a folder.

S3 is moto's server. Google's XML API, which the crawler uses for `gs://`, is that of S3 for what is asked of it, so the
same server answers; none of the emulators of Google's store has that part. Azure is Azurite, which needs Node.js:

    pip install azure-storage-blob && npm install --prefix /tmp/azurite azurite
    AZURITE=/tmp/azurite/node_modules/.bin/azurite-blob pytest tests/sinks/test_upload.py
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest
from moto.server import ThreadedMotoServer

from crawler import Crawl, Handle, ParsedPage, Router
from crawler.errors import UserError
from crawler.sinks.upload import Depot, PostProcessor, UploadFailed
from tests.e2e.harness import wait_until
from tests.sinks import readers
from tests.sinks.values import archiving, exchange, page, settings
from tests.site import Site

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's account, the same everywhere: no secret."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


AZURITE = os.environ.get("AZURITE") or shutil.which("azurite-blob")

Contents = Callable[[], dict[str, bytes]]
"""What is below `news/` in the store, by names."""

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a server on loopback that speaks S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    url = f"http://{host}:{port}"
    yield url
    with urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST"), timeout=20):
        pass  # its memory is the process's, not the server's
    server.stop()


@pytest.fixture
def bucket(server: str) -> Iterator[Contents]:
    """The bucket `crawls` on it."""
    client = boto3.client("s3", endpoint_url=server, region_name="us-east-1")
    client.create_bucket(Bucket="crawls")

    def contents() -> dict[str, bytes]:
        listed = client.list_objects_v2(Bucket="crawls", Prefix="news/")
        keys = [found["Key"] for found in listed.get("Contents", ())]
        return {key.removeprefix("news/"): client.get_object(Bucket="crawls", Key=key)["Body"].read() for key in keys}

    yield contents
    client.close()


@pytest.fixture
def s3(server: str, bucket: Contents, monkeypatch: pytest.MonkeyPatch) -> Contents:
    """Amazon's environment variables lead to the server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    return bucket


@pytest.fixture
def gs(server: str, bucket: Contents, monkeypatch: pytest.MonkeyPatch) -> Contents:
    """Google's do."""
    monkeypatch.setenv("GOOGLE_BASE_URL", server)
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "token")
    return bucket


@pytest.fixture
def az(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Contents]:
    """Azurite, with the container `crawls`; Azure's environment variables lead there."""
    if not AZURITE:
        pytest.skip("needs Azurite; see the head of this file")
    from azure.storage.blob import ContainerClient

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    words = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck"]
    folder = tmp_path_factory.mktemp("azurite")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [AZURITE, *words, "--silent", "--disableTelemetry"], cwd=folder, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
    for name, value in (("ACCOUNT_NAME", AZURE_ACCOUNT), ("ACCOUNT_KEY", AZURE_KEY), ("ENDPOINT", url)):
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    credential = {"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY}
    try:
        wait_until(lambda: _answers(url), "Azurite")
        with ContainerClient(url, "crawls", credential=credential) as client:
            client.create_container()
            yield lambda: {
                name.removeprefix("news/"): client.download_blob(name).readall()
                for name in client.list_blob_names(name_starts_with="news/")
            }
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True  # it knows no anonymous visitors, but it is there
    except OSError:
        return False


async def uploaded(folder: Path, **more: object) -> None:
    async with archiving(folder, **more) as archive:
        await archive.write([page(exchange("a", b"a"))])


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
async def test_finished_files_are_copied_and_then_removed_here(
    tmp_path: Path, scheme: str, request: pytest.FixtureRequest
) -> None:
    contents: Contents = request.getfixturevalue(scheme)
    await uploaded(tmp_path, upload=f"{scheme}://crawls/news", keep_local=False, parquet=True)
    assert readers.files(tmp_path) == []
    stored = contents()
    assert [name.rpartition("-00001")[2] for name in sorted(stored)] == [
        ".cdxj",
        ".pages.jsonl",
        ".pages.parquet",
        ".warc.gz",
    ]
    for name, data in stored.items():
        (tmp_path / name).write_bytes(data)
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_large_file_goes_in_parts_and_is_read_back_whole(
    tmp_path: Path, scheme: str, request: pytest.FixtureRequest
) -> None:
    contents: Contents = request.getfixturevalue(scheme)
    file = tmp_path / "large.warc.gz"
    file.write_bytes(random.Random(1).randbytes(30_000_000))
    depot = Depot.at(f"{scheme}://crawls/news")
    assert not depot.has(file)
    depot.store(file)
    assert depot.has(file)
    assert contents() == {"large.warc.gz": file.read_bytes()}


@pytest.mark.parametrize("scheme", ["s3", "az"])
async def test_a_store_that_cannot_be_written_costs_no_file(
    tmp_path: Path, scheme: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(scheme)
    await uploaded(tmp_path, upload=f"{scheme}://no-such-bucket/news", keep_local=False)
    assert len(readers.files(tmp_path)) == 3


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amazon's environment variables lead to a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        endpoint = f"http://127.0.0.1:{probe.getsockname()[1]}"
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}).items():
        monkeypatch.setenv(name, value)


def told(caplog: pytest.LogCaptureFixture, event: str) -> dict[str, object]:
    """The fields of the last line about `event`."""
    fields: dict[str, object] = [one for one in caplog.records if one.message == event][-1].__dict__["fields"]
    return fields


@pytest.mark.usefixtures("unreachable")
async def test_a_store_that_cannot_be_reached_is_reported_at_the_start_and_holds_up_no_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The files are left for the next start."""
    async with archiving(tmp_path, upload="s3://crawls/news") as archive:
        while "upload_unreachable" not in caplog.messages:  # noqa: ASYNC110 - a thread of the archive logs it
            await asyncio.sleep(0.01)
        await archive.write([page(exchange("a", b"a"))])
    assert [text for text in caplog.messages if text.startswith("upload")] == [
        "upload_unreachable",
        "upload_failed",  # one file is tried, within seconds
        "uploads_left",
    ]
    left = told(caplog, "uploads_left")
    assert (left["files"], len(readers.files(tmp_path))) == (3, 3)
    assert f"`crawler finish {tmp_path} --crawl {settings(tmp_path).crawl}`" in str(left["result"])
    reason = str(told(caplog, "upload_failed")["error"])
    assert "to s3://crawls/news: " in reason
    assert "\n" not in reason


@pytest.mark.usefixtures("unreachable")
async def test_the_end_names_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("crawler.sinks.upload.TOLD_AFTER_S", 0.0)
    await uploaded(tmp_path, upload="s3://crawls/news")
    assert told(caplog, "finishing_files")["waits_for"] == "s3://crawls/news"


async def test_a_command_tries_to_upload_each_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out, depot = tmp_path / "out", tmp_path / "depot"
    await uploaded(out)
    for path in readers.files(out):
        (depot / path.name).mkdir(parents=True)  # in the way of the copy
    post_processor = PostProcessor(settings(out, upload=str(depot)))
    post_processor.catch_up()
    await post_processor.stop(hastily=False)
    assert caplog.messages.count("upload_failed") == told(caplog, "uploads_left")["files"] == 3


async def test_a_failure_before_the_end_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out, depot = tmp_path / "out", tmp_path / "depot"
    await uploaded(out)
    depot.mkdir()
    (depot / readers.files(out)[0].name).mkdir()  # in the way of the copy
    async with archiving(out, replica="next", upload=str(depot)):
        await asyncio.to_thread(wait_until, lambda: len(readers.files(depot)) == 3, "the copies of the others")
    assert told(caplog, "uploads_left")["files"] == 1


async def test_what_a_store_lacks_is_copied_at_the_next_start(tmp_path: Path) -> None:
    out, depot = tmp_path / "out", tmp_path / "depot"
    await uploaded(out)
    await uploaded(out, replica="next", upload=f"file://{depot}")
    here, there = ({path.name: path.read_bytes() for path in readers.files(folder)} for folder in (out, depot))
    assert len(here) == 6
    assert here == there


def test_a_copy_that_differs_is_not_trusted(tmp_path: Path) -> None:
    """Same name, same size, other bytes: what a broken store would give back."""
    file = tmp_path / "a.warc.gz"
    file.write_bytes(b"right")
    (tmp_path / "depot").mkdir()
    (tmp_path / "depot" / "a.warc.gz").write_bytes(b"wrong")
    with pytest.raises(UploadFailed, match="is not what was sent"):
        Depot.at(str(tmp_path / "depot")).store(file)


@pytest.mark.parametrize("url", ["ftp://a/b", "s3://", "gs:/bucket", "s3:bucket/prefix", "file:/tmp/out"])
def test_urls_that_make_no_sense_are_the_operators_to_mend(url: str) -> None:
    with pytest.raises(UserError, match=r"archive\.upload"):
        Depot.at(url)


def test_a_program_exports_items_in_place_of_earlier_ones(s3: Contents, tmp_path: Path) -> None:
    router = Router()

    @router.handler()
    def found(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("pages", {"url": page.url})

    with Site(lambda request: "a page" if request.path == "/" else None) as site:
        crawl = Crawl("http://a.test/", handlers=router, settings=site.settings(tmp_path))
        crawl.run()
    assert crawl.export("pages", tmp_path / "pages.jsonl") == 1
    whole = (tmp_path / "pages.jsonl").read_bytes()
    (tmp_path / "pages.jsonl").write_bytes(whole[::-1])  # of the same size
    Depot.at("s3://crawls/news/deep").store(tmp_path / "pages.jsonl")
    for name in ("pages.jsonl", "pages.parquet"):
        assert crawl.export("pages", f"s3://crawls/news/deep/{name}") == 1
    assert s3()["deep/pages.jsonl"] == whole
    assert s3()["deep/pages.parquet"].startswith(b"PAR1")
    for place, said in (("nowhere://bucket", "target: 'nowhere://bucket'"), ("s3://no-bucket", "to s3://no-bucket")):
        with pytest.raises(UserError, match=said):
            crawl.export("pages", f"{place}/pages.csv")
    with pytest.raises(UserError, match=r"no item of a data set 'pages' in .*out$"):
        Crawl(settings=site.settings(tmp_path), name="other").export("pages", "pages.csv")
