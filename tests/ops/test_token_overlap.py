"""token_overlap: shares to the last bit, sets in any order, segments, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.ops.token_overlap import random_sets
from prismem_core.tasks.text import content_stems, dice


def ragged(sets: list[list[int]]) -> tuple[Any, Any]:
    ids = np.array(list(itertools.chain.from_iterable(sets)), np.int32)
    return ids, np.concatenate([[0], np.cumsum([len(one) for one in sets], dtype=np.int64)]).astype(np.int64)


def overlap(queries: list[list[int]], keys: list[list[int]], **more: Any) -> Any:
    (left, left_offsets), (right, right_offsets) = ragged(queries), ragged(keys)
    return ops.token_overlap(left, right, query_offsets=left_offsets, key_offsets=right_offsets, **more)


@pytest.mark.usefixtures("backend")
def test_shares() -> None:
    queries, keys = [[1, 2, 3], [7], []], [[3, 2, 9, 9, 9], [], [1, 2, 3]]
    shares = overlap(queries, keys)
    assert shares.dtype == np.float64
    assert shares.tolist() == [[2 * 2 / 6, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    shares = overlap(queries, keys, measure="coverage")
    assert shares.tolist() == [[2 / 3, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.usefixtures("backend")
def test_the_measure_of_a_pair_depends_on_the_pair_alone() -> None:
    rng = np.random.default_rng(2)
    (left, left_offsets), (right, right_offsets) = random_sets(rng, 70, 40, 300), random_sets(rng, 130, 40, 300)
    for measure in ("dice", "coverage"):
        whole = ops.token_overlap(left, right, query_offsets=left_offsets, key_offsets=right_offsets, measure=measure)
        for row in (0, 13, 69):
            for column in (0, 63, 64, 129):
                alone = ops.token_overlap(
                    left,
                    right,
                    query_offsets=left_offsets[row : row + 2],
                    key_offsets=right_offsets[column : column + 2],
                    measure=measure,
                )
                assert alone.tolist() == [[whole[row, column]]]


@pytest.mark.usefixtures("backend")
def test_dice_is_symmetric() -> None:
    rng = np.random.default_rng(4)
    (left, left_offsets), (right, right_offsets) = random_sets(rng, 20, 9, 40), random_sets(rng, 65, 9, 40)
    there = ops.token_overlap(left, right, query_offsets=left_offsets, key_offsets=right_offsets)
    back = ops.token_overlap(right, left, query_offsets=right_offsets, key_offsets=left_offsets)
    assert (there == back.T).all()


@pytest.mark.usefixtures("backend")
def test_segments_give_the_pieces_one_after_the_other() -> None:
    keys = [[1], [2], [1, 2], [3]]
    segments = ops.Segments.grouped([(0, 3), (2, 4), (4, 4)], [1, 0, 2, 0])
    shares = overlap([[3], [1], [1], [2, 2]], keys, segments=segments, measure="coverage")
    assert shares.tolist() == [0.0, 1.0, *[1.0, 0.0, 1.0], *[0.0, 1.0, 1.0]]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("shared", [254, 255, 256, 510, 511, 700])
def test_more_shared_ids_than_a_byte_counts(shared: int) -> None:
    query = list(range(900))
    assert overlap([query], [query[:shared]], measure="coverage").tolist() == [[shared / 900]]


@pytest.mark.usefixtures("backend")
def test_the_dice_of_texts_is_that_of_their_stems() -> None:
    texts = ["Caroline went hiking", "hikes, hiking and a hike!", "", "the of and", "She paints lakes and sunsets"]
    numbers: dict[str, int] = {}
    sets = [[numbers.setdefault(stem, len(numbers)) for stem in content_stems(text)] for text in texts]
    assert overlap(sets, sets).tolist() == [[dice(left, right) for right in texts] for left in texts]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9), max_size=20), max_size=8),
    st.lists(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9), max_size=20), max_size=80),
    st.sampled_from(["dice", "coverage"]),
)
def test_every_instruction_set_counts_alike(queries: list[list[int]], keys: list[list[int]], measure: str) -> None:
    with ops.use("reference"):
        expected = overlap(queries, keys, measure=measure)
    for variant in ops.instruction_sets():
        with ops.use(f"cpu/{variant}"):
            assert overlap(queries, keys, measure=measure).tobytes() == expected.tobytes()


def test_errors_name_the_argument() -> None:
    ids: Any = np.zeros(4, np.int32)
    good: dict[str, Any] = {"query_offsets": [0, 4], "key_offsets": [0, 1, 4]}
    with pytest.raises(ArgumentError, match='measure: expected "dice" or "coverage", got \'jaccard\''):
        ops.token_overlap(ids, ids, measure="jaccard", **good)
    with pytest.raises(ArgumentError, match="offsets of queries: the last set ends at 5, but there are 4 ids"):
        ops.token_overlap(ids, ids, **{**good, "query_offsets": [0, 5]})
    with pytest.raises(ArgumentError, match="offsets of keys: offsets: expected numbers from 0 that never fall"):
        ops.token_overlap(ids, ids, **{**good, "key_offsets": [2, 1]})
    with pytest.raises(ArgumentError, match="keys: expected int32, got int64"):
        ops.token_overlap(ids, ids.astype(np.int64), **good)
    with pytest.raises(ArgumentError, match="queries: expected 1 axes"):
        ops.token_overlap(ids[None], ids, **good)
    with pytest.raises(ArgumentError, match="segments: made for 2 rows, but query_offsets has 1"):
        ops.token_overlap(ids, ids, segments=ops.Segments([0, 1, 2]), **good)
    with pytest.raises(ArgumentError, match=r"segments: expected ops\.Segments or None, got list"):
        ops.token_overlap(ids, ids, segments=[0, 2], **good)  # type: ignore[arg-type]


def test_native_code_refuses_what_would_leave_the_arrays() -> None:
    from prismem_core import _native

    ids, offsets = np.zeros(4, np.int32), np.array([0, 2, 4])
    starts, out = np.array([0, 2]), np.zeros(4)
    for wrong in (np.array([0, 2, 5]), np.array([0, 3, 2]), np.array([-1, 2, 4])):
        with pytest.raises(ValueError, match="expected offsets"):
            _native.token_overlap(ids, wrong, ids, offsets, None, None, True, starts, out)
    for wrong in (np.array([0, 3]), np.array([-1, 2]), np.array([0])):
        with pytest.raises(ValueError, match="out_offsets: expected"):
            _native.token_overlap(ids, offsets, ids, offsets, None, None, True, wrong, out)
