"""The file `CRAWL.settings.toml` beside the output, which keeps the settings of the crawl. So a crawl that Redis has lost
is repaired with the settings that it had, and its output can be audited elsewhere."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from crawler.app.start_settings import without_secrets
from crawler.logs import log
from crawler.settings.load import CrawlSettings
from crawler.settings.reference import as_toml
from crawler.sinks.crawl_files import SETTINGS
from crawler.sinks.segment import whole_file

_HEAD = "# The settings of the crawl that are not the defaults, except URLs with a password.\n"


def keep_settings(folder: Path, crawl: str, settings: CrawlSettings) -> None:
    """Write down `settings` in the output folder, if there is one. An error is only logged."""
    values, defaults = settings.flat(), CrawlSettings().flat()
    named = [name for name in values if name == "frontier.shards" or values[name] not in (defaults[name], None)]
    shown = [
        f"{name} = {as_toml(values[name])}\n" for name in named if without_secrets(name, values[name]) == values[name]
    ]
    path, text = folder / f"{crawl}{SETTINGS}", "".join([_HEAD, *shown])
    try:
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == text.encode():
                return
        if folder.is_dir():
            with whole_file(path) as scratch:
                scratch.write_text(text, encoding="utf-8")
                scratch.chmod(0o600)  # what is for the functions of a crawl ([app]) may be secret
    except OSError as error:
        log(logging.WARNING, "settings_not_kept", file=path, error=error)


def kept_settings(folders: Sequence[Path], crawl: str = "*") -> Path | None:
    """Return the file with the settings of `crawl` in one of `folders`; of the only crawl there if no name is given."""
    found = [path for folder in folders for path in sorted(folder.glob(f"{crawl}{SETTINGS}"))]
    return found[0] if len({path.name for path in found}) == 1 else None
