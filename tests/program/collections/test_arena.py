"""Rows of many collections in one matrix."""

from __future__ import annotations

import gc
import itertools

import numpy as np

from prismem_core.program.collections.arena import Block, RowArena


def rows(count: int, value: float) -> np.ndarray:
    return np.full((count, 3), value, np.float32)


def held(arena: RowArena, block: Block) -> list[float]:
    return arena.matrix[block.begin : block.begin + block.length, 0].tolist()


def test_blocks_that_grow_in_turn_keep_their_rows() -> None:
    arena, blocks = RowArena(3), [Block() for _ in range(5)]
    expected: list[list[float]] = [[] for _ in blocks]
    rng = np.random.default_rng(0)
    for step in range(300):
        number, count = int(rng.integers(5)), int(rng.integers(0, 40))
        arena.append(blocks[number], rows(count, float(step)))
        expected[number] += [float(step)] * count
    assert [held(arena, block) for block in blocks] == expected
    places = sorted((block.begin, block.begin + block.reserved) for block in blocks)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places))


def test_a_reader_keeps_what_it_took() -> None:
    arena, block, other = RowArena(3), Block(), Block()
    arena.append(block, rows(10, 1.0))
    matrix, begin, length = arena.matrix, block.begin, block.length
    for step in range(40):
        arena.append(other, rows(100, 9.0))
        arena.append(block, rows(100, float(step)))
    assert arena.matrix is not matrix
    assert (matrix[begin : begin + length] == 1.0).all()


def test_what_nobody_holds_any_more_goes_when_the_matrix_is_replaced() -> None:
    arena, kept = RowArena(3), Block()
    arena.append(kept, rows(10, 1.0))
    for _ in range(50):
        dropped = Block()
        arena.append(dropped, rows(1000, 2.0))
        del dropped
        gc.collect()
    assert len(arena.matrix) < 10_000
    assert held(arena, kept) == [1.0] * 10
