"""The files of an output folder: their names, how they are written, and how they are found and opened.

A volume is written in segments, append-only files: the WARC file, the JSON lines and the journal. While a segment is being
written, its name ends in `.open` and it has an exclusive `flock`, which the kernel releases when the process ends. So the
writer of an `.open` file that can be locked is dead. A finished segment has its plain name and never changes again.

Commands read files that may still be open, and may be finished meanwhile: then they are found under their plain names.
Nothing here waits for the writer or holds it up.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from crawler.errors import SinkFull, UserError, is_machines_fault, reason_of
from crawler.sinks.compression import WARC_SUFFIXES

OPEN_SUFFIX = ".open"
LINES = ".pages.jsonl"

_SCRATCH = re.compile(r".+\.\d+\.peercrawl\.tmp")
"""The names of files that `scratch_file` makes, and of folders that `scratch_folder` makes, and nobody else."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_AWAY = frozenset(
    {errno.EIO, errno.EROFS, errno.ESTALE, errno.EREMOTEIO, errno.ENXIO, errno.ENOLCK, errno.ENOTCONN, errno.ETIMEDOUT}
    | {errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNRESET, errno.ESHUTDOWN}
)
"""What a disk that fails, or network storage that is away, answers until somebody mends it."""

_WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def file_name(name: str) -> str:
    """`name` with underscores for characters that are not valid in any file system."""
    return _UNSAFE.sub("_", name)


class Segment:
    """A file to which only this process appends. All methods except `close` raise OSError."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.size = 0
        self.header_size = 0
        self._fd = fd

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} {self.size} bytes>"

    @classmethod
    def create(cls, path: Path) -> Segment:
        """Create a segment whose finished name is `path`. Raises FileExistsError if there is such a file."""
        if path.exists():
            raise FileExistsError(errno.EEXIST, "a finished file has this name", str(path))
        opened = open_path(path)
        while True:
            fd = os.open(opened, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if is_same_file(fd, opened):
                return cls(path, fd)
            # Before it was locked, a recovery took the empty file for that of a dead writer and removed it.
            os.close(fd)

    @classmethod
    def adopt(cls, opened: Path) -> Segment | None:
        """Lock the open file `opened` of a dead writer. Returns None if it is gone, or another process has the lock."""
        with contextlib.ExitStack() as undo:
            try:
                fd = os.open(opened, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                undo.callback(os.close, fd)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (FileNotFoundError, BlockingIOError):
                return None
            if not is_same_file(fd, opened):
                return None
            segment = cls(opened.with_name(opened.name.removesuffix(OPEN_SUFFIX)), fd)
            segment.size = os.fstat(fd).st_size
            undo.pop_all()
            return segment

    def fileno(self) -> int:
        return self._fd

    def begin(self, header: bytes) -> None:
        """Append the header of the file. A segment with only a header is removed when it is finished."""
        self.append(header)
        self.header_size = self.size

    def append(self, data: bytes) -> None:
        """Append all of `data`. After an error, part of it may be in the file until `cut` is called. Raises
        FileNotFoundError if the file has been removed: the kernel would take what nobody can read any more."""
        if not os.fstat(self._fd).st_nlink and not is_same_file(self._fd, open_path(self.path)):
            raise FileNotFoundError(errno.ENOENT, "somebody has removed it while it was written", str(self.path))
        rest = memoryview(data)
        while rest:
            # If the disk fills up, the first call writes some of the bytes, and only the next one fails.
            rest = rest[os.write(self._fd, rest) :]
        self.size += len(data)

    def read(self, start: int) -> bytes:
        return os.pread(self._fd, max(0, self.size - start), start)

    def cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        """Return when everything appended is on the disk."""
        os.fdatasync(self._fd)

    def finish(self) -> bool:
        """Give the file its plain name, or remove it if it has only a header. Returns whether it was kept."""
        if self.size <= self.header_size:
            self.remove()
            return False
        open_path(self.path).rename(self.path)
        self.close()
        return True

    def remove(self) -> None:
        """Remove the file and unlock it."""
        open_path(self.path).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Unlock the file and leave it as it is, for a recovery to finish. Further calls do nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # `append` or `sync` has already reported any error
                os.close(fd)


def open_path(path: Path) -> Path:
    """The name of the segment `path` while it is being written."""
    return path.with_name(path.name + OPEN_SUFFIX)


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a path to write, which becomes `target` at the end of the block unless that raised. Raises OSError."""
    with scratch_file(target) as scratch:
        yield scratch
        scratch.rename(target)


@contextlib.contextmanager
def scratch_file(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` to write. It is locked, and removed at the end of the block. Raises OSError."""
    scratch = target.with_name(f"{target.name}.{os.getpid()}.peercrawl.tmp")
    while True:
        lock = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            scratch.unlink(missing_ok=True)
            os.close(lock)
            raise
        if is_same_file(lock, scratch):
            break
        os.close(lock)  # it was taken for one that is left over
    try:
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)
        os.close(lock)


@contextlib.contextmanager
def scratch_folder(outer: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder in `outer`. It is locked, and removed at the end of the block. Raises OSError."""
    suffix = f".{os.getpid()}.peercrawl.tmp"
    with tempfile.TemporaryDirectory(prefix=prefix, suffix=suffix, dir=outer) as folder, locked(Path(folder)):
        yield Path(folder)


def remove_left_over(folder: Path) -> None:
    """Remove what killed processes have left of what they were writing in `folder`. Raises OSError."""
    for path in folder.iterdir():
        if not _SCRATCH.fullmatch(path.name):
            continue
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # another process has removed it, or writes it
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            finally:
                os.close(lock)


def is_same_file(fd: int, path: Path) -> bool:
    """Whether `path` still names the file behind `fd`."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def locked(folder: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Lock `folder` until the end of the block. Raises OSError; BlockingIOError if `how` says not to wait."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


def sync_folder(folder: Path) -> None:
    """Return when the file names in `folder` are on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Translate OSError: to SinkFull if space, a file descriptor or the storage is missing, to UserError otherwise."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SinkFull(f"no room in {folder}: {error.strerror}") from error
        if error.errno in _AWAY or is_machines_fault(error):
            raise SinkFull(f"cannot write in {folder} now: {error.strerror}") from error
        raise UserError(f"cannot write in {folder}: {reason_of(error, folder)}") from error


def check_locks(folder: Path) -> None:
    """Raise UserError if files in `folder` cannot be locked, and OSError if they cannot be written."""
    try:
        with scratch_file(folder / "locks"):
            pass
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        raise UserError(
            f"files in {folder} cannot be locked (flock: {error.strerror}), so replicas could not tell who writes them; "
            "choose another --out, or mount the file system with locks"
        ) from error


def open_either(path: Path) -> int:
    """A file descriptor to read the file at `path`. If it was open and has been finished since, it has its plain name.
    Raises OSError."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if not is_open(path):
            raise
        return os.open(finished_path(path), os.O_RDONLY | os.O_CLOEXEC)


def open_and_finished(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """The files in `folder` with these `suffixes`, sorted, open ones included. Raises OSError."""
    endings = tuple(suffix + end for suffix in suffixes for end in ("", OPEN_SUFFIX))
    # A file that is finished during the listing may be in it under both names.
    found = (path for path in folder.iterdir() if path.name.endswith(endings) and not path.is_dir())
    return sorted({finished_path(path): path for path in found}.values())


def is_open(path: Path) -> bool:
    return path.name.endswith(OPEN_SUFFIX)


def finished_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(OPEN_SUFFIX))


PARQUET = ".pages.parquet"


def volume_of(path: Path) -> str:
    """The name of the volume to which the finished file `path` belongs, "" if it belongs to none."""
    suffix = next((suffix for suffix in (*WARC_SUFFIXES, LINES, PARQUET) if path.name.endswith(suffix)), "")
    return "" if not suffix or is_open(path) else path.name.removesuffix(suffix)


def check_output_folder(folder: Path) -> None:
    """Raises UserError if `folder` can neither be written nor created."""
    if reason := obstacle(folder):
        raise UserError(f"cannot write in {folder}: {reason}; choose another folder with --out")


def obstacle(folder: Path) -> str:
    """Return why nothing can be written in `folder`, which need not exist; "" if something can."""
    found = folder.absolute()
    while not os.path.lexists(found):
        found = found.parent
    name = "it" if found == folder.absolute() else str(found)
    if not found.is_dir():
        return (
            f"{name} is {'a link to nothing' if found.is_symlink() and not found.exists() else 'a file'}, not a folder"
        )
    try:
        with tempfile.TemporaryFile(dir=found):  # permissions say less: the file system may be read-only
            return ""
    except OSError as error:
        return error.strerror or str(error)
