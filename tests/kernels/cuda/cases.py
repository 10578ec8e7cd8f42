"""Small calls of each kernel over whole numbers, for which sums are exact, so that all must give the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from prismem_core.ops.mmr_select import MMR_SELECT
from prismem_core.ops.registry import Op
from prismem_core.ops.segment_max_similarity import SEGMENT_MAX_SIMILARITY
from prismem_core.ops.segments import Segments
from prismem_core.ops.similarity import SIMILARITY
from prismem_core.ops.top_k import TOP_K

KINDS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
HALF_KINDS = KINDS[1:]


class Case(NamedTuple):
    """A call, and how the launcher is told to run it."""

    label: str
    op: Op[Any, Any]
    arguments: dict[str, Any]
    how: dict[str, Any]


def whole(rng: np.random.Generator, count: int, dim: int, kind: np.dtype[Any], padding: int = 0) -> NDArray[Any]:
    """Rows of small whole numbers, `padding` elements apart."""
    values = rng.integers(-4, 5, (count, dim + padding)).astype(np.float32).astype(kind)
    return values[:, :dim]


def cases(seed: int) -> Iterator[Case]:
    """Every kernel, path and kind of rows; sizes around those of blocks; masks, thresholds, segments and groups."""
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        paths = ("rows", "rows_batch", "tiles_small", "tiles") if kind in HALF_KINDS else ("rows", "rows_batch")
        for path in paths:
            for padding, dim in ((0, 72), (3, 31), (0, 130)):
                label, how = f"{kind} {path} {dim}+{padding}", {"path": path}
                queries, keys = whole(rng, 21, dim, kind, padding), whole(rng, 700, dim, kind, padding)
                yield Case(label, TOP_K, {"queries": queries, "keys": keys, "k": 10}, {"span": 300, **how})
                mask = rng.random((21, 700)) < 0.7
                arguments = {"queries": queries, "keys": keys, "k": 33, "mask": mask, "min_score": 20.0}
                yield Case(f"{label} mask", TOP_K, arguments, how)
                groups = Segments([0, 5, 5, 400, 700], rng.integers(0, 4, 21))
                arguments = {"queries": queries, "keys": keys, "k": 64, "segments": groups, "mask": mask[0]}
                yield Case(f"{label} groups", TOP_K, arguments, {"span": 170, **how})
                arguments = {"evidence": queries, "items": keys, "segments": groups}
                yield Case(label, SEGMENT_MAX_SIMILARITY, arguments, how)
                yield Case(f"{label} split", SEGMENT_MAX_SIMILARITY, arguments, {"span": 99, **how})
                if path in ("rows_batch", "tiles"):
                    yield Case(label, SIMILARITY, {"x": queries, "y": keys}, {"span": 300, **how})
        queries, keys = whole(rng, 3, 24, kind), whole(rng, 1500, 24, kind)
        yield Case(f"{kind} passes", TOP_K, {"queries": queries, "keys": keys, "k": 600}, {"span": 700})
        long = {"queries": whole(rng, 3, 8200, kind), "keys": whole(rng, 70, 8200, kind), "k": 5}
        for path in ("rows", "rows_batch"):
            yield Case(f"{kind} long rows {path}", TOP_K, long, {"path": path})
        for path in ("pool", "steps"):
            for padding, dim, count in ((0, 72, 250), (3, 31, 90), (0, 8200, 33)):
                if dim > 1000 and path == "pool" and kind == KINDS[0]:
                    continue
                queries, keys = whole(rng, 3, dim, kind, padding), whole(rng, count, dim, kind, padding)
                arguments = {"queries": queries, "keys": keys, "k": 12, "relevance_weight": 0.5}
                label = f"{kind} {path} {dim}+{padding}"
                yield Case(label, MMR_SELECT, arguments, {"path": path})
                mask = rng.random((3, count)) < 0.6
                arguments = {**arguments, "mask": mask, "min_relevance": -3.0, "k": 40}
                yield Case(f"{label} mask", MMR_SELECT, arguments, {"path": path})
                if path == "steps":
                    segments = Segments([0, 30, 30, count])
                    arguments = {**arguments, "segments": segments, "mask": None, "min_relevance": None}
                    yield Case(f"{label} split", MMR_SELECT, arguments, {"path": path, "span": 7})


def cosines(seed: int) -> Iterator[Case]:
    """Cosines of random rows of very different lengths; results are rounded, so tolerances apply."""
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        large = np.float32(1.0 if kind == KINDS[1] else 1e30)
        scale = (large ** rng.integers(-1, 2, (300, 1))).astype(np.float32)
        keys = (rng.standard_normal((300, 80)).astype(np.float32) * scale).astype(kind)
        keys[7] = 0
        queries = rng.standard_normal((20, 80)).astype(np.float32).astype(kind)
        paths = ("rows", "rows_batch", "tiles_small", "tiles") if kind in HALF_KINDS else ("rows", "rows_batch")
        for path in paths:
            arguments: dict[str, Any] = {"queries": queries, "keys": keys, "k": 9, "normalize": True}
            yield Case(f"{kind} {path}", TOP_K, arguments, {"path": path})
            arguments = {"evidence": queries, "items": keys, "normalize": True}
            yield Case(f"{kind} {path}", SEGMENT_MAX_SIMILARITY, arguments, {"path": path})
        yield Case(f"{kind}", SIMILARITY, {"x": queries, "y": keys, "normalize": True}, {})
        for path in ("pool", "steps"):
            arguments = {"queries": queries[:4], "keys": keys[:200], "k": 9, "relevance_weight": 0.6, "normalize": True}
            yield Case(f"{kind} {path}", MMR_SELECT, arguments, {"path": path})
