"""Blocks, and how much of a queue is packed into them."""

from __future__ import annotations

import pytest

from frontier.packing import Sizes, block_of, rest_of, rows_of, size_of


class TestBlocks:
    def test_a_block_keeps_its_entries_and_orders_them_by_priority(self) -> None:
        rows = [(b"-1", b"s01000/b"), (b"2.5", b"s01000/a"), (b"-inf", b"s02000/x y"), (b"-1", b"s01000/a")]
        block = block_of(rows, 7)
        assert rows_of(block.contents) == [rows[1], rows[3], rows[0], rows[2]]
        assert block.order == -2.5
        assert size_of(block.name) == 4

    def test_its_name_tells_whether_it_contains_seeds(self) -> None:
        assert block_of([(b"0", b"s00000/"), (b"0", b"s01000/")], 7).name[4] == "s"
        assert block_of([(b"0", b"s01000/00")], 7).name[4] != "s"

    def test_the_same_entries_packed_later_are_another_block(self) -> None:
        assert block_of([(b"0", b"s00000/")], 7).name != block_of([(b"0", b"s00000/")], 8).name

    def test_the_rest_of_a_block_has_its_order(self) -> None:
        rows = rows_of(block_of([(b"-1", b"s01000/a"), (b"0", b"s00000/"), (b"-1", b"s01000/b")], 7).contents)
        rest = rest_of(rows[1:], 8)
        assert rows_of(rest.contents) == rows[1:] == [(b"-1", b"s01000/a"), (b"-1", b"s01000/b")]
        assert (rest.order, size_of(rest.name)) == (1.0, 2)


class TestSizes:
    @pytest.mark.parametrize(
        ("queued", "packed", "surplus"),
        [(999, 0, 0), (1_000, 0, 500), (500, 100, 436), (125, 900, 0), (126, 900, 62), (2_000, 64_000, 500)],
    )
    def test_what_is_packed(self, queued: int, packed: int, surplus: int) -> None:
        assert Sizes(1_000, 32).surplus(queued, packed) == surplus

    def test_nothing_is_packed_if_it_is_switched_off(self) -> None:
        assert Sizes(0, 32).surplus(10**6, 0) == 0

    @pytest.mark.parametrize("packed", [1, 500, 5_000, 10**6])
    @pytest.mark.parametrize("batch", [1, 32, 1_000])
    def test_what_was_unpacked_for_a_lease_is_not_packed_again_at_once(self, packed: int, batch: int) -> None:
        sizes = Sizes(1_000, batch)
        assert sizes.surplus(2 * batch - 1 + sizes.step(packed), packed) == 0
