"""The Lua files keep their contracts: header, keys, and no global variable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import frontier
from frontier import scripts
from frontier.scripts import Script, script_call
from frontier.store import RedisStore
from tests.frontier.helpers import ask

FOLDER = Path(frontier.__file__).parent / "lua"


FILES = {path.stem: path.read_text() for path in FOLDER.glob("*.lua")}


def test_every_file_is_loaded_and_every_script_has_a_file() -> None:
    assert {script.name for script in scripts.ALL} | scripts.PARTS == set(FILES)


@pytest.mark.parametrize("name", sorted(FILES))
class TestFile:
    def test_its_header_names_it_and_it_cuts_no_key_out_of_another(self, name: str) -> None:
        assert FILES[name].startswith(f"-- {name}: ")
        assert not re.search(r"string\.sub\((KEYS|keys|owner)", FILES[name])

    def test_no_argument_of_a_command_may_be_minus_zero(self, name: str) -> None:
        """Redis 7.0 writes -0 as "-0", which commands that take integers refuse. 0 - x is never -0."""
        assert not re.search(r"redis\.call\([^\n]*[,(]\s*-\s*[A-Za-z_#(]", FILES[name])


@pytest.mark.parametrize("script", scripts.ALL, ids=lambda script: script.name)
class TestContract:
    def test_the_header_names_its_replies(self, script: Script) -> None:
        header = [line for line in FILES[script.name].splitlines() if line.startswith("--")]
        assert any(line.startswith("-- Returns {") for line in header)

    def test_the_header_lists_exactly_the_keys_that_the_caller_passes(self, script: Script) -> None:
        listed = {int(number) for number in re.findall(r"^-- KEYS\[(\d)\]", script.source, re.MULTILINE)}
        assert listed == set(range(1, script.keys + 1))
        code = "\n".join(line for line in script.source.splitlines() if not line.startswith("--"))
        assert {int(number) for number in re.findall(r"KEYS\[(\d)\]", code)} == listed

    async def test_the_server_compiles_it_and_it_sets_no_global(self, script: Script, store: RedisStore) -> None:
        """The server refuses global variables when they are set; what it cannot see, the source shows."""
        sha = await ask(store, "SCRIPT", "LOAD", script.source)
        assert sha == script.sha
        names = set(re.findall(r"^\s*([a-z_]\w*)\s*(?:,\s*[a-z_]\w*\s*)*=[^=]", script.source, re.MULTILINE))
        declared = {
            name.strip()
            for names in re.findall(r"\blocal\s+(?!function)([\w\s,]+?)(?:=|$)", script.source, re.MULTILINE)
            for name in names.split(",")
        }
        assert names <= declared

    async def test_a_server_that_has_forgotten_it_is_told_again(
        self, script: Script, store: RedisStore, crawl_name: str
    ) -> None:
        """After a restart the first EVALSHA finds nothing. Arguments that are no good show that the script itself ran."""
        await ask(store, "SCRIPT", "FLUSH")
        keys = [f"{{{crawl_name}}}:{number}:" for number in range(script.keys)]
        try:
            await store.send([script_call(script, keys)])
        except Exception as error:  # the script ran and failed on its missing arguments
            assert "NOSCRIPT" not in str(error)
