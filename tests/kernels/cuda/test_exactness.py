"""On whole numbers every sum is exact, so each kernel and each way to run it must give the bits of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prismem_core.ops.segment_max_similarity import SEGMENT_MAX_SIMILARITY
from prismem_core.ops.similarity import SIMILARITY
from prismem_core.ops.top_k import TOP_K
from tests.kernels.cuda import emulated
from tests.kernels.cuda.cases import HALF_KINDS, Case, cases, cosines, whole


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
