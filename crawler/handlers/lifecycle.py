"""Calls the functions of a router that run when a replica starts and when it ends, and holds what they share."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from crawler.errors import UserError
from crawler.handlers.async_or_thread import begin
from crawler.handlers.router import Hook, Router, name_of
from crawler.logs import log


class Context:
    """What all functions of a router share in one replica. `settings`: the table `[app]`, as the router's schema or as a
    dict; `state`: a dict for whatever they keep, such as a pool of connections; `crawl`, `replica`: their names."""

    def __init__(self, settings: Any = None, crawl: str = "", replica: str = "") -> None:
        self.settings: Any = {} if settings is None else settings
        self.state: dict[str, Any] = {}
        self.crawl = crawl
        self.replica = replica

    def __repr__(self) -> str:
        return f"<Context {self.crawl} {self.replica}>"


def app_settings(router: Router, values: dict[str, Any]) -> Any:
    """Return the settings in `values` as the schema of `router`. Raises UserError if they do not fit."""
    if router.settings is None:
        return values
    try:
        return msgspec.convert(values, router.settings)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise UserError(f"[app]{place.rstrip('`')}: {problem}") from error


class Lifecycle:
    """Starts and ends the functions of `router`; None if there is none. A call may take `timeout_s` seconds."""

    def __init__(self, router: Router | None, context: Context, timeout_s: float) -> None:
        self._router = router
        self._context = context
        self._timeout_s = timeout_s
        self._has_started = False

    async def start(self) -> None:
        """Call the functions for the start in their order. Raises UserError if one raises, or takes too long."""
        if self._router is None:
            return
        self._has_started = True
        for hook in self._router.starting:
            if problem := await self._problem(hook):
                raise UserError(f"{name_of(hook)}, which runs at the start (on_start), failed: {problem}")

    async def stop(self) -> None:
        """Call the functions for the end in reverse order, also those whose start has failed. Failures are logged."""
        if self._router is None or not self._has_started:
            return
        self._has_started = False
        for hook in reversed(self._router.ending):
            if problem := await self._problem(hook):
                log(
                    logging.WARNING, "end_hook_failed", replica=self._context.replica, hook=name_of(hook), error=problem
                )

    async def _problem(self, hook: Hook) -> str:
        call = begin(hook, (self._context,), lambda: None)
        done, _ = await asyncio.wait([call], timeout=self._timeout_s)
        if not done:
            call.cancel()
            return f"took longer than {self._timeout_s:g} s"
        if call.cancelled():
            return "CancelledError"
        error = call.exception()
        return "" if error is None else f"{type(error).__name__}: {error}"
