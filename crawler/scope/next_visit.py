"""Decides whether and when a page is visited again, from rules and from what its visits have found. Pure.

The rule for a page is the first one that matches it. With `every`, the time between two visits is fixed. With
`adaptive`, it is the time after which a visit gains enough freshness (`crawler.scope.freshness`), within limits.

The state of a page's visits is a short text at the end of its entry (`state_text`), because Redis stores it for
each known page.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from email.utils import formatdate, parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from crawler.errors import UserError
from crawler.page import CopyAge
from crawler.scope.freshness import Observed, Rate, estimated, interval_s, observed
from frontier.errors import BadInput
from frontier.urls import UrlPattern, is_in_url

LARGEST = 16**15 - 1
_PADDING, _STRONG, _WEAK, _DATE, _OTHER, _BOTH = "012345"  # the kinds of validators
_QUOTES = {_STRONG: 'e"', _WEAK: 'eW/"'}
_TAG_DIGITS = "0123456789abcdefg"  # g stands for the hyphen


def state_text(numbers: Sequence[int], digest: str, validator: str) -> str:
    """The text of `numbers`, which are cut to 0 and LARGEST, of `digest`, at most 15 hexadecimal digits, and of
    `validator`, as `validator_of` gives it."""
    fields = [f"{min(number, LARGEST):x}" if number > 0 else "" for number in numbers]
    text = "".join(f"{len(field):x}{field}" for field in (*fields, digest))
    kind = _validator_text(validator)
    return text + kind if len(text + kind) % 2 == 0 else text + _PADDING + kind


def parsed_state(text: str, count: int) -> tuple[list[int], str, str]:
    """The `count` numbers, the digest and the validator in `text`. Raises ValueError."""
    fields, at = [], 0
    for _ in range(count + 1):
        end = at + 1 + int(text[at : at + 1], 16)
        fields.append(text[at + 1 : end])
        at = end
    return [int(field or "0", 16) for field in fields[:-1]], fields[-1], _validator(text[at:].removeprefix(_PADDING))


def _validator_text(validator: str) -> str:
    tag, both, seconds = validator.partition("\t")
    if both:
        return f"{_BOTH}{int(seconds):010x}{_validator_text(tag)}"
    for kind, beginning in _QUOTES.items():
        tag = validator.removeprefix(beginning).removesuffix('"')
        if validator == f'{beginning}{tag}"' and tag and not tag.strip("0123456789abcdef-"):
            return f"{kind}{int('1' + tag.replace('-', 'g'), 17):x}"  # the 1 keeps the zeros
    if validator.startswith("m"):
        return f"{_DATE}{int(validator[1:]):x}"
    return _OTHER + validator[1:].encode().hex() if validator else ""


def _validator(text: str) -> str:
    kind, digits = text[:1], text[1:]
    if kind in _QUOTES:
        return f'{_QUOTES[kind]}{_tag(int(digits, 16))}"'
    if kind == _DATE:
        return f"m{int(digits, 16)}"
    if kind == _BOTH:
        return f"{_validator(digits[10:])}\t{int(digits[:10], 16)}"
    return f"e{bytes.fromhex(digits).decode()}" if kind else ""


def _tag(number: int) -> str:
    tag = ""
    while number > 1:
        number, digit = divmod(number, 17)
        tag = _TAG_DIGITS[digit] + tag
    return tag.replace("g", "-")


Found = Literal["new", "changed", "unchanged", "gone", "back", "failed"]
"""What a visit found. `failed`: an error that says nothing about the page, such as a 403 or a timeout."""

Headers = tuple[tuple[str, str], ...]

MOVED = frozenset({301, 308})
"""The status of a page whose content is at another URL from now on."""

MISSES = 5
"""Visits in a row without the page after which it is forgotten. From the second one on, the time between them doubles:
most pages that fail once are there the next time."""

LONGEST_MOVED_S = 30 * 86_400.0
"""The longest time between visits of a page that redirects permanently, unless its own interval is longer. They find out
when the redirect ends."""

LONGEST_S = 365 * 86_400.0
LONGEST_ETAG = 40  # characters; for a longer one, Last-Modified is used
DIGEST = 12
"""Hexadecimal digits of a SHA-1. Of pages that change, it misses one change in 10^14."""

TEXT_DIGEST = 11
"""Hexadecimal digits of the fingerprint of a main text. The length distinguishes it from a SHA-1."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SWITCHES = {"cache": "is_cached", "text": "is_by_text"}
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
UNITS = "a unit (s, m, h, d or w), such as 6h"
_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")  # in its canonical form
_LAST_DATE = 253_402_300_799  # of the year 9999: a site may name one that a time zone puts after it
_ETAG = re.compile(r'(?:W/)?"[!#-~]*"')  # RFC 9110 8.8.3, without obsolete characters


class RecrawlRule(msgspec.Struct, frozen=True):
    """Which pages, and how often. `match`: a regular expression that is searched in the URL; `host`: with its
    subdomains; `type`: a media type, in which `*` stands for anything. Empty: any. Times are in seconds. For
    `adaptive`, `start_s` is the time to the second visit, and `gain_s` the least that a visit must gain, in seconds of
    freshness. `is_cached`: whether a page is not visited while its response says that it is fresh; `is_by_text`: whether
    a page is unchanged if its main text is. `mark`: tells the rule and the list that it is from; changed lists have
    other marks."""

    policy: Literal["never", "every", "adaptive"]
    match: str = ""
    host: str = ""
    type: str = ""
    every_s: float = 0.0
    min_s: float = 3_600.0
    max_s: float = 30 * 86_400.0
    start_s: float = 86_400.0
    gain_s: float = 1_800.0
    is_cached: bool = False
    is_by_text: bool = False
    mark: int = 0

    def applies(self, url: str, host: str, content_type: str | None) -> bool:
        """Whether this rule is for the page `url` on `host`. `content_type`: None if it may be any."""
        return (
            (not self.match or is_in_url(self.match, url))
            and (not self.host or host == self.host or host.endswith(f".{self.host}"))
            and (not self.type or content_type is None or fnmatchcase(content_type, self.type))
        )

    @classmethod
    def parse(cls, text: str) -> RecrawlRule:
        """The rule that `text` describes. Raises UserError."""
        values: dict[str, str | float | bool] = {}
        policies: list[str] = []
        of_adaptive: list[str] = []
        for word in text.split():
            name, equals, value = word.partition("=")
            if not equals and name in ("never", "adaptive"):
                policies.append(name)
            elif word in _SWITCHES:
                values[_SWITCHES[word]] = True
            elif equals and name in ("match", "host", "type"):
                values[name] = value
            elif equals and name in ("every", "min", "max", "start", "gain"):
                values[f"{name}_s"] = _seconds(word, value)
                (policies if name == "every" else of_adaptive).append(name)
            else:
                raise UserError(
                    f"{word!r}: use match=, host=, type=, cache, text, and one of never, every=6h, or adaptive with min=, "
                    "max=, start=, gain="
                )
        if "type" in values and "/" not in str(values["type"]):
            raise UserError(f"type={values['type']}: write it as text/html or text/*")
        if not _HOST.fullmatch(str(values.get("host", "a"))):
            raise UserError(f"host={values['host']}: write the name of the host alone, such as news.example.org")
        if len(policies) != 1:
            raise UserError(f"{text!r}: say one of never, every=6h or adaptive")
        if of_adaptive and policies != ["adaptive"]:
            raise UserError(f"{text!r}: {of_adaptive[0]}= is for adaptive")
        values["policy"] = policies[0]
        try:
            UrlPattern(str(values.get("match", "")))
        except BadInput as error:
            raise UserError(f"{text!r}: {error}") from error
        rule = msgspec.convert(values, cls)
        if rule.min_s > rule.max_s or ("start_s" in values and not rule.min_s <= rule.start_s <= rule.max_s):
            raise UserError(f"{text!r}: start must be between min and max")
        return msgspec.structs.replace(rule, start_s=min(max(rule.start_s, rule.min_s), rule.max_s))

    def interval_s(self, seen: Visits, gain_s: float = 0.0, fresh_s: float = 0.0) -> float:
        """The time from the last visit in `seen` to the next, in seconds. `gain_s`: what a visit to its site must gain at
        least, if that is more than the rule asks for; `fresh_s`: how long its response is fresh."""
        wait_s, longest_s = self.every_s, LONGEST_S
        if self.policy == "adaptive":
            wait_s, longest_s = self.start_s, self.max_s
            if seen.compared:
                wait_s = interval_s(seen.observed, max(self.gain_s, gain_s), self.min_s, self.max_s)
        return min(max(wait_s, fresh_s), longest_s) if self.is_cached else wait_s


def duration_s(text: str) -> float | None:
    """The seconds of a duration such as `6h`, None if `text` is none."""
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _SECONDS[found[2]] if found else None


def _seconds(word: str, text: str) -> float:
    if (seconds := duration_s(text)) is None or seconds < 1:
        raise UserError(f"{word!r}: write a number and {UNITS}, and at least 1s")
    return min(seconds, LONGEST_S)


def parse_rules(texts: Sequence[str]) -> tuple[RecrawlRule, ...]:
    """The rules in `texts`. Raises UserError."""
    of_list = zlib.crc32("\n".join(texts).encode()) % 0x1000 << 8
    return tuple(
        msgspec.structs.replace(RecrawlRule.parse(text), mark=of_list | number % 0x100)
        for number, text in enumerate(texts)
    )


class Visits(msgspec.Struct, frozen=True):
    """The state of a page's visits. Times are in seconds since 1970, with microseconds.

    `last_at`: the last visit; `body_at`: the last one whose response had a body; `interval_s`: between the last and the
    next; `rule`: the mark of its rule. `compared`: visits that showed whether the page has changed; `changes`: how
    many had; `changed_s`, `unchanged_s`: the sums of their intervals. `misses`: visits in a row that did not find the
    page. `digest`: of the payload, or, with TEXT_DIGEST digits, of the main text; empty if the page is gone.
    `validator`: as `validator_of` gives it.
    """

    last_at: float
    body_at: float
    interval_s: int = 0
    rule: int = 0
    compared: int = 0
    changes: int = 0
    changed_s: int = 0
    unchanged_s: int = 0
    misses: int = 0
    digest: str = ""
    validator: str = ""

    @property
    def observed(self) -> Observed:
        """What the visits have shown about the changes of the page."""
        return Observed(self.compared, self.changes, self.changed_s, self.unchanged_s)

    @property
    def rate(self) -> Rate:
        """The estimated rate of changes. There must be a visit that was compared."""
        return estimated(self.observed)

    @property
    def is_by_text(self) -> bool:
        """Whether the main text of the page tells if it has changed."""
        return len(self.digest) == TEXT_DIGEST

    @property
    def conditions(self) -> Headers:
        return conditions_of(self.validator)

    def __str__(self) -> str:
        last, body = round(self.last_at * 1e6), round(self.body_at * 1e6)
        numbers = (last, last - body, self.interval_s, self.rule, self.compared, self.changes)
        return state_text((*numbers, self.changed_s, self.unchanged_s, self.misses), self.digest, self.validator)

    @classmethod
    def parse(cls, text: str) -> Visits:
        """The inverse of `str`. Raises ValueError."""
        (last, age, *more), digest, validator = parsed_state(text, 9)
        interval_s, rule, compared, changes, changed_s, unchanged_s, misses = more
        times = (last / 1e6, (last - age) / 1e6, interval_s)
        return cls(*times, rule, compared, changes, changed_s, unchanged_s, misses, digest, validator)


def without_validator(state: str) -> str:
    """`state` without its validator, for a page whose body is not kept: a 304 would confirm a body that is not there."""
    return str(msgspec.structs.replace(Visits.parse(state), validator=""))


def validator_of(etag: str, last_modified: str) -> str:
    """What `Visits.validator` keeps of these header fields: "e" and an ETag, with a tab and the seconds of
    the date if there is one; "m" and these seconds; or empty if nothing can be used."""
    tag = f"e{etag}" if len(etag) <= LONGEST_ETAG and _ETAG.fullmatch(etag) else ""
    try:
        seconds = int(parsedate_to_datetime(last_modified).timestamp())
    except (ValueError, OverflowError):
        return tag
    if not 0 <= seconds <= _LAST_DATE:
        return tag
    return f"{tag}\t{seconds}" if tag else f"m{seconds}"


def conditions_of(validator: str) -> Headers:
    """The header fields that make a request conditional (RFC 9110 13.1.2 and 13.1.3). `validator`: from `validator_of`.
    Apache's mod_deflate sends an ETag with `-gzip`, and does not know it when it comes back, so the one without is sent,
    too (https://bz.apache.org/bugzilla/show_bug.cgi?id=45023)."""
    tag, _, seconds = validator[1:].partition("\t")
    if validator.startswith("m"):
        tag, seconds = "", tag
    plain = _OF_CODING.sub('"', tag)
    tags = (("If-None-Match", tag if plain == tag else f"{tag}, {plain}"),) if tag else ()
    return (*tags, ("If-Modified-Since", formatdate(int(seconds), usegmt=True))) if seconds else tags


_OF_CODING = re.compile(r'(?<=[^"])--?(?:gzip|br|deflate|zstd)"$')


_MAX_AGE = re.compile(rb"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,20})", re.IGNORECASE)
_STALE = re.compile(rb"(?:^|[\s,])no-(?:cache|store)(?:$|[\s,=])", re.IGNORECASE)


def fresh_s(headers: Sequence[tuple[bytes, bytes]]) -> float:
    """For how many seconds a response with these `headers` is fresh for a private cache (RFC 9111 4.2.1), 0 if unknown."""
    fields = {name.lower(): value for name, value in headers}  # of repeated fields, the last
    control = b",".join(value for name, value in headers if name.lower() == b"cache-control")
    if _STALE.search(control):
        return 0.0
    if found := _MAX_AGE.search(control):
        age = fields.get(b"age", b"")
        return max(0.0, min(float(found[1]), LONGEST_S) - (float(age) if age.isdigit() and len(age) < 10 else 0.0))
    if b"expires" not in fields or b"date" not in fields:
        return 0.0
    try:
        ends, begins = (parsedate_to_datetime(fields[name].decode("latin-1")) for name in (b"expires", b"date"))
        return max(0.0, ends.timestamp() - begins.timestamp())
    except (ValueError, OverflowError):
        return 0.0


class Answer(msgspec.Struct, frozen=True):
    """What a visit got at `at`, in seconds since 1970. `status`: 0 if the page could not be fetched; `digest`: DIGEST
    digits of the payload's SHA-1; `fresh_s`: for how long the response says that it is fresh; `text`: the fingerprint of
    the main text, empty if it is not needed (`needs_text`) or the page has none."""

    url: str
    host: str
    at: float
    status: int = 0
    content_type: str = ""
    digest: str = ""
    validator: str = ""
    fresh_s: float = 0.0
    text: str = ""


class Decision(msgspec.Struct, frozen=True):
    """`found`: what the visit found; `due_at`: when the next visit is due, in seconds since 1970, or None if the page
    is not visited again; `visits`: the state until then."""

    found: Found
    due_at: float | None
    visits: Visits


def served_gain_s(rules: Sequence[RecrawlRule], before: Visits, at: float) -> tuple[float, float] | None:
    """What the visit at `at` gains, and what its rule asks for, both in seconds of freshness. None if its time was not
    chosen by the gain, or has not come yet."""
    rule, passed_s = marked(rules, before.rule), at - before.last_at
    if rule is None or before.misses or not before.compared:
        return None
    is_bound = rule.policy != "adaptive" or not rule.min_s < before.interval_s < rule.max_s
    if is_bound or rule.is_cached or before.changes == before.compared or passed_s < before.interval_s:
        return None
    return before.rate.gain_s(passed_s), rule.gain_s


def decide(rules: Sequence[RecrawlRule], before: Visits | None, answer: Answer, gain_s: float = 0.0) -> Decision | None:
    """What follows from `answer` for a page with the state `before`, None if this was its first visit. `gain_s`: see
    `RecrawlRule.interval_s`. Returns None if the page is not one that is visited again."""
    if before is None:
        return _first(rules, answer)
    is_not_modified = answer.status == 304 and bool(before.validator)
    if answer.status in (404, 410):
        return _missed(before, "gone", answer.at)
    if answer.status in MOVED:  # the target is a page of its own
        return _missed(before, "gone", answer.at, has_moved=True)
    if not is_not_modified and not 200 <= answer.status < 300 and answer.status not in (302, 303, 307):
        return _missed(before, "failed", answer.at)
    is_type_known = bool(answer.content_type) or not is_not_modified  # a 304 need not tell it
    rule = _rule_for(rules, answer) if is_type_known else marked(rules, before.rule)
    was_gone = not before.digest
    has_changed = not is_not_modified and (answer.text if before.is_by_text else answer.digest) != before.digest
    seen = msgspec.structs.replace(
        _compared(before, has_changed, answer.at) if not was_gone else before,
        last_at=answer.at,
        body_at=before.body_at if is_not_modified else answer.at,
        misses=0,
        digest=before.digest if is_not_modified else _digest(rule, answer),
        validator=answer.validator or (before.validator if is_not_modified else ""),
    )
    found: Found = "back" if was_gone else "changed" if has_changed else "unchanged"
    may_apply = not is_type_known and any(one.applies(answer.url, answer.host, None) for one in rules)
    if rule is None and may_apply:  # the rules have changed, and the next response tells the type
        return Decision(found, answer.at + before.interval_s, msgspec.structs.replace(seen, validator=""))
    return _next(found, rule, seen, gain_s, answer.fresh_s)


def _first(rules: Sequence[RecrawlRule], answer: Answer) -> Decision | None:
    rule = _rule_for(rules, answer)
    if rule is None or rule.policy == "never" or not 200 <= answer.status < 300:
        return None
    visits = Visits(answer.at, answer.at, digest=_digest(rule, answer), validator=answer.validator)
    return _next("new", rule, visits, fresh_s=answer.fresh_s)


def visit_priority(due_at: float) -> float:
    """The priority of a visit that is due at `due_at`, in seconds since 1970. Visits that wait are made in the order in
    which they were due: with equal priorities, some could wait forever."""
    return -(due_at // 60)  # a short number


def needs_text(rules: Sequence[RecrawlRule], before: Visits | None, answer: Answer) -> bool:
    """Whether the main text of the page of `answer` has to be compared, or to be stored for the next visit."""
    rule = _rule_for(rules, answer)
    return (before is not None and before.is_by_text) or (rule is not None and rule.is_by_text)


def _digest(rule: RecrawlRule | None, answer: Answer) -> str:
    """What tells at the next visit whether the page of `answer` has changed."""
    return (answer.text if rule is not None and rule.is_by_text else "") or answer.digest


def _rule_for(rules: Sequence[RecrawlRule], answer: Answer) -> RecrawlRule | None:
    return next((rule for rule in rules if rule.applies(answer.url, answer.host, answer.content_type)), None)


def marked(rules: Sequence[RecrawlRule], mark: int) -> RecrawlRule | None:
    """The rule of `rules` with this `mark`, None if they have changed since it was stored."""
    return next((rule for rule in rules if rule.mark == mark), None)


def _next(found: Found, rule: RecrawlRule | None, seen: Visits, gain_s: float = 0.0, fresh_s: float = 0.0) -> Decision:
    if rule is None or rule.policy == "never":
        return Decision(found, None, seen)
    wait_s = math.ceil(rule.interval_s(seen, gain_s, fresh_s))
    visits = msgspec.structs.replace(seen, interval_s=wait_s, rule=rule.mark)
    return Decision(found, seen.last_at + wait_s, visits)


def _compared(before: Visits, has_changed: bool, at: float) -> Visits:
    seen = observed(before.observed, max(1.0, at - before.last_at), has_changed)
    return msgspec.structs.replace(
        before,
        compared=seen.compared,
        changes=seen.changes,
        changed_s=round(seen.changed_s),
        unchanged_s=round(seen.unchanged_s),
    )


def _missed(before: Visits, found: Found, at: float, has_moved: bool = False) -> Decision:
    misses = before.misses + 1
    is_gone = found == "gone"
    visits = msgspec.structs.replace(
        before,
        last_at=at,
        body_at=min(before.body_at, at),
        misses=misses,
        digest="" if is_gone else before.digest,
        validator="" if is_gone else before.validator,  # a page that is back sends its body
    )
    longest_s = max(LONGEST_MOVED_S, before.interval_s) if has_moved else LONGEST_S
    wait_s = min(_grown_s(visits), longest_s)
    if has_moved:
        return Decision(found, at + wait_s, visits)
    return Decision(found, None if misses >= MISSES else at + wait_s, visits)


def _grown_s(seen: Visits) -> float:
    """The time from the last visit in `seen` to the next, in seconds."""
    return seen.interval_s * 2.0 ** min(max(0, seen.misses - 1), 60)


def copy_age(before: Visits, at: float) -> CopyAge:
    """The age of the copy of a page with the state `before` that is visited at `at`, in seconds since 1970."""
    age_s = max(0.0, at - before.last_at)
    return CopyAge(age_s, max(0.0, age_s - min(_grown_s(before), LONGEST_S)))


_LONGER = 1.05
"""An interval that is so many times longer than that of the rule has another reason."""


def described(texts: Sequence[str], seen: Visits) -> str:
    """How the time of the visit after those in `seen` was chosen. `texts`: the rules of the crawl."""
    every = f"every {_span(seen.interval_s)}"
    rules = parse_rules(texts)
    rule = marked(rules, seen.rule)
    if rule is None:
        return f"{every}, by a rule from before the rules were changed"
    every += f" by the rule {texts[rules.index(rule)]!r}"
    if seen.misses == 1:
        return f"{every}, although the page was not found or could not be fetched; later if that goes on"
    if seen.misses:
        return f"{every}, {_growth(seen)} because the page was not found or could not be fetched"
    reason = _reason(rule, seen)
    if rule.policy != "adaptive":
        return every + (f": {reason}" if reason else "")
    if not seen.compared:
        return f"{every}: visited once, so nothing is known of its changes"
    return f"{every}: {_changes(seen)}; {reason}"


def _growth(seen: Visits) -> str:
    longest_s, times = max(LONGEST_MOVED_S, seen.interval_s), seen.misses - 1
    doubled = "doubled once" if times == 1 else f"doubled {times} times"
    if _grown_s(seen) <= longest_s:
        return doubled
    limits = f"{_span(longest_s)} for a permanent redirect, and {_span(LONGEST_S)} otherwise"
    return f"{doubled}, but at most {limits},"


def _changes(seen: Visits) -> str:
    rate = f"it is estimated to change every {_span(1 / seen.rate.mean)}"
    return f"{seen.changes} of the last {seen.compared} comparisons found a change, and {rate}"


def _reason(rule: RecrawlRule, seen: Visits) -> str:
    planned_s = rule.interval_s(seen)
    if rule.is_cached and seen.interval_s > planned_s * _LONGER:
        return "until then, its response says that it is fresh"
    if rule.policy != "adaptive" or not seen.compared:
        return ""
    if seen.interval_s >= rule.max_s:
        return f"{_span(rule.max_s)} is the longest interval, for pages that change {_how_often(rule, seen)}"
    if seen.interval_s > planned_s * _LONGER:
        return "the delay of the site does not allow the visits that the rule asks for, so each has to gain more"
    if seen.interval_s <= rule.min_s:
        return f"{_span(rule.min_s)} is the shortest interval"
    if seen.changes == seen.compared:
        return "it may change more often than it was visited, so the next visits are sooner"
    return f"a visit then gains {_span(rule.gain_s)} in which the copy is up to date"


def _how_often(rule: RecrawlRule, seen: Visits) -> str:
    if 1 / seen.rate.mean < rule.max_s:
        return f"so often that a visit does not gain {_span(rule.gain_s)} in which the copy is up to date"
    return "seldom"


def _span(seconds: float) -> str:
    for longest, divisor, unit in ((90, 1, "s"), (5_400, 60, "min"), (129_600, 3_600, "h")):
        if seconds < longest:
            return f"{seconds / divisor:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"
