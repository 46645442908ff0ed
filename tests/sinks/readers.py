"""Reads archives with third-party readers."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import msgspec
from fastwarc.warc import ArchiveIterator
from warcio.archiveiterator import ArchiveIterator as WarcioIterator  # type: ignore[import-untyped]
from warcio.checker import Checker  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Record:
    """A record, as a reader returned it. `headers`: the WARC fields; `http`: the HTTP fields, in order."""

    type: str
    url: str
    headers: dict[str, str]
    http: list[tuple[str, str]]
    payload: bytes
    offset: int = 0


def warc_files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.warc.gz"), *folder.glob("*.warc.zst")])


def files(folder: Path, suffix: str = "") -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(suffix))


def check(path: Path) -> None:
    """Fail if `warcio check` has something to say, or if FastWARC finds a digest wrong or a record missing. warcio does not
    read zstd."""
    if not path.name.endswith(".zst"):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = Checker(SimpleNamespace(inputs=[str(path)], verbose=False)).process_all()
        assert (status, said.getvalue()) == (0, "")
    every = 0
    for record in ArchiveIterator(str(path), parse_http=False):
        every += 1
        assert "WARC-Block-Digest" not in record.headers
    for record in ArchiveIterator(str(path)):
        every -= 1
        # A revisit record has the digest of a payload that stands elsewhere.
        if record.headers.get("WARC-Type") == "response":
            assert record.verify_payload_digest(), record.headers.to_dict()
    assert every == 0


def by_fastwarc(path: Path) -> list[Record]:
    found = []
    for record in ArchiveIterator(str(path)):
        kind = record.headers.get("WARC-Type") or ""
        http = list(record.http_headers.to_tuples()) if record.is_http_parsed else []
        url = record.headers.get("WARC-Target-URI") or ""
        headers = record.headers.to_dict()
        found.append(Record(kind, url, headers, http, record.reader.read(), record.stream_pos))
    return found


def by_warcio(path: Path) -> list[Record]:
    found = []
    with path.open("rb") as stream:
        for record in WarcioIterator(stream):
            http = list(record.http_headers.headers) if record.http_headers else []
            headers = dict(record.rec_headers.headers)
            found.append(
                Record(record.rec_type, headers.get("WARC-Target-URI", ""), headers, http, record.raw_stream.read())
            )
    return found


def lines(folder: Path) -> list[dict[str, object]]:
    """All JSON lines of the finished files in `folder`."""
    decode = msgspec.json.Decoder().decode_lines
    return [line for path in sorted(folder.glob("*.jsonl")) for line in decode(path.read_bytes())]
