"""What a caller is told when the library is missing, a call makes no sense or an array cannot be taken."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core.arrays.device import HostDevice
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.kernels import cuda
from prismem_core.kernels.cuda import library
from prismem_core.kernels.cuda.library import OPS, PlanStruct, RowsStruct, SearchStruct
from prismem_core.ops.mmr_select import MMR_SELECT
from prismem_core.ops.segment_max_similarity import SEGMENT_MAX_SIMILARITY
from prismem_core.ops.similarity import SIMILARITY
from prismem_core.ops.top_k import TOP_K
from tests.kernels.cuda import emulated

ONES = np.ones((4, 8), np.float32)


def outputs(rows: int, columns: int) -> tuple[Any, Any, Any]:
    return np.empty((rows, columns), np.float32), np.empty((rows, columns), np.int64), np.empty(rows, np.int64)


def search(queries: Any, keys: Any, k: int = 2, filled: tuple[Any, Any, Any] | None = None, **how: Any) -> None:
    filled = outputs(4, k) if filled is None else filled
    cuda.top_k(queries, keys, None, None, None, k, False, None, *filled, None, device=HostDevice(), **how)


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(library.ENVIRONMENT, str(tmp_path / "none.so"))
    with pytest.raises(NoImplementation, match=r"none\.so; install the package with nvcc in PATH"):
        search(ONES, ONES)
    works, reason = cuda.available()
    assert not works
    assert "not built" in reason
    assert not cuda.is_emulator()


def test_a_file_that_is_no_library_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    monkeypatch.setenv(library.ENVIRONMENT, str(tmp_path / "text.so"))
    with pytest.raises(NoImplementation, match="cannot be loaded"):
        search(ONES, ONES)


def test_the_emulator_is_available() -> None:
    assert cuda.is_emulator()
    works, reason = cuda.available()
    assert works
    assert reason.endswith("for emulator")
    assert cuda.architectures() == "emulator"


@pytest.mark.parametrize(
    ("queries", "keys", "message"),
    [
        (ONES, ONES.astype(np.float64), "keys: expected two axes of float32, float16 or bfloat16, got float64"),
        (ONES[0], ONES, "queries: expected two axes"),
        (ONES, np.ones((8, 4), np.float32).T, "elements of a row must be neighbours"),
        (ONES, np.ones((4, 9), np.float32), "expected 8 dimensions, as the queries have, got 9"),
    ],
)
def test_rows_that_kernels_cannot_read_are_refused(queries: Any, keys: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        search(queries, keys)


def test_outputs_of_another_shape_kind_or_layout_are_refused() -> None:
    scores, indices, counts = outputs(4, 2)
    for wrong in (
        (np.empty((4, 3), np.float32), indices, counts),
        (scores, indices.astype(np.int32), counts),
        (scores, np.empty((4, 4), np.int64)[:, ::2], counts),
    ):
        with pytest.raises(ArgumentError, match="expected contiguous"):
            search(ONES, ONES, filled=wrong)


def test_a_path_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ArgumentError, match="tensor cores take rows of float16 or of bfloat16"):
        search(ONES, ONES, path="tiles")
    half = ONES.astype(np.float16)
    with pytest.raises(ArgumentError, match="top_k on CUDA: path: none of top_k"):
        search(half, half, path="pool")
    many = np.ones((100, 8), np.float16)
    with pytest.raises(ArgumentError, match="at most 64 hits"):
        search(half, many, k=65, path="tiles")
    arguments = {"queries": ONES, "keys": np.ones((300, 8), np.float32), "k": 2, "relevance_weight": 0.5}
    with pytest.raises(ArgumentError, match="a pool holds at most 256 candidates, got 300"):
        emulated.call(MMR_SELECT, arguments, path="pool")


def test_ranges_and_groups_are_checked_before_anything_runs() -> None:
    filled = outputs(4, 2)
    for ranges, groups, message in (
        ([[0, 9]] * 4, None, "range 0 goes from 0 to 9 of 4 keys"),
        ([[0, 4]], None, "expected one a query, 4, or groups; got 1"),
        ([[0, 4]], [0, 0, 1, 0], "query 2 has group 1 of 1"),
    ):
        bounds, numbers = np.array(ranges), None if groups is None else np.array(groups)
        with pytest.raises(ArgumentError, match=message):
            cuda.top_k(ONES, ONES, bounds, numbers, None, 2, False, None, *filled, None, device=HostDevice())


def test_more_keys_than_an_index_can_count_are_refused() -> None:
    keys = RowsStruct(None, 1 << 31, 8, 0, 0, None, None)
    call = SearchStruct(queries=RowsStruct(None, 1, 8, 8, 0, None, None), keys=keys, k=1)
    with pytest.raises(ArgumentError, match="at most 2147483647 keys in one call, got 2147483648"):
        library.call("plan_search", ctypes.byref(call), OPS["top_k"], ctypes.byref(PlanStruct()))


def test_a_pair_that_is_not_finite_is_noted_and_a_masked_one_is_not() -> None:
    keys = np.ones((40, 8), np.float32)
    keys[17, 3], keys[30, 0] = np.nan, np.inf
    mask = np.ones(40, np.bool_)
    mask[17] = False
    more = {"relevance_weight": 0.5}
    for op, arguments, row in (
        (TOP_K, {"queries": ONES, "keys": keys, "k": 2}, 17),
        (TOP_K, {"queries": ONES, "keys": keys, "k": 2, "mask": mask}, 30),
        (SIMILARITY, {"x": ONES, "y": keys}, 17),
        (SEGMENT_MAX_SIMILARITY, {"evidence": ONES, "items": keys}, 17),
        (MMR_SELECT, {"queries": ONES, "keys": keys, "k": 2, **more}, 17),
        (MMR_SELECT, {"queries": ONES, "keys": keys, "k": 2, "mask": mask, **more}, 30),
    ):
        for path in ("auto", "steps") if op is MMR_SELECT else ("auto",):
            with pytest.raises(ArgumentError, match=f"row {row} holds NaN or infinity"):
                emulated.call(op, arguments, path=path)
            result, call = emulated.call(op, {**arguments, "nonfinite": "skip"}, path=path)
            expected = op.reference(call)
            parts = zip(result, expected, strict=True) if isinstance(result, tuple) else [(result, expected)]
            assert all(np.array_equal(one, other, equal_nan=True) for one, other in parts)
