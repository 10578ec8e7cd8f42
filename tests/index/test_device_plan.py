"""Where the rows of an index on a device go: blocks on the device while there is room, then on the host."""

from __future__ import annotations

import numpy as np

from prismem_core.index.device_blocks import BlockSizes, planned

SIZES = BlockSizes(least=1000, most=8000, host=500)


def test_growing_by_single_rows_takes_blocks_of_the_least_size() -> None:
    assert planned(1, 0, 10, 10**9, SIZES) == [(100, False)]
    assert planned(3, 100, 10, 10**9, SIZES) == [(100, False)]


def test_blocks_grow_with_the_index() -> None:
    assert planned(1, 2000, 10, 10**9, SIZES) == [(500, False)]
    assert planned(1, 10**6, 10, 10**9, SIZES) == [(800, False)]


def test_many_rows_lie_in_one_block_and_very_many_in_the_largest() -> None:
    assert planned(700, 0, 10, 10**9, SIZES) == [(700, False)]
    assert planned(1700, 0, 10, 10**9, SIZES) == [(800, False), (800, False), (400, False)]


def test_what_does_not_fit_goes_to_the_host_and_stays_there() -> None:
    assert planned(300, 0, 10, 2500, SIZES) == [(250, False), (50, True)]
    assert planned(300, 0, 10, 999, SIZES) == [(50, True)] * 6
    assert planned(60, 0, 10, 999, SIZES) == [(99, False)], "less than a least block, but room for them"
    assert planned(1, 0, 10, 0, SIZES) == [(50, True)]


def test_a_row_larger_than_a_block_has_one_of_its_own() -> None:
    assert planned(2, 0, 9000, 10**9, SIZES) == [(1, False), (1, False)]
    assert planned(1, 0, 9000, 10, SIZES) == [(1, True)]


def test_there_is_room_for_all_and_no_more_than_allowed_is_taken() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        rows, capacity, room = (int(rng.integers(0, 3000)) for _ in range(3))
        row_bytes = int(rng.integers(1, 40))
        beside = int(rng.integers(0, 20))
        plan = planned(rows, capacity, row_bytes, room, SIZES, beside)
        assert sum(size for size, _ in plan) >= rows
        assert sum(size for size, on_host in plan if not on_host) * (row_bytes + beside) <= room
        assert all(size * row_bytes <= SIZES.most for size, _ in plan)
        assert [on_host for _, on_host in plan] == sorted(on_host for _, on_host in plan)
        assert not rows or sum(size for size, _ in plan[:-1]) < rows, "no block too many"
