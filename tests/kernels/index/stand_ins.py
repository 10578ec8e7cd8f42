"""Stand-ins for kernels: they do what a launcher does, on tensors of the CPU, in float64.

Whoever imports this is skipped where there is no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex
from prismem_core.index.device_blocks import BlockSizes
from prismem_core.index.device_launchers import Launchers
from prismem_core.index.device_store import DeviceStore
from prismem_core.ops.mmr_select import greedy

torch: Any = pytest.importorskip("torch", reason="an index on a device holds its rows through torch, which is missing")

TINY = BlockSizes(least=256, most=2048, host=256)
"""A few rows a block, so that small indexes have many."""


def exact_scores(x: Any, y: Any, normalize: bool) -> np.ndarray:
    """Scores (m, n) float32."""
    left, right = x.double().numpy(), y.double().numpy()
    with np.errstate(all="ignore"):
        scores = left @ right.T
        if normalize:
            lengths = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=1)
            scores = np.where(lengths == 0, 0.0, scores / np.where(lengths == 0, 1.0, lengths))
        return np.asarray(scores, np.float32)


def top_k(
    queries: Any,
    keys: Any,
    ranges: Any,
    groups: Any,
    mask: Any,
    k: int,
    normalize: bool,
    min_score: float | None,
    scores: Any,
    indices: Any,
    counts: Any,
    flag: Any,
    *,
    device: Any,
    key_scales: Any = None,
) -> None:
    """The launcher of top_k, without segments."""
    assert ranges is None
    assert groups is None
    if key_scales is not None:
        check_scales(keys, key_scales)
    found = exact_scores(queries, keys, normalize)
    allowed = np.ones(found.shape, np.bool_) if mask is None else np.broadcast_to(mask.numpy(), found.shape)
    for row in range(found.shape[0]):
        bad = np.flatnonzero(allowed[row] & ~np.isfinite(found[row]))
        if bad.size and k and flag is not None:
            flag[0] = min(int(flag[0]), row * found.shape[1] + int(bad[0]))
        eligible = allowed[row] & ~np.isnan(found[row])
        if min_score is not None:
            eligible &= found[row] >= np.float32(min_score)
        chosen = np.flatnonzero(eligible)
        chosen = chosen[np.argsort(-found[row, chosen], kind="stable")][:k]
        counts[row] = len(chosen)
        scores[row] = float("-inf")
        indices[row] = -1
        scores.numpy()[row, : len(chosen)] = found[row, chosen]
        indices.numpy()[row, : len(chosen)] = chosen


def row_scales(rows: Any, *, device: Any) -> tuple[Any, Any]:
    """Not what the kernel computes, but as telling: a number of the whole row, and one of its first cell."""
    return rows.float().sum(1), rows[:, 0].float().clone()


def check_scales(keys: Any, scales: Any) -> None:
    """They are those of these very rows."""
    for given, expected in zip(scales, row_scales(keys, device=None), strict=True):
        np.testing.assert_array_equal(given.numpy(), expected.numpy())


def mmr_select(
    queries: Any,
    keys: Any,
    ranges: Any,
    groups: Any,
    mask: Any,
    k: int,
    relevance_weight: float,
    min_relevance: float | None,
    normalize: bool,
    indices: Any,
    scores: Any,
    counts: Any,
    flag: Any,
    *,
    device: Any,
) -> None:
    """The launcher of mmr_select, with a range a query."""
    assert groups is None
    assert mask is None
    assert min_relevance is None
    for row, (begin, end) in enumerate(np.asarray(ranges)):
        own = keys[begin:end]
        relevance = exact_scores(queries[row : row + 1], own, normalize)[0].astype(np.float64)
        similarity = exact_scores(own, own, normalize).astype(np.float64)
        picks, values = greedy(relevance, similarity, np.arange(end - begin), k, relevance_weight)
        counts[row] = len(picks)
        indices[row] = -1
        scores[row] = float("-inf")
        indices.numpy()[row, : len(picks)] = picks
        scores.numpy()[row, : len(picks)] = values


class StandInCodes:
    """What `prismem_core.kernels.triton.codes` offers: codes that are the rows themselves, so that stale ones show."""

    @dataclass
    class Codes:
        """Rows as they were when they were encoded."""

        values: Any
        scale: Any
        error: Any
        length: Any

        @property
        def bytes(self) -> int:
            return int(self.values.shape[0]) * StandInCodes.row_bytes(int(self.values.shape[1]), 8)

        def of(self, first: int, last: int) -> StandInCodes.Codes:
            parts = (self.values, self.scale, self.error, self.length)
            return StandInCodes.Codes(*(part[first:last] for part in parts))

    def __init__(self) -> None:
        self.searches = 0
        self.encoded = 0

    @staticmethod
    def supports(dim: int) -> bool:
        return dim < 100

    @staticmethod
    def row_bytes(dim: int, bits: int) -> int:
        return 4 * dim + 12

    def empty(self, count: int, dim: int, bits: int, normalize: bool, *, device: Any) -> Codes:
        assert bits in (4, 8)
        values = device.full((count, dim), "float32", float("nan"))
        return self.Codes(values, *(device.full((count,), "float32", float("nan")) for _ in range(3)))

    def encode(self, rows: Any, bits: int, *, normalize: bool, device: Any, scales: Any = None) -> Codes:
        codes = self.empty(int(rows.shape[0]), int(rows.shape[1]), bits, normalize, device=device)
        self.encode_into(rows, codes, 0, device=device)
        return codes

    def encode_into(self, rows: Any, codes: Codes, first_row: int, *, device: Any, scales: Any = None) -> None:
        last = first_row + int(rows.shape[0])
        self.encoded += int(rows.shape[0])
        codes.values[first_row:last] = rows.float()
        for factor, part in enumerate((codes.scale, codes.error, codes.length)):
            part[first_row:last] = factor * rows.float().sum(1)

    def search(
        self,
        queries: Any,
        keys: Any,
        codes: Codes,
        mask: Any,
        k: int,
        min_score: float | None,
        scores: Any,
        indices: Any,
        counts: Any,
        flag: Any,
        *,
        device: Any,
        key_scales: Any = None,
    ) -> None:
        self.searches += 1
        np.testing.assert_array_equal(codes.values.numpy(), keys.float().numpy())
        for factor, part in enumerate((codes.scale, codes.error, codes.length)):
            np.testing.assert_array_equal(part.numpy(), (factor * keys.float().sum(1)).numpy())
        normalize = key_scales is not None
        hits = (scores, indices, counts, flag)
        top_k(queries, keys, None, None, mask, k, normalize, min_score, *hits, device=device, key_scales=key_scales)


LAUNCHERS = Launchers(top_k, mmr_select, row_scales, "stand-in")


def launchers_with_codes() -> Launchers:
    """With codes of their own, which count what is done."""
    return replace(LAUNCHERS, codes=StandInCodes())


def index_on_device(
    dim: int,
    *,
    dtype: str = "float32",
    metric: str = "inner_product",
    memory_bytes: int | None = None,
    sizes: BlockSizes | None = TINY,
    launchers: Launchers = LAUNCHERS,
    **options: Any,
) -> VectorIndex:
    """A VectorIndex whose store takes the CPU for a device."""
    return VectorIndex._around(
        DeviceStore(dim, dtype, metric, "cpu", memory_bytes, sizes=sizes, launchers=launchers, **options)
    )
