"""Checks that this machine has what a crawl needs: hooks, sinks, a scorer, optional packages, and a place for uploads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crawler.errors import UserError
from crawler.hooks import PAGE_HOOKS, SINKS, load
from crawler.settings.load import CrawlSettings, raise_for
from crawler.settings.policies import SCORERS, located


def check_installed(settings: CrawlSettings) -> None:
    """Import the code that `settings` name. Raises SettingsInvalid, which names each setting whose code is missing."""
    raise_for(missing(settings))


def missing(settings: CrawlSettings) -> Iterator[str]:
    """Return one line for each function and package that `settings` need and that cannot be imported, and for a place for
    uploads that cannot be used."""
    archive, scorer = settings.archive, settings.frontier.scorer
    groups = {
        "archive.on_page": (archive.on_page, PAGE_HOOKS),
        "archive.sinks": (archive.sinks, SINKS),
        "frontier.scorer": ((scorer,) if scorer else (), SCORERS),
    }
    for name, (functions, group) in groups.items():
        for function in functions:
            yield from _problem(settings, name, lambda function=function, group=group: load(function, group))  # type: ignore[misc]
    if settings.handlers.app:
        from crawler.handlers.lifecycle import app_settings  # noqa: PLC0415 - imports the parsers, which takes long
        from crawler.handlers.router import load_router  # noqa: PLC0415

        problems = list(_problem(settings, "handlers.app", lambda: load_router(settings.handlers.app)))
        yield from problems
        if not problems:
            router = load_router(settings.handlers.app)
            yield from _problem(settings, "app", lambda: app_settings(router, settings.app))
    if archive.parquet:
        from crawler.sinks.parquet import require_pyarrow  # noqa: PLC0415 - imports the parsers, which takes long

        yield from _problem(settings, "archive.parquet", lambda: require_pyarrow("Parquet"))
    if archive.upload:
        from crawler.sinks.upload import check_upload  # noqa: PLC0415

        yield from _problem(settings, "archive.upload", lambda: check_upload(archive.upload))


def _problem(settings: CrawlSettings, name: str, need: Callable[[], object]) -> Iterator[str]:
    try:
        need()
    except UserError as error:
        yield located(settings, name, str(error))
