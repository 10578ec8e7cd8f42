"""Scores of a tile of queries with a tile of keys: device code that kernels of several ops share."""

from __future__ import annotations

import triton
import triton.language as tl

from prismem_core.kernels.triton.selection import FULL, GREATEST


@triton.jit
def tile_scores(
    q_rows, q_inside, q_powers, x_rows, x_inside, x_powers, dim,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Inner products (BQ, BN) float32 on tensor cores of rows that start at the pointers `q_rows` and `x_rows`.

    Rows outside count as zeros and are not read. With SCALED rows are multiplied by their powers of two. EVEN: `dim` is
    a multiple of BD. Rows of unlike kinds and float32 are multiplied with 3xTF32 (about float32's precision).
    """
    scores = tl.zeros((BQ, BN), tl.float32)
    for start in range(0, dim, BD):
        columns = start + tl.arange(0, BD)
        if EVEN:
            q = tl.load(q_rows[:, None] + columns[None, :], mask=q_inside[:, None], other=0.0)
            x = tl.load(x_rows[:, None] + columns[None, :], mask=x_inside[:, None], other=0.0)
        else:
            within = columns < dim
            q = tl.load(q_rows[:, None] + columns[None, :], mask=q_inside[:, None] & within[None, :], other=0.0)
            x = tl.load(x_rows[:, None] + columns[None, :], mask=x_inside[:, None] & within[None, :], other=0.0)
        if SCALED:
            q = (q.to(tl.float32) * q_powers[:, None]).to(q.dtype)
            x = (x.to(tl.float32) * x_powers[:, None]).to(x.dtype)
        if q.dtype != x.dtype:
            q = q.to(tl.float32)
            x = x.to(tl.float32)
        scores = tl.dot(q, tl.trans(x), scores, input_precision="tf32x3")
    return scores


@triton.jit
def described_scores(
    queries, keys, first_query, first_key, q_powers, x_powers, dim,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """As `tile_scores`, with the rows from `first_query` and `first_key` of two tensor descriptors (tiles (., BD))."""
    scores = tl.zeros((BQ, BN), tl.float32)
    for start in range(0, dim, BD):
        q = queries.load([first_query, start])
        x = keys.load([first_key, start])
        if SCALED:
            q = (q.to(tl.float32) * q_powers[:, None]).to(q.dtype)
            x = (x.to(tl.float32) * x_powers[:, None]).to(x.dtype)
        scores = tl.dot(q, tl.trans(x), scores, input_precision="tf32x3")
    return scores


@triton.jit
def scores_of_rows(
    queries, keys, described_queries, described_keys, query, key, q_inside, x_inside, first_query, first_key,
    query_powers, key_powers, query_inverse, key_inverse, extremes, dim, query_stride, key_stride,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Scores (BQ, BN) of rows number `query` (BQ,) and `key` (BN,) int64, as inner products or cosines.

    What is None is not done: with descriptors the rows are those from `first_query` and `first_key`; rows are
    multiplied by their powers of two where `extremes` (1,) int32 is not 0; inverse lengths make cosines.
    """
    if described_keys is None:
        q_rows = queries + query * query_stride
        x_rows = keys + key * key_stride
    if key_inverse is not None:
        q_inverse = tl.load(query_inverse + query, mask=q_inside, other=0.0)
        x_inverse = tl.load(key_inverse + key, mask=x_inside, other=0.0)
    if extremes is None or tl.load(extremes) == 0:
        if described_keys is None:
            scores = tile_scores(q_rows, q_inside, None, x_rows, x_inside, None, dim, BQ, BN, BD, EVEN, False)
        else:
            scores = described_scores(
                described_queries, described_keys, first_query, first_key, None, None, dim, BQ, BN, BD, False
            )
    else:
        q_powers = tl.load(query_powers + query, mask=q_inside, other=1.0)
        x_powers = tl.load(key_powers + key, mask=x_inside, other=1.0)
        if described_keys is None:
            scores = tile_scores(q_rows, q_inside, q_powers, x_rows, x_inside, x_powers, dim, BQ, BN, BD, EVEN, True)
        else:
            scores = described_scores(
                described_queries, described_keys, first_query, first_key, q_powers, x_powers, dim, BQ, BN, BD, True
            )
    if key_inverse is not None:
        scores = cosines(scores, q_inverse, x_inverse)
    return scores


@triton.jit
def cosines(products, q_inverse, x_inverse):
    """Products of rows (Q, N) times the inverse lengths (Q,) and (N,), kept in [-1, 1]; NaN stays."""
    scores = products * q_inverse[:, None] * x_inverse[None, :]
    scores = tl.where(scores > 1.0, 1.0, scores)
    return tl.where(scores < -1.0, -1.0, scores)


@triton.jit
def note_nonfinite(flag, scores, counted, first_pairs, places):
    """Lower `flag` (1,) int64 to the least first_pairs[q] + places[n] of a counted score that is NaN or infinite.

    `scores` (Q, N), `counted` (Q, N) or (1, N) bool, `first_pairs` (Q,) int64, `places` (N,) int32 from 0.
    """
    trace = tl.sum(tl.sum(scores * 0.0, 1), 0)  # NaN if a score, counted or not, is NaN or infinite
    if trace != trace:
        wrong = counted & ((tl.abs(scores) < float("inf")) == 0)
        first = tl.min(tl.where(wrong, places[None, :], GREATEST), 1)
        tl.atomic_min(flag, tl.min(tl.where(first < GREATEST, first_pairs + first, FULL), 0))
