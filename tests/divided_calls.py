"""Divides a batch of calls among nodes, and puts the answers together again: for stores that stand in for a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from frontier.errors import RedisAway
from frontier.scripts import Call, Reply


def places_by_node(calls: Sequence[Call], node_of: Callable[[Call], str]) -> dict[str, list[int]]:
    """Node -> the places of its calls in the batch."""
    found: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        found.setdefault(node_of(call), []).append(place)
    return found


def in_order(
    places: Iterable[Sequence[int]], answers: Iterable[Sequence[Reply] | RedisAway]
) -> list[Reply | RedisAway]:
    """The reply to each call of the batch. `answers`: those to the calls at `places`, or why there are none."""
    replies: dict[int, Reply | RedisAway] = {}
    for of_node, answer in zip(places, answers, strict=True):
        each = [answer] * len(of_node) if isinstance(answer, RedisAway) else answer
        replies.update(zip(of_node, each, strict=True))
    return [replies[place] for place in range(len(replies))]
