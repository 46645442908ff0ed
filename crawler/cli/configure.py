"""Commands about settings: `init`, and `config` with show, check, explain, apply."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from crawler import reference, screens
from crawler.cli.options import AsJson, CrawlName, DataDir, Redis, SettingsFile
from crawler.cli.output import Where, emit
from crawler.errors import UserError
from crawler.reference import Setting
from crawler.settings import CrawlSettings, load
from frontier.crawls import Crawl, save_settings
from frontier.store import RedisStore, without_password

Preset = Annotated[str, typer.Option("--preset", "-p", help=f"One of {', '.join(reference.PRESETS)}.")]

config = typer.Typer(
    help="Settings: show those of a crawl, check a file, explain one, apply a file to a crawl.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


class Change(msgspec.Struct, frozen=True):
    """A setting whose value was replaced."""

    name: str
    before: Any
    after: Any
    takes_effect: str


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    for one in (show, check, explain, apply):
        config.command()(one)
    app.command()(init)
    app.add_typer(config, name="config")


def init(
    file: Annotated[Path, typer.Argument(help="Where to write.")] = Path("crawler.toml"),
    preset: Preset = "polite",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a settings file in which every setting is explained.

    [bold]Examples[/bold]

        crawler init

        crawler init archive.toml --preset archive
    """
    text = reference.commented_file(preset)
    if file.exists() and not force:
        raise UserError(f"{file} exists already; choose another name or say --force")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
    typer.echo(f"{file} written; use it with --settings {file}")


def show(
    crawl: CrawlName = "crawl",
    redis: Redis = None,
    data_dir: DataDir = None,
    settings: SettingsFile = None,
    json: AsJson = False,
) -> None:
    """The settings that all replicas of a crawl obey.

    [bold]Example[/bold]

        crawler config show --crawl news
    """

    async def look(store: RedisStore, opened: Crawl) -> CrawlSettings:
        return CrawlSettings.from_json(opened.settings)

    stored = Where(crawl, redis, data_dir, settings).do(look)
    emit(stored.model_dump(mode="json"), json, _toml(_flat(stored)))


def check(
    file: Annotated[Path, typer.Argument(help="Settings file (TOML).")],
    json: AsJson = False,
) -> None:
    """Whether a settings file is good, and what holds with it, environment variables included. Exit code 2 if not.

    [bold]Example[/bold]

        crawler config check crawler.toml
    """
    loaded = load(file)
    plain = [one for one in reference.all_settings() if one.table in reference.tables()]
    values = {one.name: _value(loaded, one.name) for one in plain}
    values["replica.redis"] = without_password(str(values["replica.redis"]))
    changed = {one.name: values[one.name] for one in plain if values[one.name] != one.default}
    shown: RenderableType = _toml(changed) if changed else Text("everything is at its default", style="dim")
    emit(values, json, Group(Text(f"{file} is good; what differs from the defaults:"), shown))


def explain(
    setting: Annotated[str | None, typer.Argument(help="A setting, its key, or a table.", show_default=False)] = None,
    json: AsJson = False,
) -> None:
    """What a setting means, its bounds and default, and when a change takes effect. Without an argument: all of them.

    [bold]Examples[/bold]

        crawler config explain politeness.delay

        crawler config explain limits
    """
    found = reference.find(setting) if setting else reference.all_settings()
    emit(found, json, Group(*(_explained(one) for one in found)))


def apply(
    file: Annotated[Path, typer.Argument(help="Settings file (TOML).")],
    crawl: CrawlName = "crawl",
    redis: Redis = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Replace the settings of an existing crawl by those of a file, and tell what changes and when.

    [bold]Example[/bold]

        crawler config apply crawler.toml --crawl news
    """
    wanted = load(file).crawl

    async def work(store: RedisStore, opened: Crawl) -> list[Change]:
        before, after = _flat(CrawlSettings.from_json(opened.settings)), _flat(wanted)
        for name in reference.FIXED:
            after[name] = before[name]
        about = {one.name: one.takes_effect for one in reference.all_settings()}
        changes = [
            Change(name, before.get(name), value, about.get(name, reference.RESTART))
            for name, value in after.items()
            if before.get(name) != value
        ]
        await save_settings(store, crawl, _kept(wanted, before).to_json())
        return changes

    changes = Where(crawl, redis, data_dir, file).do(work)
    table = screens.table("setting", "before", "now", "takes effect at")
    for change in changes:
        table.add_row(change.name, str(change.before), str(change.after), change.takes_effect)
    emit(changes, json, table if changes else Text("nothing changes"))


def _kept(wanted: CrawlSettings, before: dict[str, Any]) -> CrawlSettings:
    """`wanted`, with what an existing crawl keeps as it was."""
    frontier = wanted.frontier.model_copy(update={"shards": before["frontier.shards"]})
    return wanted.model_copy(update={"frontier": frontier})


def _flat(settings: CrawlSettings) -> dict[str, Any]:
    """{table.key: value}; a repeated table is one value."""
    flat: dict[str, Any] = {}
    for table, keys in settings.model_dump(mode="json").items():
        flat |= {f"{table}.{key}": value for key, value in keys.items()} if isinstance(keys, dict) else {table: keys}
    return flat


def _value(settings: Any, name: str) -> Any:
    table, _, key = name.partition(".")
    value = getattr(getattr(settings, table), key)
    return str(value) if isinstance(value, Path) else value


def _toml(values: dict[str, Any]) -> RenderableType:
    lines: list[str] = []
    for name, value in values.items():
        table, _, key = name.partition(".")
        if f"[{table}]" not in lines:
            lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
        lines.append(f"# {key} is unset" if value is None else f"{key} = {reference.as_toml(value)}")
    return Syntax("\n".join(lines), "toml", background_color="default", word_wrap=True)


def _explained(setting: Setting) -> RenderableType:
    default = "unset" if setting.default is None else reference.as_toml(setting.default)
    return Group(
        Text.assemble((setting.name, "bold green"), f"  {setting.kind}, default {default}"),
        Text(f"  {setting.meaning}"),
        Text(f"  environment {setting.environment}; a change takes effect at the {setting.takes_effect}", style="dim"),
        Text(),
    )
