"""Commands about settings: `init`, and `config` with show, check, explain, apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem
from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from crawler.app.crawl_settings import differences, missing, waits_because, without_secrets
from crawler.app.requests import request_setup
from crawler.cli import options as option
from crawler.cli.options import FILE, CrawlAccess, as_json, command, group, on_a_crawl
from crawler.cli.screens import TextTable
from crawler.cli.text import emit, note
from crawler.errors import UserError
from crawler.settings import reference
from crawler.settings.load import CrawlSettings, Settings, load, raise_for
from crawler.settings.policies import check as check_usable
from crawler.settings.policies import unusable
from crawler.settings.reference import Setting
from frontier.crawls import Crawl, save_settings
from frontier.store import RedisStore


class _Setting(click.ParamType[str]):
    """A table, a setting as "table.key", or once something is typed, a key alone."""

    name = "setting"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [setting.name for setting in reference.all_settings()]
        keys = [name.partition(".")[2] for name in names] if incomplete else []
        words = dict.fromkeys((*reference.tables(), *reference.repeated(), *names, *keys))
        return option.Word(words).shell_complete(ctx, param, incomplete)


@group()
def config() -> None:
    """Show, check, explain and apply settings."""


_file = click.argument("file", type=FILE, help="Settings file (TOML).")


class Change(msgspec.Struct, frozen=True):
    """A changed setting. `because`: why it waits, or ""; `is_reset`: to its default, as the file does not name it."""

    name: str
    before: Any
    after: Any
    takes_effect: str
    because: str
    is_reset: bool = False


@command()
@click.argument("file", type=FILE, default="crawler.toml", help="Where to write.")
@click.option(
    "--preset",
    "-p",
    type=option.Word(reference.PRESETS),
    metavar="NAME",
    default="polite",
    help=f"One of {', '.join(reference.PRESETS)}.",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
def init(file: Path, preset: str, force: bool) -> None:
    """Write a settings file in which every setting is explained.

    Examples:

        crawler init
        crawler init archive.toml --preset archive
    """
    text = reference.commented_file(preset)
    if file.exists() and not force:
        raise UserError(f"{file} exists already; choose another name or add --force")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
    click.echo(f"{file} written; use it with --settings {file}")


@config.command()
@on_a_crawl
@as_json
def show(access: CrawlAccess, as_json: bool) -> None:
    """Show the settings that all replicas of a crawl use.

    Example:

        crawler config show --crawl news
    """
    opened = access.read()
    tables = _tables(_without_secrets(CrawlSettings.from_json(opened.settings).flat()))
    emit(tables, as_json, Group(Text(f"# revision {opened.revision}", style="dim"), _toml(tables)), wraps=False)


@config.command()
@_file
@as_json
def check(file: Path, as_json: bool) -> None:
    """Check a settings file, and show the resulting settings, including environment variables. Exit code 2 if it is
    invalid, if a hook or package that it needs is not installed here, or if a key of `identity` or an environment variable
    of `requests` cannot be used here.

    Example:

        crawler config check crawler.toml
    """
    loaded = load(file)
    raise_for([*unusable(loaded), *missing(loaded)])
    check_usable(loaded)
    request_setup(loaded)  # raises an error for a key or a secret that cannot be used
    values, defaults = loaded.flat(), Settings().flat()
    shown_values = _without_secrets(values)
    changed = _tables({name: value for name, value in shown_values.items() if values[name] != defaults[name]})
    warnings = [Text(f"warning: {warning}", style="yellow") for warning in loaded.crawl.warnings]
    what = "settings that differ from the defaults:" if changed else "all settings have their defaults"
    headline = Text(f"# {file} is valid; {what}")
    emit(shown_values, as_json, Group(headline, *([_toml(changed)] if changed else []), *warnings), wraps=False)


@config.command()
@click.argument("setting", required=False, type=_Setting(), help="A setting, its key, or a table.")
@as_json
def explain(setting: str | None, as_json: bool) -> None:
    """Explain a setting: its meaning, bounds and default, and when a change takes effect. Default: all settings.

    Examples:

        crawler config explain politeness.delay
        crawler config explain limits
    """
    found = reference.find(setting) if setting else reference.all_settings()
    before = ["", *(one.environment for one in found)]
    emit(found, as_json, Group(*map(_explained, found, before)))


@config.command()
@_file
@click.option("--replace", is_flag=True, help="Reset the settings that the file does not name to their defaults.")
@option.crawl_name
@option.redis
@option.data_dir
@as_json
def apply(file: Path, replace: bool, crawl: str, as_json: bool) -> None:
    """Change the settings of an existing crawl that a file or the environment names, and show what changes and when.

    All others stay as they are, unless `--replace` is given. Running replicas apply the changes within two seconds,
    except those that need a restart according to the table.

    Examples:

        crawler config apply slower.toml --crawl news
        crawler config apply crawler.toml --replace
    """
    loaded = load(file)

    async def work(store: RedisStore, opened: Crawl) -> tuple[list[Change], int, list[str]]:
        before = CrawlSettings.from_json(opened.settings)
        wanted = loaded.crawl if replace else loaded.onto(before)
        check_usable(wanted)
        changes = _changes(before, wanted, loaded)
        if changes and all(one.takes_effect == reference.CREATION for one in changes):
            raise UserError(f"nothing was changed: {'; '.join(map(_not_applied, changes))}")
        revision = await save_settings(store, opened, wanted.with_shards(before.frontier.shards).to_json())
        return changes, revision, wanted.warnings

    changes, revision, warnings = CrawlAccess.given(crawl, file).do(work)
    for warning in warnings:
        note(warning)
    emit(changes, as_json, _changed(changes, revision))


def _changes(before: CrawlSettings, wanted: CrawlSettings, loaded: Settings) -> list[Change]:
    """Return what `wanted` changes; of settings that are fixed, only those that `loaded` sets."""
    changes = []
    for one in differences(before, wanted):
        because, is_named = waits_because(one.name), loaded.names(one.name)
        if one.name not in reference.FIXED or is_named:
            when = reference.takes_effect(one.name, because)
            old, new = (without_secrets(one.name, value) for value in (one.crawl, one.here))
            changes.append(Change(one.name, old, new, when, because, not is_named))
    return changes


def _changed(changes: list[Change], revision: int) -> RenderableType:
    if not changes:
        return Text(f"nothing changes; the settings stay at revision {revision}")
    table = TextTable("setting", "before", "now", "takes effect", keeps="setting")
    for one in changes:
        table.add(one.name, _value(one.before), _value(one.after), one.takes_effect)
    reset = [one.name for one in changes if one.is_reset]
    lines = [Text(f"reset to the default, because the file does not name it: {name}", style="yellow") for name in reset]
    fixed = [one for one in changes if one.takes_effect == reference.CREATION]
    lines += [Text(_not_applied(one), style="yellow") for one in fixed]
    lines += [
        Text(f"{one.name} waits: {one.because}", style="dim") for one in changes if one.because and one not in fixed
    ]
    return Group(Text(f"settings revision {revision}"), table, *lines)


def _not_applied(change: Change) -> str:
    """Return that the crawl keeps a setting that only its creation can set."""
    how = f": `crawler reshard --shards {change.after}` changes it" if change.name == "frontier.shards" else ""
    return f"{change.name} stays {_value(change.before)}{how}"


def _value(value: Any) -> str:
    return "unset" if value is None else reference.as_toml(value)


def _without_secrets(values: dict[str, Any]) -> dict[str, Any]:
    return {name: without_secrets(name, value) for name, value in values.items()}


def _tables(values: dict[str, Any]) -> dict[str, Any]:
    """Return {"table.key": value} as {table: {key: value}}. A repeated table stays a list."""
    tables: dict[str, Any] = {}
    for name, value in values.items():
        table, dot, key = name.partition(".")
        if dot:
            tables.setdefault(table, {})[key] = value
        else:
            tables[table] = value
    return tables


def _toml(tables: dict[str, Any]) -> Text:
    blocks = []
    for table, content in tables.items():
        repeated = isinstance(content, list)
        for keys in content if repeated else [content]:
            blocks += ["", f"[[{table}]]" if repeated else f"[{table}]"]
            blocks += [
                f"# {key} is unset" if value is None else f"{reference.toml_key(key)} = {reference.as_toml(value)}"
                for key, value in keys.items()
            ]
    return Syntax("", "toml").highlight("\n".join(blocks[1:]))


def _explained(setting: Setting, variable_before: str) -> RenderableType:
    default = setting.default_text if setting.is_required else f"default {setting.default_text}"
    because = f": {setting.because}" if setting.because else ""
    # One variable sets all keys of a repeated table, and the first of them shows it.
    variable = f"environment {setting.environment}; " if setting.environment != variable_before else ""
    return Group(
        Text.assemble((setting.name, "bold green"), f"  {setting.kind}, {default}"),
        Text(f"  {setting.meaning}"),
        Text(f"  {variable}a change takes effect {setting.takes_effect}{because}", style="dim"),
        Text(),
    )
