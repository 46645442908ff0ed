"""The settings of a crawl: which ones apply to a command, how running replicas follow a change, and the copy in the
output.

All replicas use the settings of the crawl, and a URL that they deny is settled permanently. A command with different
settings therefore changes nothing until the user has chosen between the two.

`crawler crawl`, and any command with a settings file that has tables of the crawl, compares all settings, including
defaults; others compare only those set in the environment and by flags, and change only these. A command that names no
setting uses those of the crawl. `--allow` and `--port` add to the crawl's own lists, so a command without them takes
nothing away and does not differ.

Each save of the settings increments their revision (`lua/save_settings.lua`), which replicas read every second. They
apply what can change while they run (`Engine._apply`). The rest waits for a restart, and is named in the log and by
`crawler status`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from crawler.errors import SettingsDiffer, UserError
from crawler.events import Events, SettingsFollowed, SettingsRefused
from crawler.hooks import PAGE_HOOKS, SINKS, load
from crawler.logs import log
from crawler.settings.guarded import check_guarded
from crawler.settings.load import CrawlSettings, Settings, extended, raise_for
from crawler.settings.policies import SCORERS, check, located
from crawler.settings.reference import as_toml
from crawler.settings.tables import LOADED, keys_of
from crawler.sinks.files import whole_file
from crawler.sinks.lines import SETTINGS
from frontier.crawls import Crawl, open_crawl, save_settings
from frontier.errors import BadInput
from frontier.redis_url import display_url
from frontier.store import Store

OnDifference = Literal["stop", "keep", "apply"]
"""What a command does if its settings differ from the crawl's: stop, use those of the crawl, or change the crawl's."""

_SHARDS = "frontier.shards"

_LISTS = ("allow", "ports")
"""The keys of `[fetch]` to which `--allow` and `--port` add."""

SHOWN, LONGEST_VALUE = 4, 40
"""Settings that are named in a line, and characters of the value of each."""

_DEFAULTS = CrawlSettings().flat()


class Difference(msgspec.Struct, frozen=True):
    """A setting ("table.key") whose value in the command, `here`, differs from its value in the crawl."""

    name: str
    crawl: Any
    here: Any

    def __str__(self) -> str:
        crawl, here = (without_secrets(self.name, value) for value in (self.crawl, self.here))
        if crawl == here:
            return f"{self.name}: differs in a part that is not shown"
        marks = [" (the default)" if value == _DEFAULTS[self.name] else "" for value in (self.crawl, self.here)]
        return "; ".join(
            f"{place}: {_text(before)}{marks[0]} in the crawl, {_text(after)}{marks[1]} here"
            for place, before, after in _parts(self.name, crawl, here)
        )


class Choice(msgspec.Struct, frozen=True):
    """The settings that apply to a command. `changes`: those that have to be stored first, because they are new."""

    settings: CrawlSettings
    changes: list[Difference]


async def choose_and_adopt(
    store: Store, opened: Crawl, settings: Settings, on_difference: OnDifference, whole: bool = False
) -> Crawl:
    """Return `opened` with the settings that apply. `whole`: compare defaults, too. Raises as `choose` and `adopt`."""
    return await adopt(store, opened, choose(opened, settings, on_difference, whole))


def choose(opened: Crawl, settings: Settings, on_difference: OnDifference, whole: bool = False) -> Choice:
    """Return which settings apply to a command with `settings` for the crawl `opened`. `whole`: compare all settings,
    including defaults, if the command names any.

    Raises SettingsDiffer if they differ and `on_difference` is "stop", and UserError or BadInput if the settings cannot
    be used.
    """
    stored = CrawlSettings.from_json(opened.settings).with_shards(opened.shards)
    whole = whole and not settings.name_none_of_a_crawl
    wanted = _wanted(settings, stored, whole=False)
    named = differences(stored, wanted)
    found = differences(stored, _wanted(settings, stored, whole))
    if found and on_difference == "stop":
        raise SettingsDiffer(opened.name, tuple(map(str, found)), tuple(one.name for one in named))
    if not named or on_difference == "keep":
        _log("setting_ignored", named)
        return Choice(stored, [])
    if wanted.frontier.shards != opened.shards:
        raise UserError(
            f"{_SHARDS} is {opened.shards} in crawl {opened.name!r}: leave it out, or change it with `crawler reshard "
            f"--shards {wanted.frontier.shards}`"
        )
    check(wanted)
    return Choice(wanted, named)


async def adopt(store: Store, opened: Crawl, choice: Choice) -> Crawl:
    """Store the changes in `choice`. Raises SettingsOutdated if others have changed the settings meanwhile, and
    RedisAway."""
    if not choice.changes:
        return opened
    await save_settings(store, opened, choice.settings.to_json())
    _log("setting_changed", choice.changes)
    return await open_crawl(store, opened.name)


def own_settings(stored: CrawlSettings) -> str:
    """Return the settings of a crawl that are not the defaults, as text of about a line; "" if there are none."""
    found = differences(CrawlSettings().with_shards(stored.frontier.shards), stored)
    shown = [_own(one) for one in found[:SHOWN]]
    more = f" and {len(found) - SHOWN:,} more (`crawler config show`)" if len(found) > SHOWN else ""
    return ", ".join(shown) + more


def _own(one: Difference) -> str:
    text = _text(without_secrets(one.name, one.here))
    if len(text) <= LONGEST_VALUE:
        return f"{one.name} = {text}"
    return f"{one.name} = {text[:LONGEST_VALUE]}..."


def differences(stored: CrawlSettings, wanted: CrawlSettings) -> list[Difference]:
    """Return the settings in which `wanted` differs from `stored`, in the order of the tables."""
    before, after = stored.flat(), wanted.flat()
    return [Difference(name, before[name], after[name]) for name in after if after[name] != before[name]]


def _log(event: str, found: list[Difference]) -> None:
    for one in found:
        log(logging.WARNING, event, difference=one)


def _wanted(settings: Settings, stored: CrawlSettings, whole: bool) -> CrawlSettings:
    if not (whole or settings.file_has_crawl_tables):
        wanted = settings.onto(stored)
    elif settings.names(_SHARDS):
        wanted = settings.crawl
    else:
        wanted = settings.crawl.with_shards(stored.frontier.shards)  # its default depends on the store
    unnamed = () if settings.file_has_crawl_tables else (key for key in _LISTS if not settings.names(f"fetch.{key}"))
    own = {key: getattr(stored.fetch, key) for key in (*settings.added, *unnamed)}
    return replace(wanted, fetch=extended(replace(wanted.fetch, **own), settings.added))


def _parts(place: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    tables = [_table(value) for value in (before, after)]
    if not all(tables) or (isinstance(before, list | tuple) and len(before) != len(after)):
        yield place, before, after
        return
    for key in {**tables[0], **tables[1]}:
        one, other = (table.get(key) for table in tables)
        if one != other:
            yield from _parts(f"{place}.{key}", one, other)


def _table(value: Any) -> dict[str, Any]:
    """Return `value` if it is a table, or the tables in it by their numbers if it is a list of tables; else {}."""
    if isinstance(value, list | tuple) and all(isinstance(one, dict) for one in value):
        return {str(number): one for number, one in enumerate(value)}
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return "unset" if value is None else as_toml(value)


def without_secrets(name: str, value: Any) -> Any:
    """Return `value` of the setting `name` for display: without passwords and tokens in URLs."""
    if name in ("archive.upload", "replica.redis"):
        return display_url(value)
    return value


def waits_because(name: str) -> str:
    """Return why a change of the crawl's setting `name` waits for a restart of the replicas; "" if it does not."""
    table, _, key = name.partition(".")
    declared = keys_of(CrawlSettings)[table]
    if declared.is_map:
        return LOADED
    model = declared.type
    return str(model.waits_because(key) if key else model.restart)


def plan_step(current: CrawlSettings, wanted: CrawlSettings) -> tuple[CrawlSettings, tuple[str, ...], tuple[str, ...]]:
    """Return what a replica applies from now on, the names of what changes now, and of what waits for its restart."""
    names = [difference.name for difference in differences(current, wanted)]
    waiting = tuple(name for name in names if waits_because(name))
    step = wanted
    for name in waiting:
        table, _, key = name.partition(".")
        kept = getattr(current, table)
        step = replace(step, **{table: replace(getattr(step, table), **{key: getattr(kept, key)}) if key else kept})
    return step, tuple(name for name in names if name not in waiting), waiting


class Follower:
    """Keeps one replica on the crawl's current settings. `revision`: the latest that it applies completely; `waiting`:
    what waits for a restart; `refused`: why the latest cannot be used, or "". `apply` raises UserError or BadInput, and
    changes nothing then. `accept`: guarded settings that may come from Redis."""

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
            settings, followed, waiting = plan_step(self.settings, wanted)
            self._apply(settings, crawl.revision)
        except (UserError, BadInput) as error:
            details = error.details if isinstance(error, UserError) else ()
            self.refused = "; ".join(details) or str(error)
            self._events.emit(SettingsRefused(crawl.revision, self.refused))
            return
        self.settings, self.waiting, self.refused = settings, waiting, ""
        if not waiting:
            self.revision = crawl.revision
        self._events.emit(SettingsFollowed(crawl.revision, followed, waiting))


_HEAD = "# The settings of the crawl that are not the defaults, except URLs with a password.\n"


def keep_settings(folder: Path, crawl: str, settings: CrawlSettings) -> bool:
    """Write down `settings` in the output folder, if there is one. An error is only logged: False then."""
    values, defaults = settings.flat(), CrawlSettings().flat()
    named = [name for name in values if name == "frontier.shards" or values[name] not in (defaults[name], None)]
    shown = [
        f"{name} = {as_toml(values[name])}\n" for name in named if without_secrets(name, values[name]) == values[name]
    ]
    path, text = folder / f"{crawl}{SETTINGS}", "".join([_HEAD, *shown])
    try:
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() == text.encode():
                return True
        if folder.is_dir():
            with whole_file(path) as scratch:
                scratch.write_text(text, encoding="utf-8")
                scratch.chmod(0o600)  # what is for the functions of a crawl ([app]) may be secret
    except OSError as error:
        log(logging.WARNING, "settings_not_kept", file=path, error=error)
        return False
    return True


def kept_settings(folders: Sequence[Path], crawl: str = "*") -> Path | None:
    """Return the file with the latest settings of `crawl` in `folders`; of the only crawl there if no name is given."""
    found = [path for folder in folders for path in folder.glob(f"{crawl}{SETTINGS}")]
    return max(found, key=lambda path: path.stat().st_mtime) if len({path.name for path in found}) == 1 else None


def check_installed(settings: CrawlSettings) -> None:
    """Import the code that `settings` name. Raises SettingsInvalid, which names each setting whose code is missing."""
    raise_for(missing(settings))


def missing(settings: CrawlSettings) -> Iterator[str]:
    """Return a line for each function, package and place for uploads that `settings` need and that cannot be used here."""
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
        from crawler.handlers.router import app_settings, load_router  # noqa: PLC0415 - imports the parsers

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
