"""Removes a domain from the files of an output folder, by rewriting those that have something of it (`crawler forget`).

What is removed: the records and JSON lines of its URLs, and its URLs where this crawler has noted them with other pages
(the lists of links and licences, `via`, `canonical`, `near_of`, `tdm_policy`, and the same in metadata records). What
other sites sent stays as they sent it, also if it names the domain: the archive must not change what they published.

A revisit record refers to an earlier record with the same body. If that is of the domain, the record gets the body itself,
so that the page can still be replayed. This is done in all volumes first, while the records with the bodies are there.

A volume is rewritten as a whole (`crawler.sinks.replaced_files`), so a process that is killed leaves the old files or the
new ones. Files that cannot be rewritten are found by `prepare`, before anything is changed. A torn last line is removed, as
a recovery does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from fastwarc.warc import WarcRecord, WarcRecordType

from crawler.errors import UserError
from crawler.sinks.cdxj_index import index_path, read_index
from crawler.sinks.compression import Compression
from crawler.sinks.finished_volume import PARQUET, FinishedVolume, volume_of
from crawler.sinks.noted_urls import LINE_LISTS, LINE_URLS, NotedUrls, parsed
from crawler.sinks.open_files import complete_part, compression_of
from crawler.sinks.page_lines import Place
from crawler.sinks.parquet import parquet_path, require_pyarrow, urls_in, write_parquet
from crawler.sinks.replaced_files import MARKS, SCRATCH, Commit, add_mark, carry_out, complete, has_left_work
from crawler.sinks.rewritten_record import as_response, decompressed, with_lines, without_target
from crawler.sinks.segment import OPEN_SUFFIX
from crawler.sinks.warc_reader import BrokenFraming, placed, records_in, target_of
from frontier.domains import is_of

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
        """Note what becomes of the file `path`, of which there is a new version."""
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
