"""Packs WARC files into one WACZ file (WACZ 1.1.1), which ReplayWeb.page shows in a browser and pywb imports.

A WACZ is a zip file: the WARC files, a compressed index of them, lists of pages, and a manifest with the SHA-256 of
each file. `py-wacz` holds the index and the pages in memory. Here, a process for each WARC file writes its sorted lines
of the index and its pages to files, which are then merged. WARC files with zstd, which WACZ does not know, are
compressed with gzip.

Everything is written in a scratch folder beside the target. The file gets its name when it is complete.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path

import msgspec

from crawler.errors import UserError, reason_of
from crawler.page import Page, TextForm
from crawler.parse.coding import is_html_page
from crawler.parse.structured import plain
from crawler.parse.text import content_of
from crawler.sinks.cdxj import read_index
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.export import in_processes
from crawler.sinks.files import is_open, remove_left_over, scratch_folder
from crawler.sinks.lines import Row, iso_time, lost_from, lost_lines
from crawler.sinks.reader import NoRow, Unread, complete_part, has_body, placed, read_rows, records_in, report

WACZ_VERSION = "1.1.1"
SUFFIX = ".wacz"

BLOCK_LINES = 1_024
"""Lines of the index that are compressed together, as py-wacz does. A reader decompresses one block for a URL."""

_STEP = 1 << 20
_BUFFER = 1 << 15
_ZIP64_SIZE = 1 << 31
"""From this size on, `zipfile` writes an extra field in the directory of the zip file. The entry itself must have one then
and only then: ReplayWeb.page takes the place of the data from the directory."""
_INDEX, _INDEX_OF_BLOCKS = "index.cdx.gz", "index.idx"
_SOFTWARE = "peercrawl"
_NO_NAME = re.compile(r"[^a-z0-9._-]+")


class Packed(msgspec.Struct, frozen=True):
    """What is in a WACZ file. `records`: lines of the index; `pages`: visits in the lists of pages; `left_open`: WARC files
    that were left out because they are open; `problems`: what could not be read of WARC files, or is missing in them."""

    file: Path
    warc_files: int
    records: int
    pages: int
    left_open: tuple[Path, ...]
    problems: dict[Path, str]


class _Resource(msgspec.Struct, frozen=True):
    """A file in the manifest (Data Package)."""

    name: str
    path: str
    hash: str
    bytes: int


class _PageLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page in a list. `text` is for the search of ReplayWeb.page."""

    id: str
    url: str
    ts: str
    title: str = ""
    text: str = ""


class _Scan(msgspec.Struct, frozen=True):
    """What a WARC file adds: paths of the stored file, its index, its seeds and other pages. `problems`: what is
    missing."""

    warc: Path
    name: str
    index: Path
    seeds: Path
    others: Path
    problems: str = ""


def write_wacz(
    files: Sequence[Path], target: Path, text: TextForm, processes: int, on_done: Callable[[Path], None]
) -> Packed:
    """Write the finished `files` to `target`, and call `on_done` with each. `text`: of pages, for search. Raises
    UserError."""
    finished = [path for path in files if not is_open(path)]
    left_open = tuple(path for path in files if is_open(path))
    if not finished:
        raise UserError(f"{left_open[0]} is open; if its replica was killed: crawler finish {left_open[0].parent}")
    _check_names(finished)
    if target.exists() and not _is_ours(target):
        raise UserError(f"{target} is there already, and no export has made it: name another file, with --out")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_left_over(target.parent)
        with scratch_folder(target.parent, ".wacz-") as folder:
            scans = in_processes(partial(_scan, folder, text), finished, processes, on_done)
            records, pages = _pack(scans, folder / target.name, text)
            (folder / target.name).rename(target)
    except OSError as error:
        raise UserError(f"{target}: {reason_of(error, target)}") from error
    problems = {path: scan.problems for path, scan in zip(finished, scans, strict=True) if scan.problems}
    return Packed(target, len(finished), records, pages, left_open, problems)


def _is_ours(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as packed, packed.open("datapackage.json") as manifest:
            return bool(msgspec.json.decode(manifest.read(_STEP << 6))["software"] == _SOFTWARE)
    except Exception:  # it may be anything
        return False


def _stored_name(path: Path) -> str:
    return (
        path.name.removesuffix(COMPRESSIONS["zstd"].suffix) + COMPRESSIONS["gzip"].suffix
        if _is_zstd(path)
        else path.name
    )


def _is_zstd(path: Path) -> bool:
    return path.name.endswith(COMPRESSIONS["zstd"].suffix)


def _check_names(files: Iterable[Path]) -> None:
    known: dict[str, Path] = {}
    for path in files:
        if (other := known.setdefault(_stored_name(path), path)) is not path:
            raise UserError(f"{other} and {path} have the same name: export them to two WACZ files, with --out")


# scanning


def _scan(folder: Path, text: TextForm, path: Path) -> _Scan:
    name = _stored_name(path)
    folder /= f"{name}.scan"
    folder.mkdir()
    warc = _with_gzip(path, folder / name) if _is_zstd(path) else path
    scan, unread = _Scan(warc, name, folder / "index", folder / "seeds", folder / "others"), Unread()

    def on_unread(url: str, error: Exception) -> None:
        if not isinstance(error, NoRow):  # such a record is packed all the same
            unread.add(url, error)

    settled = 0
    with scan.seeds.open("wb") as seeds, scan.others.open("wb") as others:
        for row in read_rows(warc, on_unread):
            settled += row.columns.get("outcome") is not None
            if _is_page(row.page):
                (others if row.columns.get("depth") else seeds).write(_page_line(row, text))
    with scan.index.open("wb") as index:
        index.writelines(sorted(read_index(warc, name)))
    problems = [str(unread) if unread.count else "", lost_from(path) or lost_lines(path, settled)]
    return msgspec.structs.replace(scan, problems="; ".join(filter(None, problems)))


def _with_gzip(path: Path, target: Path) -> Path:
    with complete_part(path) as part:
        part.check_end()
    with path.open("rb") as source, target.open("wb") as file:
        for _, start, length in placed(records_in(str(path)), path.stat().st_size, lambda record: True):
            record = COMPRESSIONS["zstd"].reader().decompress(os.pread(source.fileno(), length, start))
            file.write(COMPRESSIONS["gzip"].compress(record))
    return target


def _is_page(page: Page) -> bool:
    """Whether somebody may want to open it: HTML that was found. A 304 response stands for a page that is listed."""
    assert page.exchange is not None
    return 200 <= page.exchange.status < 300 and is_html_page(page)


def _page_line(row: Row, text: TextForm) -> bytes:
    page = row.page
    assert page.exchange is not None
    ts = iso_time(page.exchange.started_at)
    name = blake2b(f"{ts} {page.url}".encode(), digest_size=8).hexdigest()
    url = page.url.partition("#")[0]
    line = _PageLine(name, url, ts, plain(page.title), plain(_text(page, text)) if has_body(row) else "")
    return msgspec.json.encode(line) + b"\n"


def _text(page: Page, form: TextForm) -> str:
    try:
        content = content_of(page, form, structured=False)
    except Exception as error:  # pages contain what sites sent
        report(page.url, error)
        return ""
    return content.text or content.markdown or ""


# packing


def _pack(scans: Sequence[_Scan], target: Path, text: TextForm) -> tuple[int, int]:
    """Write the file at `target`. Returns the number of records and of pages."""
    with target.open("xb") as file:
        with zipfile.ZipFile(file, "w") as packed:
            package = _Package(packed)
            for scan in scans:
                package.add(f"archive/{scan.name}", scan.warc.stat().st_size, _blocks(scan.warc))
            records = _add_index(package, scans, target.parent)
            pages = _add_pages(package, scans, text != "off")
            package.close(target.stem)
        file.flush()
        os.fsync(file.fileno())
    return records, pages


class _Package:
    def __init__(self, packed: zipfile.ZipFile) -> None:
        self._packed = packed
        self._resources: list[_Resource] = []
        self._now = time.time()

    def add(self, path: str, size: int, blocks: Iterable[bytes]) -> None:
        """Write the file `path` of `size` bytes (WACZ 1.1.1, "Zip Compression": nothing is compressed twice)."""
        digest = hashlib.sha256()
        with self._packed.open(self._entry(path), "w", force_zip64=size >= _ZIP64_SIZE) as entry:
            for block in blocks:
                digest.update(block)
                entry.write(block)
        self._resources.append(_Resource(self._name(path), path, f"sha256:{digest.hexdigest()}", size))

    def close(self, title: str) -> None:
        """Write the manifest and its digest. Nothing is added afterwards."""
        manifest = {
            "profile": "data-package",
            "wacz_version": WACZ_VERSION,
            "title": title,
            "software": _SOFTWARE,
            "created": f"{iso_time(self._now)[:19]}Z",  # py-wacz reads whole seconds
            "resources": self._resources,
        }
        written = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        digest = {"path": "datapackage.json", "hash": f"sha256:{hashlib.sha256(written).hexdigest()}"}
        self._packed.writestr(self._entry("datapackage.json"), written)
        self._packed.writestr(self._entry("datapackage-digest.json"), msgspec.json.encode(digest))

    def _entry(self, path: str) -> zipfile.ZipInfo:
        entry = zipfile.ZipInfo(path, time.gmtime(self._now)[:6])
        entry.external_attr = 0o644 << 16
        is_stored = path.startswith("archive/") or path.endswith(".gz")
        entry.compress_type = zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED
        return entry

    def _name(self, path: str) -> str:
        """A name for the manifest, which has only lower case letters, digits and `.-_`, and each once (Data Package)."""
        name = _NO_NAME.sub("-", path.rpartition("/")[2].lower())
        return f"{len(self._resources)}-{name}" if any(one.name == name for one in self._resources) else name


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_STEP):
            yield block


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of the file at `path`, which is not kept open: there may be thousands."""
    offset = 0
    while True:
        with path.open("rb") as file:
            file.seek(offset)
            lines = file.readlines(_BUFFER)
            offset = file.tell()
        if not lines:
            return
        yield from lines


def _add_index(package: _Package, scans: Sequence[_Scan], folder: Path) -> int:
    """Add the compressed index (ZipNum) and the index of its blocks. Returns the number of records."""
    index, blocks = folder / _INDEX, folder / _INDEX_OF_BLOCKS
    records = _write_index(heapq.merge(*(_lines(scan.index) for scan in scans)), index, blocks)
    for path in (index, blocks):
        package.add(f"indexes/{path.name}", path.stat().st_size, _blocks(path))
    return records


def _write_index(lines: Iterable[bytes], index: Path, index_of_blocks: Path) -> int:
    records = offset = 0
    with index.open("wb") as file, index_of_blocks.open("wb") as places:
        places.write(b'!meta 0 {"format": "cdxj-gzip-1.0", "filename": "%b"}\n' % index.name.encode())
        lines = iter(lines)
        while block := list(islice(lines, BLOCK_LINES)):
            data = COMPRESSIONS["gzip"].compress(b"".join(block))
            place = {"offset": offset, "length": len(data), "digest": f"sha256:{hashlib.sha256(data).hexdigest()}"}
            places.write(b" ".join([*block[0].split(b" ", 2)[:2], msgspec.json.encode(place) + b"\n"]))
            offset += file.write(data)
            records += len(block)
    return records


def _add_pages(package: _Package, scans: Sequence[_Scan], has_text: bool) -> int:
    """Add the lists of pages; viewers show the first one. Returns the number of pages."""
    seeds, others = [scan.seeds for scan in scans], [scan.others for scan in scans]
    if not any(path.stat().st_size for path in seeds):
        seeds, others = others, []
    for name, title, paths in (("pages", "Pages", seeds), ("extraPages", "Other pages", others)):
        size = sum(path.stat().st_size for path in paths)
        if size or name == "pages":
            head = {"format": "json-pages-1.0", "id": name, "title": title, **({"hasText": True} if has_text else {})}
            first = msgspec.json.encode(head) + b"\n"
            blocks = chain([first], chain.from_iterable(map(_blocks, paths)))
            package.add(f"pages/{name}.jsonl", len(first) + size, blocks)
    return sum(block.count(b"\n") for path in (*seeds, *others) for block in _blocks(path))
