"""Running replicas follow changes of the crawl's settings.

Each save of the settings counts as a revision (`lua/save_settings.lua`), and the look at the operator's word that each
replica takes every second brings its number along. When that has moved, the settings are read, and those that may
change under way go to the parts that hold them, in one place (`Engine.apply`). The others wait for a restart and are
told: in the log, in the health record, by `crawler status`. Settings that no replica could use change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast, get_args

import msgspec

from crawler.errors import UserError
from crawler.events import Events, SettingsFollowed, SettingsRefused
from crawler.settings.model import CrawlSettings
from crawler.settings.tables import Table
from frontier.crawls import Crawl, open_crawl
from frontier.errors import BadInput
from frontier.store import Store


class Step(msgspec.Struct, frozen=True):
    """From the settings that a replica obeys to those that it shall obey. `settings`: what it obeys from now on;
    `followed`: names of those that change with that; `waiting`: of those that differ until the replica is restarted."""

    settings: CrawlSettings
    followed: tuple[str, ...]
    waiting: tuple[str, ...]


def waits_because(name: str) -> str:
    """Why a change of the crawl's setting `name` ("table.key", or a repeated table) waits for a restart of the replicas; ""
    if running replicas follow it."""
    table, _, key = name.partition(".")
    annotation = CrawlSettings.model_fields[table].annotation
    model = cast(type[Table], get_args(annotation)[0] if get_args(annotation) else annotation)
    return model.waits_because(key) if key else model.restart


def plan_step(current: CrawlSettings, wanted: CrawlSettings) -> Step:
    """What a replica that obeys `current` does when it shall obey `wanted`."""
    before, after = current.flat(), wanted.flat()
    differing = [name for name in after if after[name] != before[name]]
    waiting = tuple(name for name in differing if waits_because(name))
    values = wanted.model_dump()
    for name in waiting:
        table, _, key = name.partition(".")
        if key:
            values[table][key] = getattr(getattr(current, table), key)
        else:
            values[table] = getattr(current, table)
    followed = tuple(name for name in differing if name not in waiting)
    return Step(CrawlSettings.model_validate(values), followed, waiting)


class Follower:
    """What one replica obeys. `revision`: the latest that it obeys as a whole; `waiting`: settings of a later one that wait
    for its restart; `refused`: why it cannot use the latest, or "".

    `apply` takes settings up, or raises UserError or BadInput and changes nothing.
    """

    def __init__(
        self,
        store: Store,
        crawl: Crawl,
        settings: CrawlSettings,
        apply: Callable[[CrawlSettings], None],
        events: Events,
    ) -> None:
        self._store = store
        self._name = crawl.name
        self._settings = settings
        self._apply = apply
        self._events = events
        self._seen = self.revision = crawl.revision
        self.waiting: tuple[str, ...] = ()
        self.refused = ""

    def __repr__(self) -> str:
        return f"<Follower revision={self.revision} waiting={len(self.waiting)}>"

    async def follow(self, revision: int) -> None:
        """Obey the settings of `revision`, or of a later one. Raises RedisAway, then nothing has changed."""
        if revision == self._seen:
            return
        crawl = await open_crawl(self._store, self._name)
        self._seen = crawl.revision
        try:
            step = plan_step(self._settings, CrawlSettings.from_json(crawl.settings))
            self._apply(step.settings)
        except (UserError, BadInput) as error:
            self.refused = str(error)
            self._events.emit(SettingsRefused(crawl.revision, self.refused))
            return
        self._settings, self.waiting, self.refused = step.settings, step.waiting, ""
        if not step.waiting:
            self.revision = crawl.revision
        self._events.emit(SettingsFollowed(crawl.revision, step.followed, step.waiting))
