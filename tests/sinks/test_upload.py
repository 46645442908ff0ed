"""Finished files in object stores: a real server that speaks S3, and a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest
from moto.server import ThreadedMotoServer

from crawler.errors import UserError
from crawler.sinks import Archive
from crawler.sinks.upload import Depot, UploadFailed
from tests.sinks import readers
from tests.sinks.values import exchange, page, settings

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """A client of a server on loopback with the bucket `crawls`; the environment leads there."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
    client.create_bucket(Bucket="crawls")
    yield client
    client.close()
    server.stop()


async def archived(folder: Path, **more: object) -> None:
    archive = Archive(settings(folder, **more))
    await archive.start()
    await archive.write([page(exchange("a", b"a"))])
    await archive.stop()


def contents(client: object, prefix: str) -> dict[str, bytes]:
    listed = client.list_objects_v2(Bucket="crawls", Prefix=prefix)  # type: ignore[attr-defined]
    get = client.get_object  # type: ignore[attr-defined]
    keys = [found["Key"] for found in listed.get("Contents", ())]
    return {key.removeprefix(prefix): get(Bucket="crawls", Key=key)["Body"].read() for key in keys}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
async def test_finished_files_are_copied_and_then_removed_here(tmp_path: Path, s3: object) -> None:
    await archived(tmp_path, upload="s3://crawls/news", keep_local=False, parquet=True)
    assert readers.files(tmp_path) == []
    stored = contents(s3, "news/")
    assert [name.partition("00001")[2] for name in sorted(stored)] == [
        ".cdxj",
        ".pages.jsonl",
        ".pages.parquet",
        ".warc.gz",
    ]
    for name, octets in stored.items():
        (tmp_path / name).write_bytes(octets)
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
async def test_a_store_that_cannot_be_written_costs_no_file(tmp_path: Path, s3: object) -> None:
    await archived(tmp_path, upload="s3://no-such-bucket/news", keep_local=False)
    assert len(readers.files(tmp_path)) == 3


async def test_what_a_store_lacks_is_copied_at_the_next_start(tmp_path: Path) -> None:
    out, depot = tmp_path / "out", tmp_path / "depot"
    await archived(out)
    await archived(out, replica="next", upload=f"file://{depot}")
    here, there = ({path.name: path.read_bytes() for path in readers.files(folder)} for folder in (out, depot))
    assert len(here) == 6
    assert here == there


def test_a_copy_that_differs_is_not_trusted(tmp_path: Path) -> None:
    """Same name, same size, other octets: what a broken store would give back."""
    file = tmp_path / "a.warc.gz"
    file.write_bytes(b"right")
    (tmp_path / "depot").mkdir()
    (tmp_path / "depot" / "a.warc.gz").write_bytes(b"wrong")
    with pytest.raises(UploadFailed, match="is not what was sent"):
        Depot.at(str(tmp_path / "depot")).store(file)


@pytest.mark.parametrize("url", ["ftp://a/b", "s3://"])
def test_urls_that_make_no_sense_are_the_operators_to_mend(url: str) -> None:
    with pytest.raises(UserError, match=r"archive\.upload"):
        Depot.at(url)
