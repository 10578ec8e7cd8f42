"""On whole numbers every sum is exact, so each kernel and each way to run it must give the bits of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.arrays.device import HostDevice
from prismem_core.kernels import cuda
from prismem_core.ops.segment_max_similarity import SEGMENT_MAX_SIMILARITY
from prismem_core.ops.similarity import SIMILARITY
from prismem_core.ops.top_k import TOP_K
from tests.kernels.cuda import emulated
from tests.kernels.cuda.cases import HALF_KINDS, KINDS, Case, cases, cosines, whole


def same(actual: Any, expected: Any) -> bool:
    if not isinstance(actual, tuple):
        return bool(np.array_equal(actual, expected))
    return all(np.array_equal(one, other) for one, other in zip(actual, expected, strict=True))


@pytest.mark.parametrize("op", ("top_k", "similarity", "segment_max_similarity", "mmr_select"))
@pytest.mark.parametrize("seed", (1, 2, 3))
def test_whole_numbers_give_the_bits_of_the_definition(op: str, seed: int) -> None:
    wrong = []
    for case in cases(seed):
        if case.op.name == op:
            with emulated.machine(seed):
                result, call = emulated.call(case.op, case.arguments, **case.how)
            if not same(result, case.op.reference(call)):
                wrong.append(case.label)
    assert wrong == []


@pytest.mark.parametrize("seed", (4, 5))
def test_cosines_of_rows_of_any_length_agree_with_the_definition(seed: int) -> None:
    complaints = []
    for case in cosines(seed):
        with emulated.machine(seed):
            result, call = emulated.call(case.op, case.arguments, **case.how)
        complaint = case.op.agrees(result, call)
        if complaint:
            complaints.append(f"{case.op.name} {case.label}: {complaint}")
    assert complaints == []


def test_the_way_a_range_is_cut_changes_no_bit() -> None:
    rng = np.random.default_rng(6)
    queries, keys = rng.standard_normal((5, 100), np.float32), rng.standard_normal((900, 100), np.float32)
    arguments = {"queries": queries, "keys": keys, "k": 20}
    expected, _ = emulated.call(TOP_K, arguments, path="rows")
    for how in ({"path": "rows", "span": 64}, {"path": "rows_batch"}, {"path": "rows_batch", "span": 333}):
        assert same(emulated.call(TOP_K, arguments, **how)[0], expected)
    one_by_one = [emulated.call(TOP_K, {**arguments, "queries": queries[i : i + 1]})[0] for i in range(5)]
    assert same(tuple(np.concatenate(parts) for parts in zip(*one_by_one, strict=True)), expected)


def test_rows_that_are_one_row_in_memory() -> None:
    rng = np.random.default_rng(7)
    for kind in HALF_KINDS:
        keys = np.broadcast_to(whole(rng, 1, 64, kind), (130, 64))
        queries = whole(rng, 20, 64, kind)
        for path in ("rows", "tiles"):
            result, call = emulated.call(TOP_K, {"queries": queries, "keys": keys, "k": 4}, path=path)
            assert same(result, TOP_K.reference(call))
            assert result.indices[0].tolist() == [0, 1, 2, 3]


def packed(scores: NDArray[np.float32], indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Keys as kernels make them: larger for a larger score, then for a lower index."""
    bits = (scores + np.float32(0.0)).view(np.uint32)
    ordered = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    lower: NDArray[np.uint64] = ordered << np.uint64(32) | (np.uint64(0xFFFFFFFF) - indices.astype(np.uint64))
    return lower


@pytest.mark.parametrize("k", (1, 17, 256))
@pytest.mark.parametrize("seed", (1, 2))
def test_lists_are_merged_alone(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-9, 9, (3, 700)).astype(np.float32)
    scores[1] = -0.0
    lists = packed(scores, np.broadcast_to(np.arange(700), scores.shape)).reshape(21, 100)
    lists[rng.random(lists.shape) < 0.2] = 0
    offsets = np.array([0, 7, 14, 21])
    for how in ({"lists_a_query": 7}, {"lists_a_query": 0, "offsets": offsets}):
        found = np.empty((3, k), np.float32), np.empty((3, k), np.int64), np.empty(3, np.int64)
        with emulated.machine(seed):
            cuda.top_k_merge(lists, scores=found[0], indices=found[1], counts=found[2], device=HostDevice(), **how)
        for row, keys in enumerate(lists.reshape(3, 700)):
            kept = np.flatnonzero(keys)
            order = kept[np.lexsort((kept, -scores[row, kept]))][:k]
            assert found[2][row] == len(order)
            assert found[1][row, : len(order)].tolist() == order.tolist()
            assert np.array_equal(found[0][row, : len(order)], scores[row, order])
            assert (found[1][row, len(order) :] == -1).all()


def test_more_hits_than_keys_leave_unused_cells() -> None:
    rng = np.random.default_rng(9)
    queries, keys = whole(rng, 2, 8, HALF_KINDS[0]), whole(rng, 30, 8, HALF_KINDS[0])
    found = np.empty((2, 300), np.float32), np.empty((2, 300), np.int64), np.empty(2, np.int64)
    cuda.top_k(queries, keys, None, None, None, 300, False, None, *found, None, device=HostDevice())
    assert found[2].tolist() == [30, 30]
    assert (found[1][:, 30:] == -1).all()
    assert np.isneginf(found[0][:, 30:]).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_lengths_of_rows_hold_from_the_smallest_to_the_largest_numbers(kind: np.dtype[Any]) -> None:
    rng = np.random.default_rng(10)
    values = rng.standard_normal((40, 70)).astype(np.float32)
    if kind != np.float16:
        values *= (np.float32(10.0) ** rng.integers(-37, 37, (40, 1))).astype(np.float32)
    rows = values.astype(kind)
    rows[3], rows[5, 7], rows[6, 0] = 0, np.nan, -np.inf
    powers, inverses = np.empty(40, np.float32), np.empty(40, np.float32)
    cuda.row_scales(rows, powers, inverses, device=HostDevice())
    exact = rows.astype(np.float64) * powers[:, None].astype(np.float64)
    with np.errstate(all="ignore"):
        lengths = np.sqrt((exact * exact).sum(axis=1))
    assert inverses[3] == 0.0
    assert np.isnan(inverses[[5, 6]]).all()
    others = np.setdiff1d(np.arange(40), [3, 5, 6])
    assert np.allclose(inverses[others] * lengths[others], 1.0, rtol=1e-6, atol=0)
    assert (np.frexp(powers)[0] == 0.5).all()
    searched = {"queries": rows[others[:2]], "keys": rows[others], "k": 5, "normalize": True}
    expected, _ = emulated.call(TOP_K, searched)
    given, _ = emulated.call(TOP_K, searched, key_scales=(powers[others], inverses[others]))
    assert same(given, expected)


def test_outputs_are_written_whole() -> None:
    rng = np.random.default_rng(8)
    for case in (
        Case(
            "", TOP_K, {"queries": whole(rng, 3, 8, HALF_KINDS[0]), "keys": whole(rng, 9, 8, HALF_KINDS[0]), "k": 9}, {}
        ),
        Case(
            "",
            SEGMENT_MAX_SIMILARITY,
            {"evidence": np.ones((2, 4), np.float32), "items": np.ones((0, 4), np.float32)},
            {},
        ),
        Case("", SIMILARITY, {"x": np.ones((2, 0), np.float32), "y": np.ones((3, 0), np.float32)}, {}),
    ):
        result, call = emulated.call(case.op, case.arguments)
        assert same(result, case.op.reference(call))
