"""What exports have made in a folder: its file `.exported.json` names each result, and how it was made. Files that are not
named there are not replaced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from crawler.errors import UserError, reason_of
from crawler.sinks.files import locked, open_path, whole_file

NAME = ".exported.json"


class Made(msgspec.Struct, frozen=True):
    """How a result was made: from the WARC file `source` (an absolute path) of `size` bytes, with `options`. Of other
    results, `source` says in words what they are."""

    source: str
    size: int = 0
    options: dict[str, str] = {}


def made_in(folder: Path) -> dict[str, Made]:
    """The results in `folder` by name: none if the file that names them is damaged. Raises OSError."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=dict[str, Made])
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def has_pages(folder: Path) -> bool:
    """Whether pages were exported to `folder`. Raises OSError."""
    return any(Path(made.source).is_absolute() for made in made_in(folder).values())


def check_replaceable(path: Path, source: str, known: Mapping[str, Made]) -> None:
    """Raises UserError if the file at `path` is there and is not among the results `known`, or not of `source`."""
    before = known.get(path.name)
    if not path.exists():
        return
    if before is None:
        raise UserError(
            f"{path} is there already, and no export has made it: use another folder (--out), or move it away"
        )
    if before.source != source and (not Path(before.source).is_absolute() or _is_there(Path(before.source))):
        raise UserError(f"{path} was exported from {before.source}: use another folder for {source}, or move it away")


def _is_there(warc: Path) -> bool:
    return warc.exists() or open_path(warc).exists()


def record(folder: Path, results: Mapping[str, Made]) -> None:
    """Let `.exported.json` name those of the `results` that are in `folder`, and not the others. Raises OSError."""
    if not folder.is_dir():
        return
    with locked(folder):
        before = made_in(folder)
        known = {name: made for name, made in before.items() if name not in results}
        known |= {name: made for name, made in results.items() if (folder / name).exists()}
        if known != before:
            write(folder, known)


def write(folder: Path, known: Mapping[str, Made]) -> None:
    """Let `.exported.json` name the results `known`, or remove it if there are none. Raises OSError."""
    if not known:
        (folder / NAME).unlink(missing_ok=True)
        return
    with whole_file(folder / NAME) as scratch:
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1))


@contextlib.contextmanager
def replacing(folder: Path, sources: Mapping[str, str]) -> Iterator[None]:
    """Let the block write the files of these names in `folder`, each with what it is. Raises UserError before if another
    file has such a name."""
    try:
        known = made_in(folder)
        for name, source in sources.items():
            check_replaceable(folder / name, source, known)
        results, is_new = {name: Made(source) for name, source in sources.items()}, not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            write(folder, made_in(folder) | results)  # before they are there: the block may be killed
        try:
            yield
        finally:
            record(folder, results)
            if is_new:
                with contextlib.suppress(OSError):  # it is not empty
                    folder.rmdir()
    except OSError as error:
        raise UserError(f"{folder}: {reason_of(error, folder)}") from error
