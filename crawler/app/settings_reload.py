"""Applies changes of the crawl's settings to running replicas.

Each save of the settings increments their revision (`lua/save_settings.lua`). Replicas read the revision every second,
together with the operator's commands. When it has changed, a replica reads the settings and applies those that can change
while it runs (`Engine._apply`). The others wait for a restart; they are named in the log, in the health record and by
`crawler status`. If the new settings cannot be used, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from crawler.errors import UserError
from crawler.events import Events, SettingsFollowed, SettingsRefused
from crawler.settings.guarded import check_guarded
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import LOADED, keys_of
from frontier.crawls import Crawl, open_crawl
from frontier.errors import BadInput
from frontier.store import Store


class Step(msgspec.Struct, frozen=True):
    """A change of the settings that a replica applies. `settings`: the settings that apply from now on; `followed`: the
    names of those that change now; `waiting`: the names of those that change after a restart of the replica."""

    settings: CrawlSettings
    followed: tuple[str, ...]
    waiting: tuple[str, ...]


def waits_because(name: str) -> str:
    """Return why a change of the crawl's setting `name` ("table.key", or a repeated table) needs a restart of the replicas;
    "" if running replicas apply it."""
    table, _, key = name.partition(".")
    declared = keys_of(CrawlSettings)[table]
    if declared.is_map:
        return LOADED
    model = declared.type
    return str(model.waits_because(key) if key else model.restart)


def plan_step(current: CrawlSettings, wanted: CrawlSettings) -> Step:
    """Return the step of a replica that applies `current` when the crawl's settings become `wanted`."""
    before, after = current.flat(), wanted.flat()
    differing = [name for name in after if after[name] != before[name]]
    waiting = tuple(name for name in differing if waits_because(name))
    step = wanted
    for name in waiting:
        table, _, key = name.partition(".")
        kept = getattr(current, table)
        step = replace(step, **{table: replace(getattr(step, table), **{key: getattr(kept, key)}) if key else kept})
    followed = tuple(name for name in differing if name not in waiting)
    return Step(step, followed, waiting)


class Follower:
    """Keeps one replica on the crawl's current settings. `revision`: the latest revision that it applies completely;
    `settings`: those that it applies; `waiting`: settings of a later revision that wait for a restart; `refused`: why the
    latest one cannot be used, or "".

    `apply` applies settings of a revision, or raises UserError or BadInput and changes nothing. `accept`: the guarded
    settings that may come from Redis (`crawler.settings.guarded`).
    """

    def __init__(
        self,
        store: Store,
        crawl: Crawl,
        settings: CrawlSettings,
        apply: Callable[[CrawlSettings, int], None],
        events: Events,
        accept: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._name = crawl.name
        self.settings = settings
        self._apply = apply
        self._events = events
        self._accept = accept
        self._seen = self.revision = crawl.revision
        self.waiting: tuple[str, ...] = ()
        self.refused = ""

    def __repr__(self) -> str:
        return f"<Follower revision={self.revision} waiting={len(self.waiting)}>"

    async def follow(self, revision: int) -> None:
        """Apply the settings of `revision`, or of a later one. Raises RedisAway; nothing has changed then."""
        if revision == self._seen:
            return
        crawl = await open_crawl(self._store, self._name)
        self._seen = crawl.revision
        try:
            wanted = CrawlSettings.from_json(crawl.settings)
            check_guarded(wanted, self._accept)
            step = plan_step(self.settings, wanted)
            self._apply(step.settings, crawl.revision)
        except (UserError, BadInput) as error:
            details = error.details if isinstance(error, UserError) else ()
            self.refused = "; ".join(details) or str(error)
            self._events.emit(SettingsRefused(crawl.revision, self.refused))
            return
        self.settings, self.waiting, self.refused = step.settings, step.waiting, ""
        if not step.waiting:
            self.revision = crawl.revision
        self._events.emit(SettingsFollowed(crawl.revision, step.followed, step.waiting))
