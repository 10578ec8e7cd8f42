"""Rows that lie more than 2**32 bytes behind the first: every offset is of 64 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.ops.mmr_select import MMR_SELECT
from prismem_core.ops.segment_max_similarity import SEGMENT_MAX_SIMILARITY
from prismem_core.ops.similarity import SIMILARITY
from prismem_core.ops.top_k import TOP_K
from tests.kernels.cuda import emulated

COUNT, DIM, STRIDE = 20, 40, (1 << 27) + 8


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> NDArray[Any]:
    """Rows 2**28 bytes apart in a file with holes."""
    path: Path = tmp_path_factory.mktemp("offsets") / "rows"
    with path.open("wb") as file:
        file.truncate(COUNT * STRIDE * 2)
    memory = np.memmap(path, np.float16, "r+", shape=(COUNT, STRIDE))
    rows: NDArray[Any] = memory[:, :DIM]
    rows[...] = np.random.default_rng(1).integers(-4, 5, (COUNT, DIM))
    return rows


@pytest.mark.parametrize("kind", ("float16", "bfloat16"))
@pytest.mark.parametrize("path", ("rows", "rows_batch", "tiles_small", "tiles"))
def test_searches_over_rows_far_apart(path: str, kind: str, spread: NDArray[Any]) -> None:
    near = np.ascontiguousarray(spread)
    if kind == "bfloat16":
        near = near.astype(np.float32).astype(ml_dtypes.bfloat16)
        spread[...] = near.view(np.float16)
    far = spread.view(near.dtype)
    calls: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
        (TOP_K, {"queries": near, "keys": near, "k": 7}, {"queries": far, "keys": far, "k": 7}),
        (SEGMENT_MAX_SIMILARITY, {"evidence": near, "items": near}, {"evidence": near, "items": far}),
    ]
    if path in ("rows_batch", "tiles"):
        calls.append((SIMILARITY, {"x": near, "y": near}, {"x": far, "y": far}))
    for op, here, there in calls:
        expected, actual = (emulated.call(op, arguments, path=path)[0] for arguments in (here, there))
        np.testing.assert_equal(np.asarray(actual[0]), np.asarray(expected[0]))
        np.testing.assert_equal(np.asarray(actual[1]), np.asarray(expected[1]))
    if kind == "bfloat16":
        spread[...] = near.astype(np.float32)


@pytest.mark.parametrize("path", ("pool", "steps"))
def test_selections_over_rows_far_apart(path: str, spread: NDArray[Any]) -> None:
    near = np.ascontiguousarray(spread)
    results = []
    for keys in (near, spread):
        arguments = {"queries": near[:2], "keys": keys, "k": 9, "relevance_weight": 0.5}
        results.append(emulated.call(MMR_SELECT, arguments, path=path)[0])
    for here, there in zip(*results, strict=True):
        np.testing.assert_equal(there, here)
