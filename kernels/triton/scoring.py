"""Scores of a tile of queries with a tile of keys: device code that kernels of several ops share."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_scores(
    q_rows, q_inside, q_powers, x_rows, x_inside, x_powers, dim,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, SCALED: tl.constexpr,
):
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
def cosines(products, q_inverse, x_inverse):
    """Products of rows (Q, N) times the inverse lengths (Q,) and (N,), kept in [-1, 1]; NaN stays."""
    scores = products * q_inverse[:, None] * x_inverse[None, :]
    scores = tl.where(scores > 1.0, 1.0, scores)
    return tl.where(scores < -1.0, -1.0, scores)
