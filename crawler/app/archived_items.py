"""Finds items on archived pages, with the `[[extract]]` tables and the router of settings, without fetching anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from crawler.handlers.requests import KnownAnswers
from crawler.handlers.router import Context, Router, app_settings, load_router
from crawler.handlers.runner import HandlerRunner, Lifecycle
from crawler.page import Page
from crawler.parse.extraction import ExtractionJob
from crawler.settings.load import Settings
from crawler.settings.policies import extract_rules
from crawler.worker.items import with_items


class ItemFinder:
    """Puts items into pages, as a context for the pages of one file. Handlers for a label get none: archives have no
    labels."""

    def __init__(self, settings: Settings) -> None:
        # What other processes get: all settings cannot be pickled.
        self._rules = extract_rules(settings)
        self._max_decoded = settings.limits.max_decoded
        self._handlers = settings.handlers
        self._app = dict(settings.app)
        self._context()

    def _context(self) -> tuple[Router | None, Context]:
        router = load_router(self._handlers.app) if self._handlers.app else None
        return router, Context(app_settings(router, self._app) if router else None)

    @contextmanager
    def __call__(self) -> Iterator[Callable[[Page], Page]]:
        router, context = self._context()
        lifecycle = Lifecycle(router, context, self._handlers.timeout)
        with asyncio.Runner() as runner:

            def found(page: Page) -> Page:
                if page.exchange is None or not 200 <= page.exchange.status < 300:
                    return page
                if wanted := tuple(rule for rule in self._rules if rule.applies(page)):
                    job = ExtractionJob.of(page, wanted, self._max_decoded)
                    extraction = job.run(page.exchange.body)
                    page = replace(
                        page,
                        items=extraction.items,
                        rejected=extraction.rejected,
                        rejected_by=extraction.rejected_by,
                    )
                if handlers is not None and page.items and handlers.changes_items:
                    changed = runner.run(handlers.changed(page.items))
                    page = replace(with_items(page, changed.items, changed.rejected), handler_error=changed.error)
                if handlers is not None and not page.handler_error:
                    answers = KnownAnswers((one.exchange.url, one.exchange) for one in page.extras)
                    handled = runner.run(handlers.handle(page, answers))
                    items = () if handled.error else (*page.items, *handled.items)
                    page = replace(with_items(page, items, handled.rejected), handler_error=handled.error)
                return page

            runner.run(lifecycle.start())
            handlers = HandlerRunner(router, self._handlers, context) if router else None
            try:
                yield found
            finally:
                runner.run(lifecycle.stop())
