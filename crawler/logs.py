"""Logs: one event name a kind of event, as text for people or JSON for machines, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import msgspec

from crawler import events as ev

log = logging.getLogger("crawler")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {"at": self.formatTime(record), "level": record.levelname.lower(), "event": record.getMessage()}
        return msgspec.json.encode({**fields, **getattr(record, "fields", {})}).decode()


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={value}" for key, value in getattr(record, "fields", {}).items())
        return f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()


def configure(form: Literal["console", "json"], level: str) -> None:
    """Send the crawler's log to standard error in the given form, from `level` ("info", "warning", "error") on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Console())
    log.handlers[:] = [handler]
    log.setLevel(level.upper())
    log.propagate = False


def tell(level: int, event: str, **fields: object) -> None:
    """Log `event` with its fields."""
    log.log(level, event, extra={"fields": fields})


class LogListener:
    """Logs the events that an operator wants to see one by one; the frequent ones are metrics."""

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._view: tuple[object, ...] = ()
        self._sink_blocked = False

    def observe(self, event: ev.Event) -> None:
        match event:
            case ev.ViewAdopted(view, owned, taken, dropped):
                seen = (view.index, view.replicas, owned)
                if seen != self._view:
                    self._view = seen
                    tell(
                        logging.INFO,
                        "view_adopted",
                        replica=self._replica,
                        epoch=view.epoch,
                        index=view.index,
                        replicas=view.replicas,
                        shards=owned,
                        taken=taken,
                        dropped=dropped,
                    )
            case ev.RedisLost(error):
                tell(logging.WARNING, "redis_lost", replica=self._replica, error=error)
            case ev.RedisFound(away_s):
                tell(logging.INFO, "redis_found", replica=self._replica, away_s=round(away_s, 1))
            case ev.HookFailed(hook, url, error):
                tell(logging.WARNING, "hook_failed", replica=self._replica, hook=hook, url=url, error=error)
            case ev.SinkBlocked(error) if not self._sink_blocked:
                self._sink_blocked = True
                tell(logging.ERROR, "sink_blocked", replica=self._replica, error=error)
            case ev.GroupCommitted():
                self._sink_blocked = False
            case ev.CrawlEnded(reason):
                tell(logging.INFO, "crawl_ended", replica=self._replica, reason=reason)
            case _:
                pass
