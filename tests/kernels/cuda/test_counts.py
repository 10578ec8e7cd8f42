"""Bytes and tensor operations of whole launches, counted by the emulator, against the floors of docs/gpu.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.ops.mmr_select import MMR_SELECT
from prismem_core.ops.registry import Op
from prismem_core.ops.segment_max_similarity import SEGMENT_MAX_SIMILARITY
from prismem_core.ops.segments import Segments
from prismem_core.ops.top_k import TOP_K
from tests.kernels.cuda import emulated

ROOM = 1.1
"""What a launch may read more than its floor."""


def half(rng: np.random.Generator, count: int, dim: int) -> NDArray[np.float16]:
    return rng.integers(-4, 5, (count, dim)).astype(np.float16)


def counted(op: Op[Any, Any], arguments: dict[str, Any], watched: str, **how: Any) -> emulated.Counted:
    with emulated.machine(watched=arguments[watched]) as counts:
        emulated.call(op, arguments, **how)
    return counts[0]


@pytest.mark.parametrize("kind", (np.float16, np.float32))
def test_one_query_reads_each_key_once_and_little_else(kind: Any) -> None:
    rng = np.random.default_rng(1)
    queries, keys = half(rng, 1, 256).astype(kind), half(rng, 4096, 256).astype(kind)
    counts = counted(TOP_K, {"queries": queries, "keys": keys, "k": 10}, "keys")
    assert counts.watched == keys.nbytes
    assert counts.read <= ROOM * keys.nbytes
    assert counts.written < 0.01 * keys.nbytes
    assert counts.launches == 2


@pytest.mark.parametrize(("queries", "blocks"), ((16, 1), (64, 1), (100, 2)))
def test_a_batch_reads_each_key_once_a_block_of_queries(queries: int, blocks: int) -> None:
    rng = np.random.default_rng(2)
    x, keys = half(rng, queries, 128), half(rng, 2048, 128)
    counts = counted(TOP_K, {"queries": x, "keys": keys, "k": 10}, "keys")
    assert counts.watched == blocks * keys.nbytes
    scores = 4 * queries * len(keys)
    assert counts.written < 0.05 * scores
    rows = 16 if queries == 16 else 64 * blocks
    assert counts.tensor_operations == 2 * rows * len(keys) * 128


def test_private_sets_are_read_once() -> None:
    rng = np.random.default_rng(3)
    segments = Segments.from_lengths(rng.integers(5, 100, 40))
    items = half(rng, int(segments.ranges[-1, 1]), 512)
    evidence = half(rng, 40, 512)
    counts = counted(SEGMENT_MAX_SIMILARITY, {"evidence": evidence, "items": items, "segments": segments}, "items")
    assert counts.watched == items.nbytes
    assert counts.read <= ROOM * (items.nbytes + evidence.nbytes)
    assert counts.launches == 1


def test_evidence_that_shares_a_set_reads_it_once() -> None:
    rng = np.random.default_rng(4)
    segments = Segments([0, 100, 250], np.arange(60) % 2)
    items, evidence = half(rng, 250, 256), half(rng, 60, 256)
    counts = counted(SEGMENT_MAX_SIMILARITY, {"evidence": evidence, "items": items, "segments": segments}, "items")
    assert counts.watched == items.nbytes


def test_a_pool_is_read_once_and_half_of_its_products_are_made() -> None:
    rng = np.random.default_rng(5)
    segments = Segments.from_lengths([200, 200])
    queries, keys = half(rng, 2, 256), half(rng, 400, 256)
    arguments = {"queries": queries, "keys": keys, "k": 25, "relevance_weight": 0.5, "segments": segments}
    counts = counted(MMR_SELECT, arguments, "keys")
    assert counts.watched == keys.nbytes
    assert counts.read <= ROOM * (keys.nbytes + queries.nbytes)
    assert counts.launches == 1
    # Seven tiles of 32 rows beside each other, so 28 of the lower triangle; all pairs would be 200 * 200.
    assert counts.tensor_operations == 2 * 2 * 28 * 32 * 32 * 256
    assert counts.tensor_operations < 0.75 * 2 * 2 * 200 * 200 * 256


def test_a_masked_key_of_a_pool_is_not_read() -> None:
    rng = np.random.default_rng(6)
    queries, keys, mask = half(rng, 1, 256), half(rng, 200, 256), np.arange(200) % 4 == 0
    for path in ("pool", "steps"):
        arguments = {"queries": queries, "keys": keys, "k": 1, "relevance_weight": 0.5, "mask": mask}
        assert counted(MMR_SELECT, arguments, "keys", path=path).watched == keys.nbytes // 4
