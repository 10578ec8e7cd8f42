"""top_k against the exact searches of numpy, torch, faiss, usearch and numkong."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core import ops
from prismem_core.ops.inputs import bfloat16_bits

from ..contest import (
    BEST_EXACT,
    FP32_LIMIT,
    OURS,
    Competitor,
    Contest,
    Finding,
    Goal,
    Job,
    Run,
    Work,
    require,
)
from ..data import Floats, rows
from ..exact import TopKCheck

CODES = "prismem codes"
ROWS = "prismem float32"
NUMPY = "numpy matmul + argpartition"
TORCH = "torch mm + topk"
FAISS = "faiss IndexFlatIP"
FAISS_SQ8 = "faiss SQ8"
FAISS_SQFP16 = "faiss SQfp16"

_SCORE_BYTES = 1 << 27
"""Peers that write the score matrix do so in parts of this size, as one with little memory would."""


def best_of(scores: Floats, k: int) -> tuple[Floats, NDArray[np.int64]]:
    """The k best of each row of scores, in order, by numpy."""
    chosen = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, -k:]
    values = np.take_along_axis(scores, chosen, 1)
    order = np.argsort(-values, axis=1)
    return np.take_along_axis(values, order, 1), np.take_along_axis(chosen, order, 1)


def in_parts(queries: Floats, num_keys: int, search: Callable[[Floats], tuple[Any, Any]]) -> tuple[Any, Any]:
    """`search` on as many queries at a time as `_SCORE_BYTES` allows, put together."""
    step = max(1, _SCORE_BYTES // (4 * num_keys))
    found = [search(queries[begin : begin + step]) for begin in range(0, len(queries), step)]
    return np.concatenate([scores for scores, _ in found]), np.concatenate([ids for _, ids in found])


def _ours(queries: Floats, keys: Any, k: int, *, threads: int | None = None, dtype: str | None = None) -> Run:
    if threads is None:
        return lambda: ops.top_k(queries, keys, k, dtype=dtype)

    def run() -> Any:
        with ops.use(threads=threads):
            return ops.top_k(queries, keys, k, dtype=dtype)

    return run


def _encoded(queries: Floats, keys: NDArray[Any], k: int, *, threads: int | None = None) -> Run:
    return _ours(queries, ops.encode(keys), k, threads=threads)


def _numpy(queries: Floats, keys: Floats, k: int) -> Run:
    return lambda: in_parts(queries, len(keys), lambda part: best_of(part @ keys.T, k))


def _torch(queries: Floats, keys: NDArray[Any], k: int, kind: str) -> Run:
    torch = require("torch", "torch", extra=False)
    dtype = getattr(torch, kind)
    stored = torch.from_numpy(keys).to(dtype)

    def search(part: Floats) -> tuple[Any, Any]:
        values, ids = torch.topk(torch.mm(torch.from_numpy(part).to(dtype), stored.t()), k)
        return values.float().numpy(), ids.numpy()

    return lambda: in_parts(queries, len(keys), search)


def _faiss_flat(queries: Floats, keys: Floats, k: int) -> Run:
    faiss = require("faiss", "faiss-cpu")
    index = faiss.IndexFlatIP(keys.shape[1])
    index.add(keys)
    return lambda: index.search(queries, k)


def _faiss_knn(queries: Floats, keys: Floats, k: int) -> Run:
    faiss = require("faiss", "faiss-cpu")
    return lambda: faiss.knn(queries, keys, k, metric=faiss.METRIC_INNER_PRODUCT)


def _faiss_scalar(queries: Floats, keys: Floats, k: int, kind: str) -> Run:
    faiss = require("faiss", "faiss-cpu")
    index = faiss.IndexScalarQuantizer(keys.shape[1], getattr(faiss.ScalarQuantizer, kind), faiss.METRIC_INNER_PRODUCT)
    index.train(keys[:20_000])
    index.add(keys)
    return lambda: index.search(queries, k)


def _usearch(queries: Floats, keys: Floats, k: int) -> Run:
    index = require("usearch.index", "usearch")

    def run() -> tuple[Any, Any]:
        # It heeds no variable of the environment.
        threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        found = index.search(keys, queries, k, index.MetricKind.IP, exact=True, threads=threads)
        shape = (len(queries), -1)
        return np.reshape(found.distances, shape), np.reshape(found.keys, shape)

    return run


def _numkong(queries: Floats, keys: Floats, k: int) -> Run:
    numkong = require("numkong", "numkong")
    packed = numkong.dots_pack(keys, dtype="f32")

    def search(part: Floats) -> tuple[Any, Any]:
        scores = numkong.dots_packed(np.ascontiguousarray(part), packed)
        return best_of(np.asarray(scores).reshape(len(part), -1), k)

    return lambda: in_parts(queries, len(keys), search)


def check_with(check: TopKCheck) -> Callable[[Competitor, Any], Finding]:
    """The check as a contest wants it: of (scores, ids) or of a TopK."""
    return lambda _, found: check(found.indices if isinstance(found, ops.TopK) else found[1])


def _work(keys: NDArray[Any], num_queries: int, bytes_per_value: float = 4.0) -> Work:
    count, dim = keys.shape
    return Work(bytes_per_value * count * dim, 2.0 * num_queries * count * dim)


def _codes(queries: Floats, keys: NDArray[Any], k: int) -> Competitor:
    # The narrowest codes have four bits a value, and each is multiplied at least once for each query.
    products = float(len(queries)) * keys.size
    return Competitor(
        CODES,
        OURS,
        lambda: _encoded(queries, keys, k),
        work=Work(bytes_read=0.5 * keys.size, products=products),
    )


def _float32(kind: str, num_queries: int, count: int, dim: int, k: int, quick: bool) -> Contest:
    count, num_queries = (20_000, min(num_queries, 64)) if quick else (count, num_queries)
    made = rows(kind, count, dim)
    keys, queries = made.keys, np.ascontiguousarray(made.queries[:num_queries])
    work, many = _work(keys, num_queries), num_queries > 1
    halves, eighths = _work(keys, 0, 2.0), _work(keys, 0, 1.0)
    competitors = [
        _codes(queries, keys, k),
        Competitor(ROWS, OURS, lambda: _ours(queries, keys, k), work=work),
        Competitor(NUMPY, "numpy", lambda: _numpy(queries, keys, k), work=work),
        Competitor(TORCH, "torch", lambda: _torch(queries, keys, k, "float32"), work=work),
        Competitor(FAISS, "faiss-cpu", lambda: _faiss_flat(queries, keys, k), work=work),
        Competitor("faiss knn", "faiss-cpu", lambda: _faiss_knn(queries, keys, k), work=work),
        *([] if many else [Competitor("usearch exact", "usearch", lambda: _usearch(queries, keys, k), work=work)]),
        *([] if many else [Competitor("numkong dots", "numkong", lambda: _numkong(queries, keys, k), work=work)]),
    ]
    if not many:
        competitors += [
            Competitor(FAISS_SQFP16, "faiss-cpu", lambda: _faiss_scalar(queries, keys, k, "QT_fp16"), "lossy", halves),
            Competitor(FAISS_SQ8, "faiss-cpu", lambda: _faiss_scalar(queries, keys, k, "QT_8bit"), "lossy", eighths),
        ]
    return Contest(
        made.description,
        {"queries": num_queries, "keys": count, "dim": dim, "k": k},
        competitors,
        check_with(TopKCheck(keys, queries, k)),
        work,
    )


def _half(kind: str, num_queries: int, count: int, dim: int, k: int, quick: bool) -> Contest:
    count, num_queries = (20_000, min(num_queries, 64)) if quick else (count, num_queries)
    made = rows("mixture", count, dim)
    queries = np.ascontiguousarray(made.queries[:num_queries])
    if kind == "float16":
        keys: NDArray[Any] = made.keys.astype(np.float16)
        exact: Floats = keys.astype(np.float32)
        dtype = None
    else:
        keys = bfloat16_bits(made.keys)
        exact = (keys.astype(np.uint32) << np.uint32(16)).view(np.float32)
        dtype = "bfloat16"
    work = _work(keys, num_queries, 2.0)
    ours = Competitor(f"prismem {kind}", OURS, lambda: _ours(queries, keys, k, dtype=dtype), work=work)
    # torch multiplies halves by halves, so that its queries are rounded as well and its scores are halves.
    torch_half = Competitor(
        f"torch {kind} mm + topk", "torch", lambda: _torch(queries, exact, k, kind), "lossy", _work(keys, 0, 2.0)
    )
    scalar = "QT_fp16" if kind == "float16" else "QT_bf16"
    name = FAISS_SQFP16 if kind == "float16" else "faiss SQbf16"
    faiss_half = Competitor(
        name, "faiss-cpu", lambda: _faiss_scalar(queries, exact, k, scalar), work=_work(keys, 0, 2.0)
    )
    full = Competitor(
        "prismem float32 of the same values", OURS, lambda: _ours(queries, exact, k), work=_work(keys, num_queries)
    )
    return Contest(
        f"{made.description}, rounded to {kind}",
        {"queries": num_queries, "keys": count, "dim": dim, "k": k},
        [ours, full, torch_half, *([faiss_half] if num_queries == 1 else [])],
        check_with(TopKCheck(exact, queries, k)),
        work,
    )


def _threads(num_queries: int, count: int, dim: int, k: int, quick: bool) -> Contest:
    count, num_queries = (20_000, min(num_queries, 64)) if quick else (count, num_queries)
    made = rows("mixture", count, dim)
    keys, queries = made.keys, np.ascontiguousarray(made.queries[:num_queries])
    work, competitors = _work(keys, num_queries), []
    coded = _codes(queries, keys, k)
    for threads in (1, 2):
        words = "one thread" if threads == 1 else "two threads"
        competitors += [
            Competitor(
                f"{CODES}, {words}",
                OURS,
                partial(_encoded, queries, keys, k, threads=threads),
                work=coded.work,
            ),
            Competitor(f"{ROWS}, {words}", OURS, partial(_ours, queries, keys, k, threads=threads), work=work),
        ]
    return Contest(
        made.description,
        {"queries": num_queries, "keys": count, "dim": dim, "k": k},
        competitors,
        check_with(TopKCheck(keys, queries, k)),
        work,
    )


def _single(dim: int, kind: str) -> Job:
    suffix = {"mixture": "", "sentences": "-sentences"}[kind]
    return Job(
        f"top_k/q1-300k-{dim}{suffix}",
        f"one query, 300,000 rows of {dim}, k=10",
        partial(_float32, kind, 1, 300_000, dim, 10),
        (
            Goal(CODES, BEST_EXACT, 8.0),
            Goal(CODES, FAISS_SQ8, 4.0),
            Goal(CODES, FP32_LIMIT, 6.0),
            Goal(ROWS, BEST_EXACT, 1.1),
            Goal(ROWS, FP32_LIMIT, 0.9),
        ),
    )


def _isotropic(num_queries: int, count: int) -> Job:
    words = "one query" if num_queries == 1 else f"{num_queries} queries"
    return Job(
        f"top_k/q{num_queries}-{count // 1000}k-384-isotropic",
        f"the worst case for codes: {words}, {count:,} isotropic rows of 384, k=10",
        partial(_float32, "isotropic", num_queries, count, 384, 10),
        (Goal(CODES, ROWS, 0.95),),
    )


def _batch(num_queries: int, k: int, goals: tuple[Goal, ...], kind: str = "mixture") -> Job:
    suffix = "" if kind == "mixture" else f"-{kind}"
    return Job(
        f"top_k/q{num_queries}-100k-384-k{k}{suffix}",
        f"{num_queries} queries, 100,000 rows of 384, k={k}",
        partial(_float32, kind, num_queries, 100_000, 384, k),
        goals,
    )


_LARGE_BATCH = (
    Goal(CODES, FAISS, 3.0),
    Goal(CODES, FP32_LIMIT, 2.0),
    Goal(ROWS, FAISS, 1.2),
    Goal(ROWS, FP32_LIMIT, 0.87),
)


def _half_job(kind: str, num_queries: int, count: int, goals: tuple[Goal, ...]) -> Job:
    return Job(
        f"top_k/q{num_queries}-{count // 1000}k-384-{kind}",
        f"{kind} rows: {num_queries} queries, {count:,} rows of 384, k=10",
        partial(_half, kind, num_queries, count, 384, 10),
        goals,
    )


def _threads_job(num_queries: int, count: int, ratio: float) -> Job:
    return Job(
        f"top_k/threads-q{num_queries}-{count // 1000}k-384",
        f"two threads against one: {num_queries} queries, {count:,} rows of 384, k=10",
        partial(_threads, num_queries, count, 384, 10),
        tuple(Goal(f"{name}, two threads", f"{name}, one thread", ratio) for name in (CODES, ROWS)),
        threads=2,
    )


JOBS: Sequence[Job] = (
    _single(384, "mixture"),
    _threads_job(1, 300_000, 1.7),
    _half_job("float16", 1, 300_000, (Goal("prismem float16", FAISS_SQFP16, 1.3),)),
    _half_job("bfloat16", 1, 300_000, (Goal("prismem bfloat16", "faiss SQbf16", 1.3),)),
    _single(384, "sentences"),
    _isotropic(1, 300_000),
    _single(1024, "mixture"),
    _batch(32, 10, (Goal(CODES, BEST_EXACT, 6.0),)),
    _batch(32, 100, (Goal(CODES, BEST_EXACT, 4.0),)),
    _batch(1024, 10, _LARGE_BATCH),
    _threads_job(1024, 100_000, 1.85),
    _batch(1024, 10, _LARGE_BATCH, "sentences"),
    _isotropic(1024, 100_000),
    _half_job("float16", 1024, 20_000, (Goal("prismem float16", "torch float16 mm + topk", 5.0),)),
    _half_job("bfloat16", 1024, 20_000, (Goal("prismem bfloat16", "torch bfloat16 mm + topk", 5.0),)),
)
