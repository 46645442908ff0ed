"""The docs describe each reason for which the code ends a URL or drops a link, each condition of a crawl, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

from crawler.cli.control import REASONS as COMPLETED
from crawler.errors import NOT_THE_URLS_FAULT, FailureKind
from crawler.handlers.runner import ASKED, FAILED, TOO_LONG
from crawler.observe.status import Word
from crawler.page import ACTIONS, Outcome
from crawler.parse.html import NOFOLLOW
from crawler.scope import scope
from crawler.worker import verdict
from crawler.worker.verdict import DEFECT, judge_failure, judge_status
from frontier import urls

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference" / "output.md").read_text()


def described(heading: str) -> set[str]:
    """The reasons in the first cells of the table below `heading`."""
    section = PAGE.partition(f"{heading}\n")[2].partition("\n#")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    ranged = re.sub(r"`http_(\d+)` to `http_(\d+)`", _all_between, " ".join(cells))
    return set(re.findall(r"`(\w+)`", ranged))


def _all_between(found: re.Match[str]) -> str:
    return " ".join(f"`http_{status}`" for status in range(int(found[1]), int(found[2]) + 1))


def given_by_the_code() -> set[str]:
    """The reasons of `UrlResult`s, as they are written in the code, and those of handlers and of `expire_leases.lua`."""
    found: set[str] = {ASKED, FAILED, TOO_LONG, verdict.USAGE_UNREACHABLE, *ACTIONS, *scope.REASONS} - {"hops"}
    for path in (ROOT / "crawler").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "UrlResult":
                reason = node.args[1]
                if isinstance(reason, ast.JoinedStr):
                    reason = reason.values[0]
                found |= {reason.value} if isinstance(reason, ast.Constant) else set()
    for path in (ROOT / "frontier" / "lua").glob("*.lua"):
        found |= set(re.findall(r"keep_dead_letter\(.*, '(\w+)'\)", path.read_text()))
    failed = [judge_status(status) for status in range(100, 600)]
    found |= {result.reason for result in failed if result.outcome is not Outcome.DONE}
    return found | {judge_failure(kind).reason for kind in FailureKind if kind not in NOT_THE_URLS_FAULT}


def test_every_reason_of_a_url_is_described() -> None:
    reasons = given_by_the_code() - {"ok", "redirect", "http_", verdict.BEHIND_PAGES.reason}  # which no line has
    assert len(reasons) > 35
    assert described("### Values of `reason`") == reasons


def test_every_reason_of_a_dropped_link_is_described() -> None:
    ours = {"forgotten", "unread", NOFOLLOW, urls.EXCESS, ASKED, FAILED, TOO_LONG, DEFECT.reason}
    pure = {*get_args(urls.Reason), *scope.REASONS, *scope.TRAP_REASONS}
    script = (ROOT / "frontier" / "lua" / "push.lua").read_text()
    pushed = set(re.findall(r"'drop:(\w+)'", script))
    assert described("## Links that are not followed") == ours | pure | pushed


def test_every_condition_is_described() -> None:
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text()
    cells = re.findall(r"^\| (.*?) \|", page.partition("| condition |")[2].partition("\n## ")[0], re.MULTILINE)
    words = {word for cell in cells for word in cell.split(", ")} - {"any", 'with "replicas were lost"'}
    assert words - {"---"} == set(get_args(Word))


def test_the_shell_completes_the_reasons_that_are_whole_words() -> None:
    assert set(COMPLETED) == {reason for reason in described("### Values of `reason`") if not reason.endswith("_")}
