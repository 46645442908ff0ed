"""Decides which settings a replica takes from Redis: code and exceptions to the address rules come from its own machine.

All replicas share the settings of a crawl through Redis, so whoever can write there can control a crawl. `GUARDED`
lists the settings with which they could do more: run code on the replicas, reach into their network, or read and send
their files. A value of these is accepted if it is the default, if the replica's own file, environment or command line
has it too, or if `replica.accept` lists it. The embedded store belongs to the machine, and only its user can write to
it: all is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator

from crawler.errors import UserError
from crawler.settings.load import CrawlSettings, Settings
from crawler.settings.tables import GUARDED
from frontier.redis_url import display_url

MOST_VALUES = 5
"""Refused values that are named."""


def accepted(settings: Settings) -> frozenset[str]:
    """What a process with `settings` accepts from Redis, as entries of `replica.accept`."""
    if not settings.replica.redis:
        return GUARDED
    return frozenset(settings.replica.accept) | frozenset(_entries(settings.crawl))


def check_guarded(stored: CrawlSettings, accept: Collection[str], names: Collection[str] = GUARDED) -> None:
    """Check the settings `names` of a crawl as they are in Redis. Raises UserError if `accept` does not allow one."""
    refused = _refused(stored, accept, names)
    if not refused:
        return
    values = [
        f"{name} = {(display_url(value) if name == 'archive.upload' else value)[:100]!r}" for name, value in refused
    ]
    more = f" and {len(values) - MOST_VALUES:,} more values" if len(values) > MOST_VALUES else ""
    are, these = ("they are", "these settings") if len(values) > 1 else ("it is", "this setting")
    line = consent(name for name, _ in refused)
    raise UserError(
        f"{', '.join(values[:MOST_VALUES])}{more} {are.split()[1]} set in Redis but not on this machine, so {are} "
        f"refused: set the same here, or accept any value of {these} (replica.accept): {line}"
    )


def needs_consent(settings: CrawlSettings) -> list[str]:
    """Return the names of the settings of a crawl that the machine of each replica has to accept."""
    return list(dict.fromkeys(name for name, _ in _refused(settings, ())))


def consent(names: Iterable[str]) -> str:
    """Return the environment variable with which a replica accepts all values of the settings `names`."""
    return f"CRAWLER_REPLICA__ACCEPT={','.join(dict.fromkeys(names))}"


def _refused(stored: CrawlSettings, accept: Collection[str], names: Collection[str] = GUARDED) -> list[tuple[str, str]]:
    allowed = {*accept, *_entries(CrawlSettings())}
    entries = ((entry, *entry.partition("=")) for entry in _entries(stored))
    return [(name, value) for entry, name, _, value in entries if name in names and not {name, entry} & allowed]


def _entries(settings: CrawlSettings) -> Iterator[str]:
    """Each value of the guarded settings as NAME=VALUE; each item of a list is a value of its own."""
    values = settings.flat()
    for name in sorted(GUARDED):
        for item in values[name] if isinstance(values[name], list) else [values[name]]:
            yield f"{name}={item if isinstance(item, str) else json.dumps(item)}"
