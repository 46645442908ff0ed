"""A crawl beyond one's own hosts needs a contact: a warning says so, and a crawl of the whole web does not start."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.errors import UserError
from crawler.settings.contact import UNSET, missing_contact
from crawler.settings.loading import CrawlSettings
from crawler.settings.reference import PRESETS
from tests.typed import Typed

OWN: list[dict[str, Any]] = [
    {"politeness": {"delay": 0}},
    {"fetch": {"host_map": ["*.test=127.0.0.1:8000"]}},
    {"fetch": {"allow_private": True}},
    {"fetch": {"allow": ["10.1.0.0/16"]}},
]


def settings(preset: str = "polite", **more: Any) -> CrawlSettings:
    tables: dict[str, dict[str, Any]] = {}
    for name, value in PRESETS[preset][1].items():
        table, _, key = name.partition(".")
        tables.setdefault(table, {})[key] = value
    for table, keys in more.items():
        tables.setdefault(table, {}).update(keys)
    return CrawlSettings.of(tables)


def test_a_crawl_of_others_sites_without_a_contact_is_doubtful() -> None:
    assert missing_contact(settings()) == UNSET
    assert missing_contact(settings("archive")) == UNSET
    assert missing_contact(settings("own-site")) == ""
    assert missing_contact(settings(fetch={"contact": "https://example.org/bot"})) == ""


@pytest.mark.parametrize("own", OWN)
def test_ones_own_hosts_need_none(own: dict[str, Any]) -> None:
    assert missing_contact(settings(**own)) == ""
    assert missing_contact(settings("broad", **own)) == ""


def test_the_preset_broad_needs_one() -> None:
    with pytest.raises(UserError, match=r"\[fetch\] contact"):
        missing_contact(settings("broad"))
    assert missing_contact(settings("broad", fetch={"contact": "bot@example.org"})) == ""


def test_commands_warn_or_refuse_before_anything_is_created(typed: Typed) -> None:
    wide = {"COLUMNS": "300"}
    for command in ("crawl", "seed"):
        environment = {**wide, "CRAWLER_SCOPE__KIND": "any"}
        refused = typed(command, "https://example.com/", environment=environment)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert refused.err.startswith("error: fetch.contact is not set")
        assert not list(typed.folder.iterdir())
    # Nothing is fetched: the crawl has no page left to get.
    paused = {**wide, "CRAWLER_LIMITS__MAX_PAGES": "0", "CRAWLER_REPLICA__OUT": str(typed.folder / "out")}
    assert typed("seed", "https://a.test/", environment=paused).err == ""
    assert typed("block", "a.test", environment=wide).code == 0
    done = typed("crawl", "--quiet", environment=paused)
    assert f"note: {UNSET}\n" in done.err
    done = typed("run", "--until-empty", environment=paused)
    assert "no_contact" in done.err
    done = typed(
        "run", "--until-empty", "--apply-settings", environment={**paused, "CRAWLER_FETCH__CONTACT": "a@b.test"}
    )
    assert "no_contact" not in done.err
