"""The best k of many scores without sorting them: device code that kernels of several ops share.

A candidate is one int64: the score as an integer that compares like it in the upper half, the complement of the index
in the lower half, so that a greater number is a better candidate and ties go to the lowest index. No two candidates of
a query are equal. Every candidate lies above `NOTHING`; the numbers from the smallest int64 up to it mean "no
candidate", and each empty cell of a list holds another one of them.
"""

from __future__ import annotations

import triton
import triton.language as tl

LEAST: tl.constexpr = tl.constexpr(-(2**31))
"""Below every ordered score, also that of -infinity."""
GREATEST: tl.constexpr = tl.constexpr(2**31 - 1)
ORDERED_MINUS_INFINITY: tl.constexpr = tl.constexpr(-2139095041)
EMPTY: tl.constexpr = tl.constexpr(-(2**63))
"""The first number that means "no candidate"."""
NOTHING: tl.constexpr = tl.constexpr(-(2**63) + 2**32 - 1)
"""The last number that means "no candidate"."""
FULL: tl.constexpr = tl.constexpr(2**63 - 1)
"""Above every candidate: occupies the cells of a list that are more than k."""


@triton.jit
def ordered(scores):
    """float32 to int32 that compare alike; -0.0 becomes 0.0, NaN must have been left out."""
    bits = (scores + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def unordered(codes):
    """The float32 whose `ordered` is `codes`."""
    return tl.where(codes < 0, codes ^ 0x7FFFFFFF, codes).to(tl.float32, bitcast=True)


@triton.jit
def packed(codes, indices):
    """Candidates of ordered scores int32 and indices int32 from 0."""
    return (codes.to(tl.int64) << 32) | (0xFFFFFFFF - indices.to(tl.int64))


@triton.jit
def insert(best, bound, scores, eligible, indices):
    """Put the eligible scores of a tile into the lists of its rows; returns the lists and the new bounds.

    `best` (Q, K) int64 are lists in any order; `bound` (Q,) int32 is the least ordered score that may enter (a row that
    takes nothing has GREATEST); `scores` (Q, N) float32; `eligible` (Q, N) or (1, N) bool; `indices` (N,) int32 grow
    within the tile and from tile to tile, so a score equal to the worst of a full list never enters it. NaN never
    enters. A tile costs one maximum a row unless something enters; then at most K rounds.
    """
    shown = tl.where(eligible, scores, float("nan"))
    top = tl.max(shown, 1)  # leaves NaN out unless there is nothing else
    takes = (top == top) & (ordered(top) >= bound)
    while tl.max(takes.to(tl.int32), 0) > 0:
        index = tl.min(tl.where(shown == top[:, None], indices[None, :], GREATEST), 1)
        worst = tl.min(best, 1)
        candidate = packed(ordered(top), index)
        best = tl.where((best == worst[:, None]) & takes[:, None], candidate[:, None], best)
        bound = tl.maximum(bound, ((tl.min(best, 1) >> 32) + 1).to(tl.int32))
        shown = tl.where(indices[None, :] == index[:, None], float("nan"), shown)
        top = tl.max(shown, 1)
        takes = (top == top) & (ordered(top) >= bound)
    return best, bound


@triton.jit(do_not_specialize=("lists_a_row", "length", "chunks", "k"))
def merge_candidates(
    lists, first_list, result, scores, indices, counts, lists_a_row, length, chunks, k,
    CHUNK: tl.constexpr, STEP: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """The best k of one chunk of a row's candidates, by rank: how many candidates of the chunk are greater.

    Program (row, chunk). `lists` (sum of lists, length) int64: row i has the lists from first_list[i] to first_list[i +
    1], or `lists_a_row` each without `first_list`. Writes `result` (rows, chunks, k) int64, or with LAST (one chunk a
    row) the scores (rows, k) float32, indices (rows, k) int64 and counts (rows,) int64.
    """
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    if first_list is None:
        begin = row * lists_a_row
        total = lists_a_row * length
    else:
        begin = tl.load(first_list + row)
        total = ((tl.load(first_list + row + 1) - begin) * length).to(tl.int32)
    candidates = lists + begin * length
    places = chunk * CHUNK + tl.arange(0, CHUNK)
    own = tl.load(candidates + places, mask=places < total, other=EMPTY)
    own = tl.where(own <= NOTHING, EMPTY + places.to(tl.int64), own)
    rank = tl.zeros((CHUNK,), tl.int32)
    for step in range(0, CHUNK, STEP):
        others = chunk * CHUNK + step + tl.arange(0, STEP)
        other = tl.load(candidates + others, mask=others < total, other=EMPTY)
        other = tl.where(other <= NOTHING, EMPTY + others.to(tl.int64), other)
        rank += tl.sum((other[:, None] > own[None, :]).to(tl.int32), 0)  # within threads in this order
    if LAST:
        found = own > NOTHING
        score = unordered((own >> 32).to(tl.int32))
        cells = row * k + rank
        tl.store(scores + cells, tl.where(found, score, -float("inf")), mask=rank < k)
        tl.store(indices + cells, tl.where(found, 0xFFFFFFFF - (own & 0xFFFFFFFF), -1), mask=rank < k)
        tl.store(counts + row, tl.minimum(tl.sum(found.to(tl.int32), 0), k).to(tl.int64))
    else:
        tl.store(result + (row * chunks + chunk) * k + rank, own, mask=rank < k)
