"""Removes a domain from the files of an output folder, by rewriting those that have something of it (`crawler forget`).

What is removed: the records and JSON lines of its URLs, and its URLs where this crawler has noted them with other pages
(the lists of links and licences, `via`, `canonical`, `near_of`, `tdm_policy`, and the same in metadata records). What
other sites sent stays as they sent it, also if it names the domain: the archive must not change what they published.

A revisit record refers to an earlier record with the same body. If that is of the domain, the record gets the body itself,
so that the page can still be replayed. This is done in all volumes first, while the records with the bodies are there.

The files of a volume are replaced all together or not at all. The new ones are written beside the old ones, with the suffix
`.forget`. Then a file with the suffix `.forget-commit` lists them, and from that moment on they count. If the process is
killed before, the old files are still complete; if it is killed later, the next call gives the new files their names.
Files that cannot be rewritten are found before anything is changed. A torn last line is removed, as a recovery does.

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
from typing import Any, NamedTuple

import msgspec
from fastwarc.warc import WarcRecord, WarcRecordType

from crawler.errors import UserError
from crawler.http_head import HEAD_END
from crawler.sinks.cdxj import index_path, read_index
from crawler.sinks.compression import Compression
from crawler.sinks.files import OPEN_SUFFIX, PARQUET, FinishedVolume, sync_folder, volume_of, whole_file
from crawler.sinks.lines import Place
from crawler.sinks.parquet import parquet_path, require_pyarrow, urls_in, write_parquet
from crawler.sinks.reader import BrokenFraming, complete_part, compression_of, placed, records_in, target_of
from frontier.domains import forgotten_mark, is_of
from frontier.errors import BadUrl
from frontier.urls import canonicalize

_encoder = msgspec.json.Encoder()


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

    def add(self, **found: int) -> None:
        """Count what was removed."""
        for name, number in found.items():
            setattr(self, name, getattr(self, name) + number)


Before = Callable[[list[str], list[str]], None]
"""Is called with the URLs of the domain in a volume, and the names of the files that are replaced or removed."""


class _Original(NamedTuple):
    """Where a response record of the domain is."""

    path: Path
    offset: int
    length: int


class _Record(NamedTuple):
    """What becomes of a record. `original_id`: of the record of the domain that has its body."""

    is_removed: bool
    original_id: str = ""
    may_name_it: bool = False


class Locked(UserError):
    """Raised when a folder cannot be rewritten now."""


class Stopped(UserError):
    """Raised when a call of `DomainRewriter` was stopped. The call may be repeated."""


class DomainRewriter:
    """Rewrites the finished files in `folder` without `domain`. Raises UserError and OSError."""

    def __init__(self, folder: Path, domain: str, fsync: bool = True) -> None:
        self._folder = folder
        self._domain = domain
        self._fsync = fsync
        self._noted = NotedUrls(domain)
        self._originals: dict[str, _Original] = {}
        self._dependent: list[FinishedVolume] = []  # in which a record of another site needs a body of the domain
        self._volumes: list[FinishedVolume] = []
        self._removes = self._is_dry = self._is_prepared = self._is_stopped = False
        self.result = Rewritten(str(folder))

    def check(self) -> None:
        """Raises UserError if a replica writes in the folder, or left files open."""
        if any(path.name.endswith(OPEN_SUFFIX) for path in self._folder.iterdir()):
            raise Locked(
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
        with self._alone():
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
            for volume in self._dependent:
                self._rewrite(volume, before)
                self._read_originals(volume)
        self._removes = True
        for volume in self._volumes:
            self._rewrite(volume, before)

    def stop(self) -> None:
        """Have the call that runs in another thread end with `Stopped` at the next record."""
        self._is_stopped = True

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        marks = self._folder / MARKS
        if self._is_dry and not marks.exists():
            yield  # nothing was forgotten here; a command that begins now writes new files beside the old ones
            return
        with marks.open("rb" if self._is_dry else "ab") as file:
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if self._is_dry else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Locked(
                    f"another `crawler forget` is rewriting {self._folder}; repeat the command later"
                ) from error
            if self._is_dry and has_left_work(self._folder):
                raise Locked(
                    f"a `crawler forget` in {self._folder} was interrupted: repeat that command first, without --dry-run"
                )
            yield

    # preparing

    def _prepare(self) -> None:
        names = sorted({name for path in self._folder.iterdir() if (name := volume_of(path))})
        self._volumes = [FinishedVolume(self._folder, name) for name in names]
        self._originals, self._dependent = {}, []
        for volume in self._volumes:
            if volume.lines.exists():
                self._check_lines(volume)
            if self._read_originals(volume):
                self._dependent.append(volume)
        if fixed := [volume.parquet.name for volume in self._volumes if self._is_fixed(volume)]:
            raise UserError(
                f"{', '.join(fixed)} in {self._folder} cannot be rewritten, because the JSON lines are not in the folder: "
                "put these back or remove the Parquet files, and repeat the command"
            )

    def _check_lines(self, volume: FinishedVolume) -> None:
        with volume.lines.open("rb") as file:
            for number, line in enumerate(file, 1):
                matters = self._noted.is_named_in(line) or volume.parquet.exists()
                if matters and line.endswith(b"\n") and parsed(line) is None:
                    raise UserError(
                        f"{volume.lines}, line {number} cannot be parsed, so the file cannot be rewritten: correct or "
                        "remove the line, and repeat the command"
                    )

    def _is_fixed(self, volume: FinishedVolume) -> bool:
        """Whether the volume has a Parquet file that would have to change, but not the lines to make it from."""
        if volume.lines.exists() or not volume.parquet.exists():
            return False
        result, is_dry, removes = self.result, self._is_dry, self._removes
        self.result, self._is_dry, self._removes = Rewritten(""), True, True
        try:
            commit = Commit([], [])
            for warc in volume.warcs:
                self._rewrite_warc(warc, {}, [], commit)
            return bool(commit.replaced or commit.removed) or any(
                self._noted.names(url) for url in urls_in(volume.parquet, ("url", *LINE_URLS, *LINE_LISTS))
            )
        finally:
            self.result, self._is_dry, self._removes = result, is_dry, removes

    # reading

    def _read_originals(self, volume: FinishedVolume) -> bool:
        """Remember where the response records of the domain are. Returns whether records of others refer to one."""
        is_dependent = False

        def read(record: WarcRecord) -> str | None:
            nonlocal is_dependent
            self._check_running()
            is_dependent |= bool(self._judge(record).original_id)
            is_original = record.record_type == WarcRecordType.response and self._is_ours(record)
            return record.record_id if is_original else None

        for path in volume.warcs:
            try:
                with complete_part(path) as part:
                    part.check_end()
                for record_id, offset, length in placed(records_in(str(path)), path.stat().st_size, read):
                    self._originals[record_id] = _Original(path, offset, length)
            except BrokenFraming as error:
                raise UserError(f"{path} cannot be read to its end ({error}), so it cannot be rewritten") from error
        return is_dependent

    def _check_running(self) -> None:
        if self._is_stopped:
            raise Stopped("interrupted: repeat the command")

    def _is_ours(self, record: WarcRecord) -> bool:
        return is_of(target_of(record), self._domain)

    def _judge(self, record: WarcRecord) -> _Record:
        if self._is_ours(record):
            return _Record(is_removed=True)
        referred = target_of(record, "WARC-Refers-To-Target-URI")
        if record.record_type == WarcRecordType.revisit and is_of(referred, self._domain):
            return _Record(is_removed=False, original_id=record.headers.get("WARC-Refers-To") or "?")
        return _Record(is_removed=False, may_name_it=record.record_type == WarcRecordType.metadata)

    # writing

    def _rewrite(self, volume: FinishedVolume, before: Before) -> None:
        urls: list[str] = []
        commit = Commit([], [])
        places: dict[tuple[str, int], Place] = {}
        for warc in volume.warcs:
            self._rewrite_warc(warc, places, urls, commit)
        if volume.lines.exists():
            self._rewrite_lines(volume.lines, places, urls, commit)
        before(urls, [*commit.replaced, *commit.removed])
        self.result.files.extend(name for name in commit.replaced if name not in self.result.files)
        self.result.removed_files.extend(commit.removed)
        if self._is_dry or not (commit.replaced or commit.removed):
            return
        carry_out(self._folder, volume.name, commit)

    def _rewrite_warc(self, warc: Path, places: dict[tuple[str, int], Place], urls: list[str], commit: Commit) -> None:
        compression = compression_of(warc)
        assert compression is not None
        changed, kept = False, 0

        def read(record: WarcRecord) -> tuple[_Record, WarcRecordType, str]:
            self._check_running()
            return self._judge(record), record.record_type, target_of(record)

        with warc.open("rb") as old, self._scratch(warc) as new:
            for (verdict, kind, url), offset, length in placed(records_in(str(warc)), warc.stat().st_size, read):
                if verdict.is_removed and self._removes:
                    changed = True
                    self.result.add(records=1)
                    urls.append(url)
                    continue
                raw = os.pread(old.fileno(), length, offset)
                after = self._changed(raw, verdict, compression)
                changed |= after is not raw
                places[warc.name, offset] = Place(warc.name, new.tell(), len(after))
                kept += kind != WarcRecordType.warcinfo
                new.write(after)
        self._note(warc, commit, changed, kept > 0)
        if not changed or not index_path(warc).exists():
            return
        index = index_path(warc)
        if kept and not self._is_dry:
            with self._scratch(index) as file:
                file.writelines(sorted(read_index(self._folder / (warc.name + SCRATCH), warc.name)))
        self._note(index, commit, True, kept > 0)

    def _changed(self, raw: bytes, verdict: _Record, compression: Compression) -> bytes:
        """The compressed record `raw` as it is kept: `raw` itself if nothing changes."""
        if verdict.original_id:
            return compression.compress(self._with_body(decompressed(raw, compression), verdict.original_id))
        if verdict.may_name_it and self._removes and self._noted.may_be_in(record := decompressed(raw, compression)):
            gone: list[str] = []
            kept = with_lines(record, lambda line: self._noted.without_in_metadata(line, gone))
            self.result.add(links=len(gone))
            return compression.compress(kept) if kept != record else raw
        return raw

    def _with_body(self, record: bytes, original_id: str) -> bytes:
        """The revisit `record` as a response record with the body of the record that it refers to."""
        original = self._originals.get(original_id)
        if original is None:
            self.result.add(bodies_missing=1)
            return without_target(record)
        self.result.add(bodies=1)
        compression = compression_of(original.path)
        assert compression is not None
        with original.path.open("rb") as file:
            return as_response(
                record, decompressed(os.pread(file.fileno(), original.length, original.offset), compression)
            )

    def _rewrite_lines(
        self, lines: Path, places: dict[tuple[str, int], Place], urls: list[str], commit: Commit
    ) -> None:
        changed, kept = False, 0
        with lines.open("rb") as old, self._scratch(lines) as new:
            for line in old:
                after = self._line(line, places, urls)
                changed |= after != line
                kept += after is not None
                new.write(after or b"")
        self._note(lines, commit, changed, kept > 0)
        parquet = parquet_path(lines)
        if changed and parquet.exists():
            if kept and not self._is_dry:
                write_parquet(self._folder / (lines.name + SCRATCH), self._folder / (parquet.name + SCRATCH))
            self._note(parquet, commit, True, kept > 0)

    def _line(self, line: bytes, places: dict[tuple[str, int], Place], urls: list[str]) -> bytes | None:
        """The JSON line as it is kept, None if it is of the domain; `line` itself if nothing changes."""
        names_it = self._removes and self._noted.may_be_in(line)
        is_torn = not line.endswith(b"\n")
        if not names_it and not places and not is_torn:
            return line
        fields = parsed(line)
        if fields is None:
            return None if is_torn else line
        changes: dict[str, Any] = {}
        if names_it:
            if msgspec.json.decode(fields["domain"]) == self._domain:
                self.result.add(lines=1)
                urls.append(msgspec.json.decode(fields["url"]))
                return None
            changes, gone = self._noted.without(fields)
            urls += gone
            self.result.add(links=len(gone))
        place = msgspec.json.decode(fields["warc"], type=Place | None)
        if place is not None and places.get((place.file, place.offset), place) != place:
            changes["warc"] = places[place.file, place.offset]
        return _encoder.encode({**fields, **changes}) + b"\n" if changes or is_torn else line

    @contextlib.contextmanager
    def _scratch(self, target: Path) -> Iterator[Any]:
        if self._is_dry:
            yield _Counted()
            return
        with (self._folder / (target.name + SCRATCH)).open("wb") as file:
            yield file
            file.flush()
            if self._fsync:
                os.fsync(file.fileno())

    def _note(self, path: Path, commit: Commit, is_changed: bool, is_kept: bool) -> None:
        """Note what becomes of the file `path`, which has a new version."""
        if is_changed and is_kept:
            commit.replaced.append(path.name)
            return
        if not self._is_dry:
            (self._folder / (path.name + SCRATCH)).unlink(missing_ok=True)
        if is_changed:
            commit.removed.append(path.name)


class _Counted:
    """A file that is not written: only its length matters."""

    def __init__(self) -> None:
        self._size = 0

    def write(self, data: bytes) -> None:
        self._size += len(data)

    def tell(self) -> int:
        return self._size


LINE_URLS = ("canonical", "via", "near_of", "tdm_policy")
"""The fields of a JSON line that hold one URL."""

LINE_LISTS = ("links", "licenses")
"""Those that hold a list of URLs."""

LINE_TAGGED = "followed"
"""The field that holds lists of URLs by their tags."""

_METADATA_URLS = ("outlink", "via", "tdm-policy", "licenses")
"""The lines of a metadata record that hold URLs."""

_AS_WRITTEN = (b'"tdm_policy":"', b'"licenses":["', b"tdm-policy: ", b"licenses: ")
"""What precedes URLs that earlier versions have stored as their sites wrote them, in lines and metadata records."""

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class NotedUrls:
    """Finds the URLs of `domain`."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._needle = domain.encode()

    def is_named_in(self, text: bytes) -> bool:
        """Whether `text` contains the name of the domain, as it may if it is damaged."""
        return self._needle in text.lower()

    def names(self, url: str) -> bool:
        """Whether `url` is of the domain, also if it is not in canonical form."""
        try:
            return is_of(url, self._domain) or canonicalize(url, "https://base.invalid/").domain == self._domain
        except BadUrl:
            return False

    def may_be_in(self, text: bytes) -> bool:
        """Whether a line or metadata record may have a URL of the domain."""
        return self._needle in text or any(mark in text for mark in _AS_WRITTEN)

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
        changes: dict[str, Any] = {}
        gone: list[str] = []
        for name in LINE_LISTS:
            named = msgspec.json.decode(fields[name], type=list[str] | None) if name in fields else None
            found = [url for url in named or () if self.names(url)]
            if named is not None and found:
                changes[name] = [url for url in named if url not in found]
                gone += found
        if LINE_TAGGED in fields:
            tagged = msgspec.json.decode(fields[LINE_TAGGED], type=dict[str, list[str]] | None) or {}
            if found := [url for urls in tagged.values() for url in urls if self.names(url)]:
                changes[LINE_TAGGED] = {tag: [url for url in urls if url not in found] for tag, urls in tagged.items()}
                gone += found
        for name in LINE_URLS:
            url = msgspec.json.decode(fields[name], type=str | None) if name in fields else None
            if url and self.names(url):
                changes[name] = None
                gone.append(url)
        return changes, gone


def parsed(line: bytes) -> dict[str, Any] | None:
    """The fields of a JSON line, None if it is not the line of a page."""
    try:
        fields: dict[str, Any] = _fields_decoder.decode(line)
        msgspec.convert([msgspec.json.decode(fields[name]) for name in ("domain", "url")], list[str])
        msgspec.json.decode(fields["warc"], type=Place | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None
    return fields


_OF_REVISITS = (b"warc-refers-to", b"warc-refers-to-target-uri", b"warc-refers-to-date", b"warc-profile")
"""The fields that only a revisit record has."""


def decompressed(raw: bytes, compression: Compression) -> bytes:
    """The compressed record `raw`."""
    return compression.reader().decompress(raw)


def with_lines(record: bytes, changed: Callable[[bytes], bytes | None]) -> bytes:
    """`record`, whose block has lines, with each as `changed` returns it; None removes it."""
    head, block = _split(record)
    lines = [changed(line) for line in block.split(b"\r\n")]
    return _record(head, b"\r\n".join(line for line in lines if line is not None))


def without_target(record: bytes) -> bytes:
    """The revisit `record` without the URL of the record that it refers to."""
    head, block = _split(record)
    return _record(_without(head, (b"warc-refers-to-target-uri",)), block)


def as_response(record: bytes, original: bytes) -> bytes:
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


MARKS = "forgotten-domains.txt"
SCRATCH, COMMIT = ".forget", ".forget-commit"

_MARK = re.compile(r"([0-9a-f]{40}) (\S+)")
_UNFINISHED = re.compile(r".*\.(?:cdxj|parquet|forget|forget-commit)\.(\d+)\.tmp")


class Commit(msgspec.Struct):
    """The files of a volume: those with a new content, and those to remove. `sizes`: the bytes of the new files."""

    replaced: list[str]
    removed: list[str]
    sizes: list[int] = []


def carry_out(folder: Path, volume: str, commit: Commit) -> None:
    """Replace the files of `volume`. The new ones are on the disk. Raises OSError."""
    marker = folder / (volume + COMMIT)
    sync_folder(folder)
    sizes = [(folder / (name + SCRATCH)).stat().st_size for name in commit.replaced]
    with whole_file(marker) as scratch, scratch.open("wb") as file:
        file.write(msgspec.json.encode(msgspec.structs.replace(commit, sizes=sizes)))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    _rename(marker)


def complete(folder: Path) -> None:
    """Give the files of volumes that were committed their names, and remove what was not committed. Raises OSError."""
    for marker in sorted(folder.glob("*" + COMMIT)):
        _rename(marker)
    for path in folder.iterdir():
        if path.name.endswith(SCRATCH) or _is_left_over(path):
            path.unlink(missing_ok=True)


def has_left_work(folder: Path) -> bool:
    """Whether a process that was killed has left files that `complete` would rename or remove. Raises OSError."""
    return any(path.name.endswith((SCRATCH, COMMIT)) for path in folder.iterdir())


def _rename(marker: Path) -> None:
    folder, commit = marker.parent, msgspec.json.decode(marker.read_bytes(), type=Commit)
    new = [name for name in commit.replaced if (folder / (name + SCRATCH)).exists()]
    for name, size in zip(commit.replaced, commit.sizes, strict=False):
        if name not in new and not _has_size(folder / name, size):  # it was not renamed before
            raise UserError(
                f"{folder / (name + SCRATCH)} is missing, the new version of {name}: restore it, or remove {marker} to "
                "keep the old version, and repeat the command"
            )
    for name in new:
        (folder / (name + SCRATCH)).rename(folder / name)
    for name in commit.removed:
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
    marker.unlink()


def _has_size(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size


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


def _is_left_over(path: Path) -> bool:
    """Whether `path` is what a killed process has left of a file that it was writing (`whole_file`)."""
    found = _UNFINISHED.fullmatch(path.name)
    if found is None:
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it runs
    return int(found[1]) == os.getpid()
