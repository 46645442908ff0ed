"""Whether the settings of a start are those of the crawl that it starts, and which of them count if they are not.

All replicas obey the settings of the crawl, and a URL that they deny is settled for good. So a start with other settings
changes nothing until the user has said which of the two count.

`crawler crawl` asks for all settings that it has, its defaults included. `seed` and `run` join a crawl that has settings
already. They ask for all of them by a settings file with tables of the crawl, as `config apply` does; without one, only for
those that the environment names. What it may change is less: by a settings file all settings, without one those that flags
and environment name. So to raise one limit does not reset the rest.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import msgspec

from crawler.errors import SettingsDiffer, UserError
from crawler.logs import log
from crawler.settings.model import CrawlSettings, Settings
from crawler.settings.policies import check
from crawler.settings.reference import as_toml
from crawler.settings.tables import Table
from frontier.crawls import Crawl, open_crawl, save_settings
from frontier.store import Store, without_password

OnDifference = Literal["stop", "keep", "apply"]
"""What a start does if its settings differ: stop, go on with those of the crawl, or change those that it names."""

_SHARDS = "frontier.shards"

_DEFAULTS = CrawlSettings().flat()


class Difference(msgspec.Struct, frozen=True):
    """A setting ("table.key") whose value `here`, in the start, is not that of the crawl."""

    name: str
    crawl: Any
    here: Any

    def __str__(self) -> str:
        crawl, here = (_shown(self.name, value) for value in (self.crawl, self.here))
        if crawl == here:
            return f"{self.name}: differs in a part that is not shown"
        return f"{self.name}: {crawl} in the crawl, {here} here"


async def settle(
    store: Store, opened: Crawl, settings: Settings, on_difference: OnDifference, whole: bool = False
) -> Crawl:
    """The crawl `opened` with the settings that a start with `settings` goes on with. `whole`: the start asks for all
    settings that it has.

    Raises SettingsDiffer if they differ and `on_difference` is "stop", SettingsMoved if somebody else has replaced the
    settings of the crawl since it was opened, UserError or BadInput for settings that cannot be used, RedisAway. Nothing
    has changed then.
    """
    stored = _with_shards(CrawlSettings.from_json(opened.settings), opened.shards)
    wanted = _wanted(settings, stored, whole=False)
    named = differences(stored, wanted)
    found = differences(stored, _wanted(settings, stored, whole))
    if found and on_difference == "stop":
        raise SettingsDiffer(opened.name, tuple(map(str, found)), tuple(one.name for one in named))
    if not named or on_difference == "keep":
        _log("setting_ignored", named)
        return opened
    if wanted.frontier.shards != opened.shards:
        raise UserError(
            f"{_SHARDS} is {opened.shards} for the whole life of crawl {opened.name!r}: "
            "leave it out, or start a crawl of another name with --crawl NAME"
        )
    check(wanted)
    await save_settings(store, opened, wanted.to_json())
    _log("setting_changed", named)
    return await open_crawl(store, opened.name)


def differences(stored: CrawlSettings, wanted: CrawlSettings) -> list[Difference]:
    """The settings in which `wanted` differs from `stored`, in the order of the tables."""
    before, after = stored.flat(), wanted.flat()
    return [Difference(name, before[name], after[name]) for name in after if after[name] != before[name]]


def _log(event: str, found: list[Difference]) -> None:
    for one in found:
        log(logging.WARNING, event, difference=one)


def _wanted(settings: Settings, stored: CrawlSettings, whole: bool) -> CrawlSettings:
    """What a start with `settings` asks for of a crawl with the settings `stored`."""
    if not (whole or settings.file_has_crawl_tables):
        return _named(settings, stored)
    if "shards" in settings.frontier.model_fields_set:
        return settings.crawl
    return _with_shards(settings.crawl, stored.frontier.shards)  # the default depends on the store


def _named(settings: Settings, stored: CrawlSettings) -> CrawlSettings:
    """`stored` with what `settings` does not have from its defaults."""
    values: dict[str, Any] = {}
    for name in settings.model_fields_set & CrawlSettings.model_fields.keys():
        table = getattr(settings, name)
        if isinstance(table, Table):
            named = {key: getattr(table, key) for key in table.model_fields_set}
            table = getattr(stored, name).model_copy(update=named)
        values[name] = table
    return stored.model_copy(update=values)


def _with_shards(settings: CrawlSettings, shards: int) -> CrawlSettings:
    return settings.model_copy(update={"frontier": settings.frontier.model_copy(update={"shards": shards})})


def _shown(name: str, value: Any) -> str:
    """`value` as TOML, without the passwords and tokens that URLs may hold."""
    mark = " (the default)" if value == _DEFAULTS[name] else ""
    if name == "archive.upload":
        value = without_password(value)
    elif name == "schedule":
        value = [{**duty, "sitemap": without_password(duty["sitemap"])} for duty in value]
    return ("unset" if value is None else as_toml(value)) + mark
