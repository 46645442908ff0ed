"""Logs on standard error, as text for people or as JSON for programs. Each kind of event has one name.

A thread writes the lines, so a reader that stalls holds up nothing. Lines that do not fit into its queue are dropped, and
counted in the next one that does. Credentials in URLs are removed from all fields, and control characters are written as
escapes. A warning or an error that repeats is written a few times a minute; the others are only counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from crawler import events as ev
from frontier.redis_url import OPEN_OPTIONS

logger = logging.getLogger("crawler")

BURST, WINDOW_S = 5, 60.0
"""How many warnings and errors of one name are written in a window. The first after the window has the number of those that
were suppressed, as `held_back`, and so has the line `held_back` when a replica stops."""

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line separators, and controls of the text direction
    "\ud800-\udfff]"  # lone surrogates, which cannot be encoded
)
_CREDENTIALS = re.compile(
    r"(?<=://)(?!USER:PASSWORD@)[^/@\s]*@|(?<=[?&])(\w*password=)(?!PASSWORD\b)[^&\s]*", re.IGNORECASE
)
"""Those of any URL. USER and PASSWORD stand for them in commands to be copied."""

_OF_REDIS = re.compile(r"((?:rediss?|valkeys?|unix)(?:\+\w+)?:/++)(?!USER:PASSWORD@)\S*@", re.IGNORECASE)
"""Those of a Redis URL, which may contain any character. A URL that was taken for a path has one slash."""

_OPTIONS = re.compile(r"(?<![^\W_])(?:rediss?|valkeys?|unix)(?:\+\w+)?:/\S*?\?\S+", re.IGNORECASE)
_OPTION = re.compile(r"(?<=[?&])([^?&=\s]+=)(?!(?:USER|PASSWORD)(?![^&\W]))[^&\s]*")
"""A Redis URL with options, and one of these."""


def without_secrets(text: str) -> str:
    """Return `text` with `***` for the credentials in all URLs, and for the options of Redis URLs that may be secret."""
    text = _OPTIONS.sub(lambda url: _OPTION.sub(_shown_option, url[0]), _OF_REDIS.sub(r"\1***@", text))
    return _CREDENTIALS.sub(lambda match: "***@" if match[0].endswith("@") else f"{match[1]}***", text)


def _shown_option(option: re.Match[str]) -> str:
    return option[0] if option[1][:-1] in OPEN_OPTIONS else f"{option[1]}***"


def printable(text: str) -> str:
    r"""Return `text` with each character that a terminal may act on written as `\uXXXX`. JSON keeps its meaning."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")  # RFC 3339
        about = {"at": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "event": record.getMessage()}
        return printable(msgspec.json.encode({**about, **_fields(record)}).decode())


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        found = _fields(record)
        trace = found.pop("traceback", "")
        fields = " ".join(f"{key}={value}" for key, value in found.items()).replace("\n", "\\n")
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} {record.getMessage()} {fields}"
        return printable(f"{line.rstrip()}\n{trace}".rstrip())


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[0] is not None:
        fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
    return {name: _shown_field(value) for name, value in fields.items()}


def _shown_field(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_shown_field(item) for item in value]
    return value if value is None or isinstance(value, int | float) else without_secrets(str(value))


class Repeats(logging.Filter):
    """Passes at most `BURST` warnings and errors of one name in a window, and reports the number of suppressed ones with
    the next."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._windows: dict[str, tuple[float, int]] = {}  # event -> start of its window, count in it

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        # Messages of asyncio have further lines, which differ.
        now, event = self._monotonic(), record.getMessage().partition("\n")[0]
        began, count = self._windows.get(event, (float("-inf"), 0))
        if now - began < WINDOW_S:
            self._windows[event] = (began, count + 1)
            return count < BURST
        self._windows[event] = (now, 1)
        if count > BURST:
            record.fields = {**getattr(record, "fields", {}), "held_back": count - BURST}
        return True

    def rest(self) -> dict[str, int]:
        """Return how many warnings and errors of each name were suppressed and not reported yet, and forget them."""
        left = {event: count - BURST for event, (_, count) in self._windows.items() if count > BURST}
        self._windows.clear()
        return left


def log_held_back() -> None:
    """Log how many warnings and errors of each name were suppressed since the last line that says so."""
    for repeats in (one for handler in logger.handlers for one in handler.filters if isinstance(one, Repeats)):
        if left := repeats.rest():
            log(logging.WARNING, "held_back", **left)


STDERR = 2
"""The file descriptor of standard error."""

QUEUED = 10_000
"""Lines that wait for a reader that stalls: a few MB."""

EXIT_S = 1.0
"""Seconds for which a process that ends waits for such a reader."""


class _Writer(logging.Handler):
    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._lines: queue.Queue[str | None] = queue.Queue(QUEUED)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._dropped and not self._lines.full():
            record.fields = {**getattr(record, "fields", {}), "lines_dropped": self._dropped}
            self._dropped = 0
        try:
            self._lines.put_nowait(self.format(record) + "\n")
        except queue.Full:
            self._dropped += 1

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            # Not through `sys.stderr`: its lock would then hold up everybody else who writes to it.
            rest = memoryview(line.encode(errors="backslashreplace"))
            with contextlib.suppress(OSError):  # nobody reads it any more
                while rest:
                    rest = rest[os.write(self._fd, rest) :]

    def close(self) -> None:
        """Wait until the lines are written, but no longer than `EXIT_S` for room in the queue and as long for the rest."""
        with contextlib.suppress(queue.Full):
            if self._dropped:  # by all lines since
                said = logging.LogRecord(logger.name, logging.WARNING, "", 0, "lines_dropped", (), None)
                said.fields, self._dropped = {"lines_dropped": self._dropped}, 0
                self._lines.put(self.format(said) + "\n", timeout=EXIT_S)
            self._lines.put(None, timeout=EXIT_S)
            self._thread.join(EXIT_S)
            # A reader that does not stall gets the last lines, also on a machine so busy that the thread has no turn.
            while self._thread.is_alive() and select.select([], [self._fd], [], 0)[1]:
                self._thread.join(EXIT_S)
        super().close()


def configure(form: Literal["console", "json"], level: str, stream: TextIO | None = None) -> None:
    """Write the crawler's log to `stream` (default: standard error) in the given form, starting at `level`
    ("debug", "info", "warning" or "error")."""
    handler: logging.Handler = logging.StreamHandler(stream)
    with contextlib.suppress(OSError, AttributeError):  # in a notebook, standard error is no file
        if stream is None and sys.stderr.fileno() == STDERR:
            handler = _Writer(STDERR)
    handler.setFormatter(_Json() if form == "json" else _Console())
    handler.addFilter(Repeats())
    logger.setLevel(level.upper())
    for one in (logger, logging.getLogger("asyncio")):  # which reports without end that it cannot accept connections
        for old in one.handlers:
            old.close()
        one.handlers[:] = [handler]
        one.propagate = False


def log(level: int, event: str, **fields: object) -> None:
    logger.log(level, event, extra={"fields": fields})


LOGGED: tuple[type[ev.Event], ...] = (
    ev.ViewAdopted,
    ev.RedisOutageBegan,
    ev.RedisOutageEnded,
    ev.ReplicasMissed,
    ev.HookFailed,
    ev.HandlerFailed,
    ev.HandlerLinkDropped,
    ev.LoginAsked,
    ev.BrowserNeeded,
    ev.HandlerStopsCrawl,
    ev.ItemsRejected,
    ev.DefectFound,
    ev.SinkBlocked,
    ev.OwnFailure,
    ev.GroupCommitted,
    ev.PageSettled,
    ev.SettingsFollowed,
    ev.SettingsRefused,
    ev.CrawlEnded,
)
"""The events that are logged at the level "info" or above: a state when it changes, warnings as `Repeats` passes them."""

DETAILS: tuple[type[ev.Event], ...] = (
    ev.DomainsLeased,
    ev.ShardFenced,
    ev.PageSettled,
    ev.RequisiteSettled,
    ev.RobotsFetchEnded,
    ev.BackedOff,
    ev.UrlPostponed,
    ev.GroupCommitted,
)
"""The events of which each is logged at the level "debug". Others are only metrics."""


class _Listener:
    def __init__(self, replica: str) -> None:
        self._replica = replica

    def _log(self, level: int, name: str, **fields: object) -> None:
        log(level, name, replica=self._replica, **fields)


class DetailListener(_Listener):
    """Logs the events in `DETAILS`, at the level "debug"."""

    def observe(self, event: ev.Event) -> None:
        match event:
            case ev.DomainsLeased(domains, urls, seconds):
                self._detail("domains_leased", domains=domains, urls=urls, seconds=round(seconds, 4))
            case ev.ShardFenced(message):
                self._detail("shard_fenced", message=message)
            case ev.PageSettled(page) | ev.RequisiteSettled(page):
                status = page.exchange.status if page.exchange else None
                about = {"url": page.url, "outcome": page.outcome, "reason": page.reason, "status": status}
                self._detail(
                    "requisite" if page.is_requisite else "page",
                    **about,
                    tries=page.tries,
                    **({"detail": page.detail} if page.detail else {}),
                )
            case ev.RobotsFetchEnded(origin, access, status, reason):
                self._detail("robots", origin=origin, access=access, status=status, reason=reason)
            case ev.BackedOff(reason, delay_s):
                self._detail("backed_off", reason=reason, delay_s=round(delay_s, 1))
            case ev.UrlPostponed(reason):
                self._detail("url_postponed", reason=reason)
            case ev.GroupCommitted(pages, done, stale=stale, lag_s=lag_s):
                self._detail("committed", pages=pages, done=done, stale=stale, lag_s=round(lag_s, 4))
            case _:
                pass

    def _detail(self, name: str, **fields: object) -> None:
        self._log(logging.DEBUG, name, **fields)


class LogListener(_Listener):
    """Logs the events in `LOGGED`."""

    def __init__(self, replica: str) -> None:
        super().__init__(replica)
        self._view: tuple[object, ...] = ()
        self._sink_blocked = False

    def observe(self, event: ev.Event) -> None:
        match event:
            case ev.PageSettled(page):  # first, because it is the most frequent
                if page.outcome == "dead" and page.depth == 0:
                    reason = f"{page.reason}: {page.detail}" if page.detail else page.reason
                    self._log(logging.WARNING, "seed_failed", url=page.url, reason=reason)
            case ev.GroupCommitted():
                if self._sink_blocked:
                    self._log(logging.INFO, "sink_back")
                self._sink_blocked = False
            case ev.ViewAdopted(view, owned, taken, dropped):
                seen = (view.index, view.replicas, owned)
                if seen != self._view:
                    self._view = seen
                    about = {"epoch": view.epoch, "index": view.index, "replicas": view.replicas, "shards": owned}
                    self._log(logging.INFO, "view_adopted", **about, taken=taken, dropped=dropped)
            case ev.RedisOutageBegan(error, node) | ev.ReplicasMissed(error, node):
                name = "redis_replicas_missing"
                if isinstance(event, ev.RedisOutageBegan):
                    name = "redis_shards_lost" if event.has_lost else "redis_away"
                self._log(logging.WARNING, name, **_node(node), error=error)
            case ev.RedisOutageEnded(away_s, node, is_replaced):
                name = "redis_node_replaced" if is_replaced else "redis_back"
                self._log(logging.INFO, name, **_node(node), away_s=round(away_s, 1))
            case ev.HookFailed(name, url, error):
                self._log(logging.WARNING, "hook_failed", hook=name, url=url, error=error)
            case ev.HandlerFailed(name, url, error, reason):
                self._log(logging.WARNING, reason, handler=name, url=url, error=error)
            case ev.HandlerLinkDropped(name, reason, url):
                self._log(logging.WARNING, "links_not_followed", handler=name, reason=reason, first=url)
            case ev.LoginAsked(domain, target, pages):
                self._log(logging.WARNING, "session_ended", domain=domain, redirects=pages, to=target)
            case ev.BrowserNeeded(shape, again):
                self._log(logging.INFO, "browser_needed", shape=shape, visited_again=again)
            case ev.ItemsRejected(url, count, first):
                self._log(logging.WARNING, "items_rejected", url=url, count=count, first=first)
            case ev.DefectFound(stage, url, error, trace):
                self._log(logging.ERROR, "defect", stage=stage, url=url, error=error, traceback=trace)
            case ev.HandlerStopsCrawl(name, url, reason):
                self._log(logging.WARNING, "handler_stops", handler=name, url=url, reason=reason)
            case ev.OwnFailure(kind, error):
                self._log(logging.WARNING, f"{kind}_failed", error=error)
            case ev.SinkBlocked(error):
                if not self._sink_blocked:
                    self._log(logging.ERROR, "sink_blocked", error=error)
                self._sink_blocked = True
            case ev.SettingsFollowed(revision, followed, waiting):
                level = logging.WARNING if waiting else logging.INFO
                fields = {"followed": ",".join(followed) or "none", "wait_for_restart": ",".join(waiting)}
                non_empty = {name: text for name, text in fields.items() if text}
                self._log(level, "settings_changed", revision=revision, **non_empty)
            case ev.SettingsRefused(revision, error):
                self._log(logging.ERROR, "settings_refused", revision=revision, error=error)
            case ev.CrawlEnded(reason):
                self._log(logging.INFO, "crawl_ended", reason=reason)
            case _:
                pass


def _node(node: str) -> dict[str, str]:
    return {"node": node} if node else {}
