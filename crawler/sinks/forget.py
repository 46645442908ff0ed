"""Removes a domain from the files of an output folder, by rewriting those that have something of it (`crawler forget`).

What is removed: the records and JSON lines of its URLs, and its URLs where this crawler has stored them with other
pages (the lists of links and licences, `via`, `canonical`, `near_of`, `tdm_policy`, and the same in metadata records).
What other sites sent stays as they sent it. A revisit record that refers to a body of the domain gets the body itself;
this is done in all volumes first, while the records with the bodies are there.

The files of a volume are replaced all together or not at all. The new ones are written beside the old ones, with the
suffix `.peercrawl.forget`. Then a file with the suffix `.peercrawl.forget-commit` lists them, and from that moment on
they count: if the process is killed later, the next call gives them their names. Files that cannot be rewritten are found
before anything is changed.

The file `forgotten-domains.txt` has the mark of each domain that was forgotten, its SHA-1. `crawler audit` reads it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from fastwarc.warc import WarcRecord, WarcRecordType

from crawler.errors import UserError
from crawler.http_head import HEAD_END
from crawler.sinks.cdxj import index_path, read_index
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.files import LINES, OPEN_SUFFIX, PARQUET, remove_left_over, sync_folder, volume_of, whole_file
from crawler.sinks.lines import Place
from crawler.sinks.parquet import require_pyarrow, write_parquet
from crawler.sinks.reader import BrokenFraming, complete_part, compression_of, placed, records_in, target_of
from frontier.domains import forgotten_mark, is_of
from frontier.entries import Entry

MARKS = "forgotten-domains.txt"
SCRATCH, COMMIT = ".peercrawl.forget", ".peercrawl.forget-commit"

URL_FIELDS = ("canonical", "via", "near_of", "tdm_policy", "links", "licenses", "followed")
"""The fields of a JSON line that hold a URL, a list of them, or lists by their tags."""

_METADATA_URLS = ("outlink", "via", "tdm-policy", "licenses")
"""The lines of a metadata record that hold URLs."""

_MARK = re.compile(r"([0-9a-f]{40}) (\S+)")

_encoder = msgspec.json.Encoder()
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Rewritten(msgspec.Struct):
    """What was removed from the files of a folder. `links`: URLs in lists of other pages, and in other fields of them;
    `bodies`: records of other sites that have got a body that they shared with the domain; `bodies_missing`: those whose
    body is not in the folder."""

    folder: str
    files: list[str] = []
    removed_files: list[str] = []
    records: int = 0
    lines: int = 0
    links: int = 0
    bodies: int = 0
    bodies_missing: int = 0


Before = Callable[[list[str], list[str]], None]
"""Is called with the URLs of the domain in a volume, and the names of the files that are replaced or removed."""


class _Volume(msgspec.Struct):
    """The finished files of a volume. `is_dependent`: whether a record of another site needs a body of the domain."""

    warcs: list[Path]
    lines: Path
    parquet: Path
    is_dependent: bool = False


class _Commit(msgspec.Struct):
    """The files of a volume: those with a new content, and those to remove."""

    replaced: list[str] = []
    removed: list[str] = []


class _Changes(msgspec.Struct):
    """What changes in a volume. `urls`: of the domain; `places`: of the records that stay, by file and old offset."""

    urls: list[str] = []
    places: dict[tuple[str, int], Place] = {}
    commit: _Commit = msgspec.field(default_factory=_Commit)


class DomainRewriter:
    """Rewrites the finished files in `folder` without `domain`. All methods raise UserError and OSError."""

    def __init__(self, folder: Path, domain: str) -> None:
        self._folder = folder
        self._domain = domain
        self._urls = DomainUrls(domain)
        self._originals: dict[str, Place] = {}  # of the response records of the domain, by their IDs
        self._volumes: dict[str, _Volume] = {}
        self._removes = self._is_dry = self._is_prepared = self._is_stopped = False
        self.result = Rewritten(str(folder))

    def check(self) -> None:
        """Raises UserError if a replica writes in the folder, or left files open."""
        if any(path.name.endswith(OPEN_SUFFIX) for path in self._folder.iterdir()):
            raise UserError(
                f"{self._folder} has files that are not finished, of a running replica or of one that was killed: stop the "
                f"replicas, finish their files with `crawler finish {self._folder}`, and repeat the command"
            )
        if any(self._folder.glob("*" + PARQUET)):
            require_pyarrow(f"rewriting the Parquet files in {self._folder}")

    @contextlib.contextmanager
    def prepared(self, is_dry: bool = False) -> Iterator[None]:
        """Lock the folder, complete what an earlier call has begun, and read all files, so that `rewrite` need not stop for
        one. `is_dry`: only count, and change nothing. Raises UserError, which names the files that cannot be rewritten."""
        self._is_dry = is_dry
        with self._locked():
            if not is_dry:
                complete(self._folder)
            self._prepare()
            self._is_prepared = True
            try:
                yield
            finally:
                self._is_prepared = False

    def rewrite(self, before: Before = lambda urls, names: None, is_dry: bool = False) -> None:
        """Rewrite all volumes. `before` is called before the files of a volume are replaced."""
        if not self._is_prepared:
            with self.prepared(is_dry):
                self.rewrite(before)
            return
        if not self._is_dry:
            add_mark(self._folder, self._domain)
            for name, volume in self._volumes.items():
                if volume.is_dependent:
                    self._rewrite(name, volume, before)
                    self._read_records(volume)
        self._removes = True
        for name, volume in self._volumes.items():
            self._rewrite(name, volume, before)

    def stop(self) -> None:
        """Have the call that runs in another thread raise UserError at the next record."""
        self._is_stopped = True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        marks = self._folder / MARKS
        if self._is_dry and not marks.exists():
            yield  # nothing was forgotten here; a command that begins now writes new files beside the old ones
            return
        with marks.open("rb" if self._is_dry else "ab") as file:
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if self._is_dry else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"another `crawler forget` is rewriting {self._folder}; repeat the command later"
                ) from error
            if self._is_dry and any(path.name.endswith((SCRATCH, COMMIT)) for path in self._folder.iterdir()):
                raise UserError(
                    f"a `crawler forget` in {self._folder} was interrupted: repeat that command first, without --dry-run"
                )
            yield

    # preparing

    def _prepare(self) -> None:
        self._originals.clear()
        for name in sorted({name for path in self._folder.iterdir() if (name := volume_of(path))}):
            of_volume = [self._folder / (name + suffix) for suffix in WARC_SUFFIXES]
            warcs = [path for path in of_volume if path.exists()]
            volume = _Volume(warcs, self._folder / (name + LINES), self._folder / (name + PARQUET))
            self._volumes[name] = volume
            if volume.lines.exists():
                self._check_lines(volume)
            self._read_records(volume)
        volumes = self._volumes.values()
        if fixed := [one.parquet.name for one in volumes if one.parquet.exists() and not one.lines.exists()]:
            raise UserError(
                f"{', '.join(fixed)} in {self._folder} cannot be rewritten, because the JSON lines are not in the folder: "
                "put these back or remove the Parquet files, and repeat the command"
            )

    def _check_lines(self, volume: _Volume) -> None:
        with volume.lines.open("rb") as file:
            for number, line in enumerate(file, 1):
                matters = self._urls.may_be_in(line) or volume.parquet.exists()
                if matters and line.endswith(b"\n") and parsed(line) is None:
                    raise UserError(
                        f"{volume.lines}, line {number} cannot be parsed, so the file cannot be rewritten: correct or "
                        "remove the line, and repeat the command"
                    )

    def _read_records(self, volume: _Volume) -> None:
        """Find out what the records of `volume` have to do with the domain, and where its response records are."""

        def read(record: WarcRecord) -> str | None:
            self._check_running()
            is_ours = is_of(_subject(record), self._domain)
            volume.is_dependent |= bool(self._original_of(record))
            return record.record_id if is_ours and record.record_type == WarcRecordType.response else None

        for path in volume.warcs:
            try:
                with complete_part(path, one_each=True) as part:
                    part.check_end()
                for record_id, offset, length in placed(records_in(str(path)), path.stat().st_size, read):
                    self._originals[record_id] = Place(path.name, offset, length)
            except BrokenFraming as error:
                raise UserError(f"{path} cannot be read to its end ({error}), so it cannot be rewritten") from error

    def _check_running(self) -> None:
        if self._is_stopped:
            raise UserError("interrupted: repeat the command")

    def _original_of(self, record: WarcRecord) -> str:
        """The ID of the record of the domain that has the body of `record`, which is of another site; "" if none has."""
        is_revisit = record.record_type == WarcRecordType.revisit and not is_of(target_of(record), self._domain)
        if is_revisit and is_of(target_of(record, "WARC-Refers-To-Target-URI"), self._domain):
            return record.headers.get("WARC-Refers-To") or "?"
        return ""

    # writing

    def _rewrite(self, name: str, volume: _Volume, before: Before) -> None:
        changes = _Changes()
        for warc in volume.warcs:
            self._rewrite_warc(warc, changes)
        if volume.lines.exists():
            self._rewrite_lines(volume, changes)
        commit = changes.commit
        before(changes.urls, [*commit.replaced, *commit.removed])
        self.result.files.extend(name for name in commit.replaced if name not in self.result.files)
        self.result.removed_files.extend(commit.removed)
        if self._is_dry or not (commit.replaced or commit.removed):
            return
        sync_folder(self._folder)
        marker = self._folder / (name + COMMIT)
        with whole_file(marker) as scratch, scratch.open("wb") as file:
            file.write(msgspec.json.encode(commit))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._folder)
        _replace_files(marker)

    def _rewrite_warc(self, warc: Path, changes: _Changes) -> None:
        has_changed, kept = False, 0

        def read(record: WarcRecord) -> tuple[str, WarcRecordType, str]:
            self._check_running()
            return _subject(record), record.record_type, self._original_of(record)

        with warc.open("rb") as old, self._scratch(warc) as new:
            for (url, kind, original_id), offset, length in placed(records_in(str(warc)), warc.stat().st_size, read):
                if self._removes and is_of(url, self._domain):
                    has_changed = True
                    self.result.records += 1
                    changes.urls.append(url)
                    continue
                raw = os.pread(old.fileno(), length, offset)
                after = self._changed(warc, raw, kind, original_id)
                has_changed |= after is not raw
                changes.places[warc.name, offset] = Place(warc.name, new.tell(), len(after))
                kept += kind != WarcRecordType.warcinfo
                new.write(after)
        self._settle_file(warc, changes.commit, has_changed, kept > 0)
        index = index_path(warc)
        if has_changed and index.exists():
            if kept and not self._is_dry:
                with self._scratch(index) as file:
                    file.writelines(sorted(read_index(self._folder / (warc.name + SCRATCH), warc.name)))
            self._settle_file(index, changes.commit, True, kept > 0)

    def _changed(self, warc: Path, raw: bytes, kind: WarcRecordType, original_id: str) -> bytes:
        """The compressed record `raw` of `warc` as it is kept: `raw` itself if nothing changes."""
        if not original_id and not (self._removes and kind == WarcRecordType.metadata):
            return raw
        compression = compression_of(warc)
        assert compression is not None
        record = compression.reader().decompress(raw)
        gone: list[str] = []
        kept = (
            self._with_body(record, original_id)
            if original_id
            else _with_lines(record, lambda line: self._urls.without_in_metadata(line, gone))
        )
        self.result.links += len(gone)
        return compression.compress(kept) if kept != record else raw

    def _with_body(self, record: bytes, original_id: str) -> bytes:
        original = self._originals.get(original_id)
        if original is None:
            self.result.bodies_missing += 1
            return _without_target(record)
        self.result.bodies += 1
        path = self._folder / original.file
        compression = compression_of(path)
        assert compression is not None
        with path.open("rb") as file:
            raw = os.pread(file.fileno(), original.length, original.offset)
        return _as_response(record, compression.reader().decompress(raw))

    def _rewrite_lines(self, volume: _Volume, changes: _Changes) -> None:
        has_changed, kept = False, 0
        with volume.lines.open("rb") as old, self._scratch(volume.lines) as new:
            for line in old:
                after = self._line(line, changes)
                has_changed |= after != line
                kept += after is not None
                new.write(after or b"")
        self._settle_file(volume.lines, changes.commit, has_changed, kept > 0)
        if has_changed and volume.parquet.exists():
            if kept and not self._is_dry:
                scratches = (self._folder / (path.name + SCRATCH) for path in (volume.lines, volume.parquet))
                write_parquet(*scratches)
            self._settle_file(volume.parquet, changes.commit, True, kept > 0)

    def _line(self, line: bytes, changes: _Changes) -> bytes | None:
        """The JSON line as it is kept, None if it is of the domain; `line` itself if nothing changes."""
        may_name_it = self._removes and self._urls.may_be_in(line)
        is_torn = not line.endswith(b"\n")
        if not may_name_it and not changes.places and not is_torn:
            return line
        fields = parsed(line)
        if fields is None:
            return None if is_torn else line
        changed: dict[str, Any] = {}
        if may_name_it:
            if msgspec.json.decode(fields["domain"]) == self._domain:
                self.result.lines += 1
                url, label = (msgspec.json.decode(fields[name]) if name in fields else "" for name in ("url", "label"))
                changes.urls += Entry(url, self._domain, tag=label or "").seen_as
                return None
            changed, gone = self._urls.without(fields)
            changes.urls += gone
            self.result.links += len(gone)
        place = msgspec.json.decode(fields["warc"], type=Place | None)
        if place is not None and (moved := changes.places.get((place.file, place.offset), place)) != place:
            changed["warc"] = moved
        return _encoder.encode({**fields, **changed}) + b"\n" if changed or is_torn else line

    @contextlib.contextmanager
    def _scratch(self, target: Path) -> Iterator[Any]:
        if self._is_dry:
            yield _LengthOnly()
            return
        with (self._folder / (target.name + SCRATCH)).open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def _settle_file(self, path: Path, commit: _Commit, has_changed: bool, is_kept: bool) -> None:
        if has_changed and is_kept:
            commit.replaced.append(path.name)
            return
        if not self._is_dry:
            (self._folder / (path.name + SCRATCH)).unlink(missing_ok=True)
        if has_changed:
            commit.removed.append(path.name)


class _LengthOnly:
    """A file that is not written: only its length matters."""

    def __init__(self) -> None:
        self._size = 0

    def write(self, data: bytes) -> None:
        self._size += len(data)

    def tell(self) -> int:
        return self._size


def _subject(record: WarcRecord) -> str:
    """The URL of what `record` is about: also of what a browser has made of a page."""
    return _OF_BROWSER.sub("", target_of(record))


_OF_BROWSER = re.compile(r"^urn:[a-zA-Z]+:(?=https?:)")

# JSON lines and metadata records


class DomainUrls:
    """Finds and removes the URLs of `domain` that this crawler has stored with other pages."""

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def names(self, url: str) -> bool:
        return is_of(url, self._domain)

    def may_be_in(self, text: bytes) -> bool:
        """Whether a line or metadata record may have a URL of the domain."""
        return self._domain.encode() in text

    def without_in_metadata(self, line: bytes, gone: list[str]) -> bytes | None:
        """A line of a metadata record, such as `outlink: URL L a/@href`, without the URLs of the domain; None if it has no
        other. They are added to `gone`."""
        name, _, value = line.decode(errors="replace").partition(": ")
        words = value.split(" ")
        named = [word for word in words if name in _METADATA_URLS and self.names(word)]
        if not named:
            return line
        gone += named
        kept = [word for word in words if word not in named] if name == "licenses" else []
        return f"{name}: {' '.join(kept)}".encode() if kept else None

    def without(self, fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """What changes in `fields` of a JSON line so that they do not name the domain, and the URLs that are removed."""
        gone: list[str] = []
        values = {name: msgspec.json.decode(fields[name]) for name in URL_FIELDS if name in fields}
        kept = {name: self._without(value, gone) for name, value in values.items()}
        return {name: value for name, value in kept.items() if value != values[name]}, gone

    def _without(self, value: Any, gone: list[str]) -> Any:
        if isinstance(value, dict):
            return {tag: self._without(urls, gone) for tag, urls in value.items()}
        if isinstance(value, list):
            return [url for url in value if self._without(url, gone) is not None]
        if value is not None and self.names(value):
            gone.append(value)
            return None
        return value


def parsed(line: bytes) -> dict[str, Any] | None:
    """The fields of a JSON line, None if it is not the line of a page."""
    try:
        fields: dict[str, Any] = _fields_decoder.decode(line)
        msgspec.convert([msgspec.json.decode(fields[name]) for name in ("domain", "url")], list[str])
        msgspec.json.decode(fields["warc"], type=Place | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None
    return fields


# WARC records, as bytes

_OF_REVISITS = (b"warc-refers-to", b"warc-refers-to-target-uri", b"warc-refers-to-date", b"warc-profile")
"""The fields that only a revisit record has."""


def _with_lines(record: bytes, changed: Callable[[bytes], bytes | None]) -> bytes:
    """`record`, whose block has lines, with each as `changed` returns it; None removes it."""
    head, block = _split(record)
    lines = [changed(line) for line in block.split(b"\r\n")]
    return _record(head, b"\r\n".join(line for line in lines if line is not None))


def _without_target(record: bytes) -> bytes:
    """The revisit `record` without the URL of the record that it refers to."""
    head, block = _split(record)
    return _record(_without(head, (b"warc-refers-to-target-uri",)), block)


def _as_response(record: bytes, original: bytes) -> bytes:
    """The revisit `record` as a response record with the body of the response record `original`."""
    head, block = _split(record)
    original_head, original_block = _split(original)
    end = HEAD_END.search(original_block)
    body = original_block[end.end() :] if end else b""
    head = _without(head, (*_OF_REVISITS, b"warc-truncated"))
    lines = [b"WARC-Type: response" if line.lower().startswith(b"warc-type:") else line for line in head]
    lines += [line for line in original_head if line.lower().startswith(b"warc-truncated:")]
    return _record(lines, block + body)


def _split(record: bytes) -> tuple[list[bytes], bytes]:
    """The lines of the head of `record`, and its block."""
    head, _, rest = record.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    length = next(int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:"))
    return lines, rest[:length]


def _record(head: Collection[bytes], block: bytes) -> bytes:
    lines = [line for line in head if not line.lower().startswith(b"content-length:")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(block), b"", block, b"", b""])


def _without(head: Collection[bytes], names: Collection[bytes]) -> list[bytes]:
    return [line for line in head if line.partition(b":")[0].strip().lower() not in names]


# replacing files, and marks


def complete(folder: Path) -> None:
    """Give the files of volumes that were committed their names, and remove what was not committed. Raises OSError."""
    for marker in sorted(folder.glob("*" + COMMIT)):
        _replace_files(marker)
    for path in folder.glob("*" + SCRATCH):
        path.unlink(missing_ok=True)
    remove_left_over(folder)


def _replace_files(marker: Path) -> None:
    folder, commit = marker.parent, msgspec.json.decode(marker.read_bytes(), type=_Commit)
    for name in commit.replaced:
        with contextlib.suppress(FileNotFoundError):  # a process that was killed has renamed it
            (folder / (name + SCRATCH)).rename(folder / name)
    for name in commit.removed:
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
    marker.unlink()


def add_mark(folder: Path, domain: str) -> None:
    """Note that `domain` is being forgotten. Raises OSError."""
    if forgotten_mark(domain) not in marks_in(folder):
        with (folder / MARKS).open("a+b") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            torn = b"\n" if file.read() not in (b"", b"\n") else b""
            file.write(torn + f"{forgotten_mark(domain)} {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n".encode())
            file.flush()
            os.fsync(file.fileno())


def marks_in(folder: Path) -> dict[str, str]:
    """The marks of the domains that were forgotten in `folder`, and when. Lines that are none are ignored."""
    try:
        lines = (folder / MARKS).read_bytes().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return {}
    return {found[1]: found[2] for line in lines if (found := _MARK.fullmatch(line.rstrip()))}
