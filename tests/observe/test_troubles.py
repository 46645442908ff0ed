"""What a replica waits for, in its health record."""

from __future__ import annotations

from crawler.errors import FailureKind
from crawler.events import GroupCommitted, OwnFailure
from crawler.observe.health import Troubles


def test_the_health_record_says_what_is_awaited_until_a_result_is_written() -> None:
    troubles = Troubles()
    troubles.observe(OwnFailure(FailureKind.OUR_DNS, "a.test: no answer"))
    for results, said in ((0, "waits for the DNS: a.test: no answer"), (1, "")):
        troubles.observe(GroupCommitted(results, 0, 0.0, 0.0, 0.0, 0, 0.0))
        assert troubles.obstacle(waits_for_permits=False) == said
