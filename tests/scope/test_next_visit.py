"""When pages are visited again: rules, the estimate of the rate of changes, and what a visit has found."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UserError
from crawler.page import CopyAge
from crawler.scope.next_visit import (
    DIGEST,
    LARGEST,
    LONGEST_S,
    MISSES,
    TEXT_DIGEST,
    Answer,
    Decision,
    RecrawlRule,
    Visits,
    copy_age,
    decide,
    described,
    fresh_s,
    needs_text,
    parse_rules,
    parsed_state,
    served_gain_s,
    state_text,
    validator_of,
)

HOUR, DAY = 3_600, 86_400
URL = "https://www.a.test/news/1"
DIGESTS = ("a" * DIGEST, "b" * DIGEST)
TEXTS = ("c" * TEXT_DIGEST, "d" * TEXT_DIGEST)
ADAPTIVE = parse_rules(["adaptive min=1h max=30d start=1d"])
EVERY = parse_rules(["every=6h"])


def answer(at: float, status: int = 200, digest: str = DIGESTS[0], **more: str) -> Answer:
    return Answer(
        URL, "www.a.test", at, status, more.get("content_type", "text/html"), digest, more.get("validator", "")
    )


def first(rules=ADAPTIVE, at: float = 0.0, validator: str = 'e"1"') -> Visits:  # type: ignore[no-untyped-def]
    made = decide(rules, None, answer(at, validator=validator))
    assert made is not None and made.found == "new"
    return made.visits


def after(before: Visits, *answers: Answer, rules=EVERY) -> Decision:  # type: ignore[no-untyped-def]
    for one in answers:
        made = decide(rules, before, one)
        assert made is not None
        before = made.visits
    return made


class TestRules:
    @pytest.mark.parametrize(
        ("rules", "expected_s"),
        [
            (["never"], None),
            (["every=6h"], 6 * HOUR),
            (["every=1w"], 168 * HOUR),
            (["adaptive"], DAY),
            (["adaptive start=2h"], 2 * HOUR),
            (["host=b.test every=1h", "every=2h"], 2 * HOUR),
            (["host=a.test every=1h", "every=2h"], HOUR),
            (["host=www.a.test never", "every=2h"], None),
            (["match=/news/ every=1h", "every=2h"], HOUR),
            (["match=^/news/ every=1h", "every=2h"], 2 * HOUR),
            (["type=image/* never", "every=2h"], 2 * HOUR),
            (["type=text/* match=/1$ every=3h"], 3 * HOUR),
            (["type=image/* every=1h"], None),
            (["adaptive min=2d"], 48 * HOUR),
            (["adaptive max=12h"], 12 * HOUR),
        ],
    )
    def test_the_first_that_matches_counts(self, rules: list[str], expected_s: float | None) -> None:
        made = decide(parse_rules(rules), None, answer(100.0))
        assert (made and made.due_at) == (None if expected_s is None else 100.0 + expected_s)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "host=a.test",
            "every=6",
            "every=0.5s",
            "match=( never",
            "sometimes",
            "adaptive min=2d start=1d",
            "adaptive gain=0s",
            "adaptive cache=1",
            "type=html never",
            "host=http://a.test never",
            "never every=6h",
            "every=1h min=5m",
            "adaptive min=2d max=1d",
            "never=1",
        ],
    )
    def test_a_malformed_one_is_refused(self, text: str) -> None:
        with pytest.raises(UserError):
            parse_rules([text])

    def test_a_304_without_a_type_leaves_the_rule_for_the_type(self) -> None:
        rules = parse_rules(["host=b.test never", "type=text/* every=6h", "every=1h"])
        made = after(first(rules), answer(10.0, 304, "", content_type=""), rules=rules)
        assert made.due_at == 10.0 + 6 * HOUR

    @pytest.mark.parametrize("inserted", ["host=news.example.org every=1h", "type=image/* never"])
    def test_a_304_without_a_type_after_the_rules_have_changed_has_the_page_sent_whole(self, inserted: str) -> None:
        """The number of its rule is that of another one now, and nobody knows whether this is for its type."""
        before = first(parse_rules(["type=text/* every=6h"]))
        rules = parse_rules([inserted, "type=text/* every=6h"])
        made = after(before, answer(10.0, 304, "", content_type=""), rules=rules)
        assert (made.found, made.due_at, made.visits.conditions) == ("unchanged", 10.0 + 6 * HOUR, ())
        whole = after(made.visits, answer(20.0), rules=rules)
        assert (whole.due_at, whole.visits.rule) == (20.0 + 6 * HOUR, rules[1].mark)

    def test_a_page_whose_rule_was_removed_is_not_visited_again(self) -> None:
        rules = parse_rules(["host=b.test every=1h"])
        for status, digest in ((200, DIGESTS[0]), (304, "")):
            assert after(first(EVERY), answer(10.0, status, digest, content_type=""), rules=rules).due_at is None


class TestInterval:
    def test_a_visit_that_gains_less_is_made_later(self) -> None:
        seen = Visits(0, 0, compared=10, changes=5, changed_s=5 * DAY, unchanged_s=5 * DAY, digest=DIGESTS[0])
        rules = [parse_rules([f"adaptive gain={gain}"]) for gain in ("1m", "1h")]
        waits = [after(seen, answer(DAY), rules=rule).visits.interval_s for rule in rules]
        assert waits[0] < waits[1] / 3

    def test_a_site_that_allows_few_visits_gets_only_those_that_gain_more(self) -> None:
        seen = Visits(0, 0, compared=10, changes=5, changed_s=5 * DAY, unchanged_s=5 * DAY, digest=DIGESTS[0])
        usual, pressed = (decide(ADAPTIVE, seen, answer(DAY), gain_s) for gain_s in (60.0, 4.0 * HOUR))
        assert usual and pressed and usual.visits.interval_s < pressed.visits.interval_s / 1.5

    @pytest.mark.parametrize(
        ("rule", "due_s"),
        [
            ("every=6h", 6 * HOUR),
            ("every=6h cache", DAY),
            ("adaptive", DAY),
            ("adaptive start=2h cache max=9h", 9 * HOUR),
        ],
    )
    def test_a_response_that_is_fresh_is_left_if_the_rule_says_so(self, rule: str, due_s: float) -> None:
        made = decide(parse_rules([rule]), None, msgspec.structs.replace(answer(0.0), fresh_s=float(DAY)))
        assert made is not None and made.due_at == due_s

    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ([], 0),
            ([(b"Cache-Control", b"public, max-age=60")], 60),
            ([(b"cache-control", b"public"), (b"Cache-Control", b'MAX-AGE="60"')], 60),
            ([(b"Cache-Control", b"max-age=60"), (b"Age", b"50")], 10),
            ([(b"Cache-Control", b"max-age=60"), (b"Age", b"70")], 0),
            ([(b"Cache-Control", b"max-age=60, no-cache")], 0),
            ([(b"Cache-Control", b"s-maxage=60")], 0),
            ([(b"Cache-Control", b"max-age=9999999999999")], 365 * DAY),
            ([(b"Date", b"Sun, 06 Nov 1994 08:49:37 GMT"), (b"Expires", b"Sun, 06 Nov 1994 08:50:37 GMT")], 60),
            ([(b"Date", b"Sun, 06 Nov 1994 08:49:37 GMT"), (b"Expires", b"0")], 0),
            ([(b"Expires", b"Sun, 06 Nov 1994 08:50:37 GMT")], 0),
        ],
    )
    def test_how_long_a_response_is_fresh(self, headers: list[tuple[bytes, bytes]], expected: float) -> None:
        assert fresh_s(headers) == expected

    def test_only_visits_that_were_due_by_their_gain_show_that_a_site_is_slow(self) -> None:
        seen = Visits(0, 0, 2 * HOUR, ADAPTIVE[0].mark, 10, 5, 5 * HOUR, 5 * HOUR)
        gained = served_gain_s(ADAPTIVE, seen, 4 * HOUR)
        assert gained and gained[1] == HOUR / 2 < gained[0]
        for other in (
            Visits(0, 0, 2 * HOUR),
            *(msgspec.structs.replace(seen, **x) for x in ({"misses": 1}, {"rule": 1})),
        ):
            assert served_gain_s(ADAPTIVE, other, 4 * HOUR) is None
        assert served_gain_s(ADAPTIVE, seen, HOUR) is None and served_gain_s(EVERY, seen, 4 * HOUR) is None


class TestFound:
    def test_changed_and_unchanged(self) -> None:
        assert after(first(), answer(10)).found == "unchanged"
        assert after(first(), answer(10, 304, "")).found == "unchanged"
        assert after(first(), answer(10, digest=DIGESTS[1])).found == "changed"

    def test_a_304_keeps_digest_body_and_validator(self) -> None:
        made = after(first(at=5.0), answer(10, 304, "")).visits
        assert (made.digest, made.body_at, made.last_at, made.conditions) == (
            DIGESTS[0],
            5.0,
            10,
            (("If-None-Match", '"1"'),),
        )

    def test_a_304_that_nobody_asked_for_says_nothing(self) -> None:
        assert after(first(validator=""), answer(10, 304, "")).found == "failed"

    @pytest.mark.parametrize("status", [404, 410])
    def test_a_page_that_is_gone_is_asked_for_less_and_less_and_then_forgotten(self, status: int) -> None:
        seen, waits = first(EVERY), []
        for number in range(MISSES):
            made = after(seen, answer(float(number), status))
            assert made.found == "gone" and made.visits.conditions == ()
            waits.append(made.due_at and made.due_at - number)
            seen = made.visits
        assert waits == [6 * HOUR, 12 * HOUR, 24 * HOUR, 48 * HOUR, None]

    def test_a_page_that_comes_back_is_back(self) -> None:
        made = after(first(EVERY), answer(1, 404), answer(2))
        assert (made.found, made.due_at, made.visits.misses) == ("back", 2 + 6 * HOUR, 0)

    @pytest.mark.parametrize("status", [0, 403, 500])
    def test_an_error_says_nothing_about_the_page(self, status: int) -> None:
        made = after(first(EVERY), answer(1, status, ""))
        assert (made.found, made.due_at) == ("failed", 1 + 6 * HOUR)
        assert after(made.visits, answer(2)).found == "unchanged"

    @pytest.mark.parametrize("status", [301, 308])
    def test_a_page_that_has_moved_is_visited_less_and_less_until_the_redirect_ends(self, status: int) -> None:
        seen, waits = first(EVERY), []
        for number in range(9):
            made = after(seen, answer(float(number), status))
            assert made.found == "gone" and made.due_at and made.visits.conditions == ()
            waits.append((made.due_at - number) / HOUR)
            seen = made.visits
        assert waits == [6, 12, 24, 48, 96, 192, 384, 720, 720]
        made = after(seen, answer(10.0))
        assert (made.found, made.due_at, made.visits.misses) == ("back", 10.0 + 6 * HOUR, 0)

    @pytest.mark.parametrize("status", [404, 301, 304])
    def test_a_first_visit_without_a_page_is_not_repeated(self, status: int) -> None:
        assert decide(EVERY, None, answer(1, status)) is None


class TestText:
    """By a rule with the word `text`, the fingerprint of the main text is compared, and like is compared with like."""

    RULES = parse_rules(["every=6h text"])

    def made(self, stored: tuple[int, str], found: tuple[int, str], rules=RULES) -> Decision:  # type: ignore[no-untyped-def]
        """What follows from a digest and a text of `found` after those of a first visit, by the rules of each."""
        before = decide(self.RULES, None, self.answered(0.0, *stored))
        assert before is not None
        made = decide(rules, before.visits, self.answered(10.0, *found))
        assert made is not None
        return made

    def answered(self, at: float, digest: int, text: str) -> Answer:
        return msgspec.structs.replace(answer(at, digest=DIGESTS[digest]), text=text)

    def test_a_page_is_unchanged_if_its_text_is(self) -> None:
        assert self.made((0, TEXTS[0]), (1, TEXTS[0])).found == "unchanged"
        assert self.made((0, TEXTS[0]), (1, TEXTS[1])).found == "changed"
        assert self.made((0, TEXTS[0]), (1, TEXTS[0])).visits.digest == TEXTS[0]

    def test_without_a_text_the_body_counts(self) -> None:
        """It cannot be compared with a text, so the page counts as changed once."""
        assert self.made((0, ""), (0, "")).found == "unchanged"
        assert self.made((0, ""), (1, "")).found == "changed"
        lost = self.made((0, TEXTS[0]), (0, ""))
        assert (lost.found, lost.visits.digest) == ("changed", DIGESTS[0])
        readable = self.made((0, ""), (0, TEXTS[0]))
        assert (readable.found, readable.visits.digest) == ("unchanged", TEXTS[0])

    def test_a_changed_rule_still_compares_what_was_stored(self) -> None:
        made = self.made((0, TEXTS[0]), (1, TEXTS[0]), rules=EVERY)
        assert (made.found, made.visits.digest) == ("unchanged", DIGESTS[1])

    def test_a_304_keeps_it(self) -> None:
        seen = decide(self.RULES, None, msgspec.structs.replace(answer(0.0, validator='e"1"'), text=TEXTS[0]))
        assert seen is not None
        made = decide(self.RULES, seen.visits, answer(10.0, 304, ""))
        assert made is not None and (made.found, made.visits.digest) == ("unchanged", TEXTS[0])

    def test_it_is_needed_only_where_it_counts(self) -> None:
        by_text = Visits(0.0, 0.0, digest=TEXTS[0])
        assert needs_text(self.RULES, None, answer(0.0)) and needs_text(EVERY, by_text, answer(0.0))
        assert not needs_text(EVERY, Visits(0.0, 0.0, digest=DIGESTS[0]), answer(0.0))
        images = parse_rules(["type=image/* every=1h text", "every=1h"])
        assert not needs_text(images, None, answer(0.0))

    def test_it_takes_no_more_memory(self) -> None:
        state = Visits(1.7e9, 1.6e9, 20 * DAY, 3, 32, 16, 300 * DAY, 300 * DAY, 4, TEXTS[0], 'e"67f3a1b2-1c2d"')
        assert Visits.parse(str(state)) == state and len(bytes.fromhex(str(state))) <= 44


class TestState:
    def test_it_survives_redis(self) -> None:
        seen = Visits(1e9 + 0.123456, 1e9 - 77.5, 3, 1, 7, 2, 44, 66, 1, DIGESTS[1], 'eW/"a,b"')
        assert Visits.parse(str(seen)) == seen
        assert Visits.parse(str(Visits(5.0, 5.0))) == Visits(5.0, 5.0)
        assert bytes.fromhex(str(seen))

    def test_it_is_short(self) -> None:
        seen = Visits(1.7e9, 1.6e9, 20 * DAY, 3, 32, 16, 300 * DAY, 300 * DAY, 4, DIGESTS[0], 'e"67f3a1b2-1c2d"')
        assert len(bytes.fromhex(str(seen))) <= 44

    @pytest.mark.parametrize(
        ("etag", "modified", "expected"),
        [
            ('"a"', "", (("If-None-Match", '"a"'),)),
            ('W/"a"', "", (("If-None-Match", 'W/"a"'),)),
            (
                '"5f-1-gzip"',
                "Sun, 06 Nov 1994 08:49:37 GMT",
                (("If-None-Match", '"5f-1-gzip", "5f-1"'), ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")),
            ),
            ('W/"5f--gzip"', "", (("If-None-Match", 'W/"5f--gzip", W/"5f"'),)),
            ('"-gzip"', "", (("If-None-Match", '"-gzip"'),)),
            ("a", "Sun, 06 Nov 1994 08:49:37 GMT", (("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),)),
            ('"' + "a" * 50 + '"', "", ()),
            ('"a\r\nX: 1"', "yesterday", ()),
            ('"\u00e9"', "", ()),
            ("", "Fri, 31 Dec 9999 23:59:59 -2300", ()),
        ],
    )
    def test_validators_are_sent_back_as_they_came(self, etag: str, modified: str, expected: object) -> None:
        seen = msgspec.structs.replace(Visits(0, 0), validator=validator_of(etag, modified))
        assert seen.conditions == Visits.parse(str(seen)).conditions == expected


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("misses", "after_s", "late_s"), [(0, 50, 0), (0, 100, 0), (0, 130, 30), (1, 130, 30), (3, 130, 0), (3, 430, 30)]
)
def test_a_visit_is_late_after_its_interval(misses: int, after_s: float, late_s: float) -> None:
    """A page that was missed again is due after twice the time, each time."""
    before = Visits(NOW, NOW, interval_s=100, misses=misses, digest="A")
    assert copy_age(before, NOW + after_s) == CopyAge(after_s, late_s)


def test_no_interval_is_longer_than_a_year() -> None:
    before = Visits(NOW, NOW, interval_s=int(LONGEST_S), misses=1)
    assert copy_age(before, NOW + LONGEST_S + 9).late_s == 9


def test_a_clock_that_was_set_back_makes_no_negative_age() -> None:
    assert copy_age(Visits(NOW, NOW, interval_s=100), NOW - 5) == CopyAge(0, 0)


ADAPTIVE_TEXT = "adaptive min=1h max=30d gain=30m"
DAILY = Visits(0, 0, compared=20, changes=10, changed_s=10 * 60_000, unchanged_s=10 * 60_000, digest="A")


def visits(interval_s: float, **more: int) -> Visits:
    return msgspec.structs.replace(Visits(0, 0, round(interval_s), digest="A"), **more)


def told(text: str, seen: Visits, of: str = "") -> str:
    """The words if `of`, by default `text`, was the only rule at the last visit, and `text` is now."""
    (rule,) = parse_rules([of or text])
    return described([text], msgspec.structs.replace(seen, rule=rule.mark))


def planned(seen: Visits, text: str = ADAPTIVE_TEXT, gain_s: float = 0.0) -> str:
    """The words for a page that was `seen`, with the interval that follows."""
    interval_s = round(RecrawlRule.parse(text).interval_s(seen, gain_s))
    fields = {name: getattr(seen, name) for name in ("compared", "changes", "changed_s", "unchanged_s")}
    return told(text, visits(interval_s, **fields))


@pytest.mark.parametrize(
    ("text", "seen", "words"),
    [
        ("every=6h", visits(6 * HOUR), "every 6 h by the rule 'every=6h'"),
        ("every=6h cache", visits(2 * DAY), ": until then, its response says that it is fresh"),
        (
            "adaptive",
            visits(DAY),
            "every 24 h by the rule 'adaptive': visited once, so nothing is known of its changes",
        ),
        ("adaptive", visits(DAY, misses=1), ", although the page was not found or could not be fetched"),
        ("adaptive", visits(DAY, misses=2), ", doubled once because the page was not found or could not be fetched"),
        ("adaptive", visits(DAY, misses=4), "doubled 3 times because"),
        (
            "adaptive",
            visits(DAY, misses=10),
            "doubled 9 times, but at most 30 d for a permanent redirect, and 365 d other",
        ),
        ("every=60d", visits(60 * DAY, misses=2), "doubled once, but at most 60 d for a permanent redirect"),
        ("every=45s", visits(45), "every 45 s"),
        ("every=20m", visits(20 * 60), "every 20 min"),
        ("never", visits(90), "every 1.5 min by the rule 'never'"),
    ],
)
def test_the_interval_is_explained(text: str, seen: Visits, words: str) -> None:
    assert words in told(text, seen)


def test_a_rule_of_another_list_is_not_named() -> None:
    words = told("adaptive", visits(DAY), of="adaptive max=9d")
    assert words == "every 24 h, by a rule from before the rules were changed"


def test_an_interval_that_was_chosen_by_the_gain_says_so() -> None:
    words = planned(DAILY)
    assert "10 of the last 20 comparisons found a change, and it is estimated to change every " in words
    assert words.endswith("; a visit then gains 30 min in which the copy is up to date")


def test_a_site_whose_delay_does_not_allow_the_visits_is_named() -> None:
    assert planned(DAILY, gain_s=2 * HOUR).endswith("so each has to gain more")


def test_the_limits_are_named_with_what_leads_to_them() -> None:
    quiet = visits(0, compared=20, unchanged_s=20 * 365 * DAY)
    restless = visits(0, compared=20, changes=19, changed_s=19 * 300, unchanged_s=60)
    assert planned(quiet).endswith("30 d is the longest interval, for pages that change seldom")
    assert "so often that a visit does not gain 30 min" in planned(restless)
    assert planned(DAILY, "adaptive min=12h max=30d").endswith("12 h is the shortest interval")


def test_a_page_that_changed_at_each_visit_is_visited_sooner() -> None:
    seen = visits(0, compared=3, changes=3, changed_s=3 * 5 * DAY)
    assert planned(seen).endswith("so the next visits are sooner")


NUMBERS = st.lists(st.integers(0, LARGEST), max_size=12)
TAGS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='"'), max_size=40)
HEX_TAGS = st.text("0123456789abcdef-", max_size=40)
VALIDATORS = st.one_of(
    st.just(""),
    st.builds(lambda quote, tag: f'e{quote}"{tag}"', st.sampled_from(("", "W/")), st.one_of(TAGS, HEX_TAGS)),
    st.integers(0, 2**40).map(lambda seconds: f"m{seconds}"),
)


@given(NUMBERS, st.text("0123456789abcdef", max_size=15), VALIDATORS)
def test_it_is_read_as_it_was_written(numbers: list[int], digest: str, validator: str) -> None:
    text = state_text(numbers, digest, validator)
    assert bytes.fromhex(text).hex() == text
    assert parsed_state(text, len(numbers)) == (numbers, digest, validator)


@pytest.mark.parametrize(
    ("validator", "size"),
    [
        ('e"5f3c2b1a-1a2b"', 8),
        ('eW/"5f3c2b1a-1a2b"', 8),
        ('e"d41d8cd98f00b204e9800998ecf8427e"', 17),
        ("m784111777", 5),
        ('e"a_b"', 6),
    ],
)
def test_validators_take_few_bytes(validator: str, size: int) -> None:
    assert len(state_text([], "", validator)) / 2 <= size + 1


def test_numbers_are_cut() -> None:
    assert parsed_state(state_text([-5, LARGEST + 1], "", ""), 2)[0] == [0, LARGEST]


@pytest.mark.parametrize("text", ["", "f1", "00x", "zz"])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parsed_state(text, 3)
