"""Checks a folder for output before anything else happens, and without creating it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from crawler.errors import UserError


def check_output_folder(folder: Path, option: str = "--out") -> None:
    """Raises UserError if `folder` can neither be written nor created. `option`: the one that names the folder."""
    if reason := obstacle(folder):
        raise UserError(f"cannot write in {folder}: {reason}; choose another folder with {option}")


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
