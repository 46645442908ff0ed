"""Says in words what the settings and the handlers have found on a page, and why they have not found more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crawler.handlers.router import Router, name_of
from crawler.page import Outcome, Page
from crawler.parse.extraction import ExtractionJob, FieldReport, RuleReport
from crawler.parse.tags import TakesLong
from crawler.scope.extract_rules import ExtractRule, FieldRule
from crawler.settings.load import Settings
from crawler.settings.policies import extract_rules
from crawler.wording import count_of

_REASONS = {"size": "too long", "unread": "takes too long to find"}


def findings(page: Page, settings: Settings, router: Router | None) -> list[str]:
    """Return a line for each `[[extract]]` in `settings`, and one for the handlers of `router`, with what they made of
    `page`."""
    rules = extract_rules(settings)
    if not rules and router is None:
        return ["nothing looks for items: there is neither [[extract]] nor a handler"]
    if page.outcome is not Outcome.DONE and not page.handler_error:
        return [f"nothing looks for items: the page is {page.outcome.value} ({page.reason})"]
    if page.exchange is None or not 200 <= page.exchange.status < 300:
        return ["nothing looks for items: only pages with a 2xx status have them"]
    lines = [f"[[extract]] {rule.name}: {_of_rule(rule, page, settings.limits.max_decoded)}" for rule in rules]
    return lines if router is None else [*lines, f"handlers: {_of_handlers(router, page)}"]


def _of_rule(rule: ExtractRule, page: Page, max_decoded: int) -> str:
    assert page.exchange is not None
    if not page.has_type(rule.content_type):
        return f"not for this page, which is {page.content_type or 'of no type'}, not {rule.content_type}"
    if not rule.applies(page):
        return f"not for this page: match {rule.match!r} is not found in its URL"
    try:
        report = ExtractionJob.of(page, (rule,), max_decoded).report(page.exchange.body)
    except TakesLong:
        return "applies, but the page is too large to say here what each field has found"
    if not report.elements:
        return f"0 items: each = {rule.each!r} selects no element"
    problems = "; ".join(_problems(rule.fields, report))
    return count_of(report.items, "item") + (f": {problems}" if problems else "")


def _problems(fields: Sequence[FieldRule], report: RuleReport) -> Iterator[str]:
    for field in fields:
        of = report.fields[field.name]
        if of.missing and (field.required or not of.found + of.unusable):
            required = "required, " if field.required else ""
            yield f"{field.name}: {required}nothing found{_share(of.missing, report)}{_source(field)}"
        if of.unusable:
            yield f"{field.name}: {_unusable(field, of)}{_share(of.unusable, report)}{_source(field)}"


def _unusable(field: FieldRule, of: FieldReport) -> str:
    return f"{of.value!r} is not of type {field.type}" if of.reason == "type" else _REASONS.get(of.reason, of.reason)


def _share(number: int, report: RuleReport) -> str:
    return "" if report.elements == 1 else f" in {number:,} of {report.elements:,} elements"


def _source(field: FieldRule) -> str:
    parts = [
        f"{name} {text!r}" for name in ("css", "attr", "json_ld", "page", "regex") if (text := getattr(field, name))
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _of_handlers(router: Router, page: Page) -> str:
    function = router.handler_of(page)
    if function is not None:
        return f"{name_of(function)} was called"
    return f"none is for this page: {', '.join(router.conditions) or 'the router has none'}"
