"""segment_max_similarity with Triton: the examples of the op, whole numbers bit for bit, flags, pieces and tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")
pytest.importorskip("triton")

from prismem_core import ops
from prismem_core.kernels.triton import group_scores, launch
from prismem_core.ops.inputs import bfloat16_bits
from tests.kernels.triton import calls

EXAMPLES = list(ops.SEGMENT_MAX_SIMILARITY.examples(np.random.default_rng(7)))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.label for example in EXAMPLES])
def test_agrees_with_the_definition(example: ops.Example) -> None:
    call = ops.SEGMENT_MAX_SIMILARITY.check(**example.arguments)
    noted = calls.flag() if call.raises else None
    assert ops.SEGMENT_MAX_SIMILARITY.agrees(calls.best_items(call, noted), call) is None
    assert noted is None or noted.item() == calls.UNTOUCHED


def whole(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.integers(-2, 3, shape).astype(np.float32)


def exactly(call: Any, found: Any) -> None:
    expected = ops.SEGMENT_MAX_SIMILARITY.reference(call)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.indices, expected.indices)


def grouped(rng: np.random.Generator, rows: int, keys: int) -> dict[str, ops.Segments | None]:
    """Every way of sharing: all see all, everyone a segment of its own, groups with one row, few and many, overlaps."""
    cuts = np.sort(rng.integers(0, keys, rows - 1))
    ranges = [(0, keys), (5, 6), (7, 7), (keys // 3, keys), (2, keys // 2)]
    return {
        "all": None,
        "private": ops.Segments(np.concatenate([[0], cuts, [keys]])),
        "groups": ops.Segments.grouped(ranges, rng.choice(5, rows, p=[0.6, 0.1, 0.1, 0.1, 0.1])),
        "pairs": ops.Segments.grouped(ranges[:2] + ranges[3:], np.arange(rows) % 4),
    }


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sharing", ["all", "private", "groups", "pairs"])
def test_whole_numbers_give_exactly_the_definition(kind: str, sharing: str) -> None:
    rng = np.random.default_rng(3)
    evidence, items = whole(rng, 21, 19), whole(rng, 160, 19)
    items[90:] = items[:70]  # every best score is met twice
    segments = grouped(rng, 21, 160)[sharing]
    if kind == "bfloat16":
        call = ops.SEGMENT_MAX_SIMILARITY.check(
            bfloat16_bits(evidence), bfloat16_bits(items), segments, dtype="bfloat16"
        )
    else:
        call = ops.SEGMENT_MAX_SIMILARITY.check(evidence.astype(kind), items.astype(kind), segments)
    exactly(call, calls.best_items(call, calls.flag()))


@pytest.mark.parametrize("sharing", ["all", "private", "groups"])
def test_the_tiles_of_a_device_give_the_same(sharing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "sm_of", lambda device: 80)
    monkeypatch.setattr(group_scores, "PROGRAMS", 3)  # so that a program has several tiles
    rng = np.random.default_rng(4)
    for dim in (1, 40, 130):
        items = whole(rng, 300, dim)
        items[200:] = items[:100]
        call = ops.SEGMENT_MAX_SIMILARITY.check(whole(rng, 18, dim), items, grouped(rng, 18, 300)[sharing])
        exactly(call, calls.best_items(call))


def test_long_groups_are_cut_into_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_scores, "PIECE", 37)
    rng = np.random.default_rng(5)
    evidence, items = whole(rng, 9, 6), whole(rng, 200, 6)
    for segments in grouped(rng, 9, 200).values():
        call = ops.SEGMENT_MAX_SIMILARITY.check(evidence, items, segments)
        exactly(call, calls.best_items(call))


@pytest.mark.parametrize("sharing", ["all", "private", "groups"])
def test_the_flag_names_the_first_pair_that_is_scored(sharing: str) -> None:
    rng = np.random.default_rng(6)
    evidence, items = whole(rng, 7, 5), whole(rng, 60, 5)
    items[[11, 40], 2] = np.nan, np.inf
    evidence[:, 2] = 1.0
    segments = grouped(rng, 7, 60)[sharing]
    call = ops.SEGMENT_MAX_SIMILARITY.check(evidence, items, segments, nonfinite="skip")
    noted = calls.flag()
    exactly(call, calls.best_items(call, noted))
    ranges = [(0, 60)] * 7 if segments is None else [segments.range_of(row) for row in range(7)]
    bad = [row * 60 + item for row, (begin, end) in enumerate(ranges) for item in (11, 40) if begin <= item < end]
    assert noted.item() == min(bad, default=calls.UNTOUCHED)


def test_nothing_but_nan_is_no_item() -> None:
    evidence, items = np.ones((3, 4), np.float32), np.full((9, 4), np.nan, np.float32)
    items[8] = -np.inf
    call = ops.SEGMENT_MAX_SIMILARITY.check(evidence, items, ops.Segments([0, 4, 4, 9]), nonfinite="skip")
    found = calls.best_items(call)
    assert found.values.tolist() == [0.0, 0.0, -np.inf]
    assert found.indices.tolist() == [-1, -1, 4]
    one = ops.SEGMENT_MAX_SIMILARITY.check(evidence, items[:8], nonfinite="skip")
    assert calls.best_items(one).indices.tolist() == [-1] * 3


def test_minus_zero_is_zero_and_ties_go_to_the_lowest() -> None:
    items = np.array([[-1.0], [-0.0], [0.0], [-0.0]], np.float32)
    for rows in (1, 2):
        call = ops.SEGMENT_MAX_SIMILARITY.check(np.ones((rows, 1), np.float32), items)
        assert calls.best_items(call).indices.tolist() == [1] * rows


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("rows", [1, 5])
def test_cosines_of_rows_far_from_one(scale: float, rows: int) -> None:
    rng = np.random.default_rng(8)
    items = np.float32(scale) * rng.standard_normal((50, 12)).astype(np.float32)
    evidence = np.float32(1 / scale) * rng.standard_normal((rows, 12)).astype(np.float32)
    call = ops.SEGMENT_MAX_SIMILARITY.check(evidence, items, normalize=True)
    assert ops.SEGMENT_MAX_SIMILARITY.agrees(calls.best_items(call, calls.flag()), call) is None


def test_rows_at_any_distance() -> None:
    rng = np.random.default_rng(9)
    evidence, items = whole(rng, 4, 7), whole(rng, 30, 7)
    call = ops.SEGMENT_MAX_SIMILARITY.check(evidence, np.broadcast_to(items[:1], items.shape))
    exactly(call, calls.best_items(call))
    wide = np.zeros((60, 23), np.float32)
    wide[::2, 3:10] = items
    call = ops.SEGMENT_MAX_SIMILARITY.check(evidence, wide[::2, 3:10])
    assert not call.items.data.flags.c_contiguous
    exactly(call, calls.best_items(call))
