"""What the referee knows of the outboxes: the links in each that wait for a node that is away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from frontier.scripts import Call, Reply
from tests.simulation.arguments import linked_url, shard_number, shard_tag
from tests.simulation.history import History


class OutboxBook:
    """`is_pushed`: whether a URL was accepted or capped. `check(holds, invariant, message, about)` raises Breach unless
    `holds`. `open`: how many links are kept; `ever`: how many ever were."""

    def __init__(
        self, history: History, is_pushed: Callable[[str], bool], check: Callable[[bool, str, str, str], None]
    ) -> None:
        self._history = history
        self._is_pushed = is_pushed
        self._check = check
        self.forget()

    def forget(self) -> None:
        self.open = self.ever = 0
        self._members: dict[str, set[str]] = defaultdict(set)  # shard -> members

    def members(self, shard: str) -> set[str]:
        return self._members.get(shard, set())

    def urls(self, shard: str) -> set[str]:
        """The links that the outbox of `shard` keeps."""
        return set(map(linked_url, self.members(shard)))

    def keep(self, replica: str, call: Call, reply: Reply) -> None:
        kept = self._members[shard_tag(call.keys[0])]
        news = set(map(str, call.arguments[3::2])) - kept
        self._history.note(replica, "keep", (call.arguments[2:], reply))
        if reply[0] == b"kept":
            self._check(int(reply[1]) == len(news), "I1", f"keep_links says {reply}, not {len(news)}", call.keys[0])
            kept |= news
            self.open += len(news)
            self.ever += len(news)

    def deliver(self, replica: str, call: Call, reply: Reply) -> None:
        """A link leaves an outbox when it was pushed, or when the crawl turned out not to know its domain."""
        kept = self._members[shard_tag(call.keys[0])]
        gone = {member.decode() if isinstance(member, bytes) else str(member) for member in call.arguments[1:]}
        self._history.note(replica, "deliver", (sorted(gone), reply))
        for member in sorted(gone & kept):
            url = linked_url(member)
            is_safe = self._is_pushed(url) or member.startswith("known\n")
            self._check(is_safe, "I1", f"{url} leaves an outbox before it is pushed", url)
        self._check(int(reply[1]) == len(gone & kept), "I1", f"deliver says {reply}", call.keys[0])
        self.open -= len(gone & kept)
        kept -= gone

    def move(self, shards: Sequence[str]) -> None:
        """The crawl uses the shards with these hash tags from now on."""
        before, self._members = self._members, defaultdict(set)
        for shard, members in before.items():
            self._members[shards[shard_number(shard) % len(shards)]] |= members
        self.open = sum(map(len, self._members.values()))
