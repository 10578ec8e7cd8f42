"""Device code of mmr_select: scores of candidates and of candidates with each other, and the selection one by one."""

from __future__ import annotations

import triton
import triton.language as tl

from prismem_core.kernels.triton.group_scores import block_scores, report_nonfinite, single_scores
from prismem_core.kernels.triton.selection import EMPTY, GREATEST

UNSPECIALISED = ("row_width", "num_rows", "num_keys", "first_query", "num_programs", "piece_keys", "k")
"""Numbers whose divisibility makes no difference to the code."""


@triton.jit(do_not_specialize=UNSPECIALISED)
def relevance_of_block(
    rows, keys, row_powers, row_inverse, key_powers, key_inverse, extremes, order, work, relevance, mask, flag,
    row_stride, key_stride, mask_row_stride, mask_key_stride, dim, row_width, num_keys, first_query, num_programs,
    piece_keys, min_relevance,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, PRIVATE_MASK: tl.constexpr,
):  # fmt: skip
    """Write `relevance` (rows, row_width) float32 of the keys of each row's segment, NaN for what is no candidate.

    `work` (6, num_programs) as in `group_scores.Work`, with one tile a program. What is None is not done: `mask` uint8
    (keys,), or (rows, keys) with PRIVATE_MASK, `min_relevance`, and `flag`, which counts rows from first_query.
    """
    entry = work + tl.program_id(0)
    lane = tl.arange(0, BQ)
    inside = lane < tl.load(entry + num_programs)
    row = tl.load(order + tl.load(entry) + lane, mask=inside, other=0)
    begin = tl.load(entry + 2 * num_programs)
    length = (tl.load(entry + 3 * num_programs) - begin).to(tl.int32)
    before = begin - tl.load(entry + 4 * num_programs) + tl.load(entry + 5 * num_programs) * piece_keys
    place = tl.arange(0, BN)
    within = place < length
    key = begin + place
    scores = block_scores(
        rows, row, inside, row_powers, row_inverse, row_stride,
        keys, key, within, key_powers, key_inverse, key_stride, extremes, dim, BQ, BN, BD, EVEN,
    )  # fmt: skip
    there = within[:, None] & inside[None, :]
    counted = there
    if mask is not None:
        if PRIVATE_MASK:
            cells = mask + row[None, :] * mask_row_stride + key[:, None] * mask_key_stride
            counted = counted & (tl.load(cells, mask=there, other=0) != 0)
        else:
            counted = counted & (tl.load(mask + key * mask_key_stride, mask=within, other=0) != 0)[:, None]
    if flag is not None:
        report_nonfinite(flag, scores, counted, first_query + row, begin, place, num_keys)
    if min_relevance is not None:
        counted = counted & (scores >= min_relevance)
    cells = relevance + row[None, :] * row_width + (before + place)[:, None]
    tl.store(cells, tl.where(counted, scores, float("nan")), mask=there)


@triton.jit(do_not_specialize=UNSPECIALISED)
def relevance_of_single(
    rows, keys, row_powers, row_inverse, key_powers, key_inverse, extremes, order, work, relevance, mask, flag,
    row_stride, key_stride, mask_row_stride, mask_key_stride, dim, row_width, num_keys, first_query, num_programs,
    piece_keys, min_relevance,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, PRIVATE_MASK: tl.constexpr,
):  # fmt: skip
    """As `relevance_of_block` for the only row of a group; BQ and PRIVATE_MASK do not matter."""
    entry = work + tl.program_id(0)
    row = tl.load(order + tl.load(entry))
    begin = tl.load(entry + 2 * num_programs)
    length = (tl.load(entry + 3 * num_programs) - begin).to(tl.int32)
    before = begin - tl.load(entry + 4 * num_programs) + tl.load(entry + 5 * num_programs) * piece_keys
    place = tl.arange(0, BN)
    within = place < length
    key = begin + place
    scores = single_scores(
        rows, row, row_powers, row_inverse, row_stride,
        keys, key, within, key_powers, key_inverse, key_stride, extremes, dim, BN, BD, EVEN,
    )  # fmt: skip
    counted = within
    if mask is not None:
        cells = mask + row * mask_row_stride + key * mask_key_stride
        counted = counted & (tl.load(cells, mask=within, other=0) != 0)
    if flag is not None:
        own = first_query + row + tl.arange(0, 1)
        report_nonfinite(flag, scores[:, None], counted[:, None], own, begin, place, num_keys)
    if min_relevance is not None:
        counted = counted & (scores >= min_relevance)
    tl.store(relevance + row * row_width + before + place, tl.where(counted, scores, float("nan")), mask=within)


@triton.jit(do_not_specialize=UNSPECIALISED)
def similarity_of_tile(
    keys, key_powers, key_inverse, extremes, work, similarity, key_stride, dim, row_width, num_programs,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """One tile of `similarity` (segments, row_width, row_width) float32: the keys of a segment with each other.

    `work` (5, num_programs) int64: segment, its first key, its length, first row and first column of the tile. Tiles
    below the diagonal are not computed: what lies above it is written to both places.
    """
    entry = work + tl.program_id(0)
    begin = tl.load(entry + num_programs)
    length = tl.load(entry + 2 * num_programs).to(tl.int32)
    row = tl.load(entry + 3 * num_programs).to(tl.int32) + tl.arange(0, BQ)
    column = tl.load(entry + 4 * num_programs).to(tl.int32) + tl.arange(0, BN)
    scores = block_scores(
        keys, begin + row, row < length, key_powers, key_inverse, key_stride,
        keys, begin + column, column < length, key_powers, key_inverse, key_stride, extremes, dim, BQ, BN, BD, EVEN,
    )  # fmt: skip
    own = similarity + tl.load(entry) * row_width * row_width
    there = (column < length)[:, None] & (row[None, :] <= column[:, None])
    tl.store(own + row[None, :] * row_width + column[:, None], scores, mask=there)
    tl.store(own + column[:, None] * row_width + row[None, :], scores, mask=there & (row[None, :] < column[:, None]))


@triton.jit
def ordered_wide(values):
    """float64 to int64 that compare alike; -0.0 becomes 0.0, and NaN lies below everything, at EMPTY."""
    bits = tl.where(values == 0.0, 0.0, values).to(tl.int64, bitcast=True)
    codes = tl.where(bits < 0, bits ^ 0x7FFFFFFFFFFFFFFF, bits)
    return tl.where(values == values, codes, EMPTY)


@triton.jit(do_not_specialize=UNSPECIALISED)
def select(
    keys, key_powers, key_inverse, extremes, relevance, penalty, similarity, segments, weights, indices, scores, counts,
    key_stride, dim, row_width, num_rows, k, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """The picks of one query, one after the other: indices and scores (rows, k), counts (rows,).

    `relevance` and `penalty` (rows, row_width) are scratch, the second float64: (1 - weight) * the largest similarity
    to a pick, NaN for what can no longer be picked. `segments` (3, rows): first key, length, place in `similarity`;
    where that is None the similarities of a pick are computed when it is made. `weights` float64: weight and 1 -
    weight. Compile without contraction: scores are those of the definition, product by product.
    """
    query = tl.program_id(0).to(tl.int64)
    begin = tl.load(segments + query)
    length = tl.load(segments + num_rows + query).to(tl.int32)
    if similarity is not None:
        given = similarity + tl.load(segments + 2 * num_rows + query) * row_width * row_width
    weight = tl.load(weights)
    rest = tl.load(weights + 1)
    own_relevance = relevance + query * row_width
    own_penalty = penalty + query * row_width
    lanes = tl.arange(0, BN)

    highest = tl.full((BN,), EMPTY, tl.int64)
    at = tl.zeros((BN,), tl.int32)
    for start in range(0, length, BN):
        place = start + lanes
        value = tl.load(own_relevance + place, mask=place < length, other=float("nan")).to(tl.float64)
        tl.store(own_penalty + place, tl.where(value == value, -float("inf"), value), mask=place < length)
        codes = ordered_wide(value)
        at = tl.where(codes > highest, place, at)
        highest = tl.maximum(highest, codes)
    best = tl.max(highest, 0)
    count = tl.full((), 0, tl.int32)
    while (count < k) & (best > EMPTY):
        pick = tl.min(tl.where(highest == best, at, GREATEST), 0)
        score = tl.where(best < 0, best ^ 0x7FFFFFFFFFFFFFFF, best).to(tl.float64, bitcast=True)
        score = tl.where(count == 0, weight * score, score)
        tl.store(indices + query * k + count, pick.to(tl.int64))
        tl.store(scores + query * k + count, score.to(tl.float32))
        count += 1
        highest = tl.full((BN,), EMPTY, tl.int64)
        if count < k:
            tl.debug_barrier()  # penalties may be read by other threads than wrote them
            for start in range(0, length, BN):
                place = start + lanes
                within = place < length
                if similarity is not None:
                    likeness = tl.load(given + pick.to(tl.int64) * row_width + place, mask=within, other=0.0)
                else:
                    likeness = single_scores(
                        keys, begin + pick, key_powers, key_inverse, key_stride, keys, begin + place, within,
                        key_powers, key_inverse, key_stride, extremes, dim, BN, BD, EVEN,
                    )  # fmt: skip
                before = tl.load(own_penalty + place, mask=within, other=float("nan"))
                now = rest * likeness.to(tl.float64)
                gone = (before != before) | (now != now) | (place == pick)
                now = tl.where(gone, float("nan"), tl.where(now > before, now, before))
                tl.store(own_penalty + place, now, mask=within)
                value = tl.load(own_relevance + place, mask=within, other=float("nan")).to(tl.float64)
                codes = ordered_wide(weight * value - now)
                at = tl.where(codes > highest, place, at)
                highest = tl.maximum(highest, codes)
        best = tl.max(highest, 0)
    tl.store(counts + query, count.to(tl.int64))
    for start in range(0, k, BN):
        place = start + lanes
        unused = (place >= count) & (place < k)
        tl.store(indices + query * k + place, tl.full((BN,), -1, tl.int64), mask=unused)
        tl.store(scores + query * k + place, tl.full((BN,), -float("inf"), tl.float32), mask=unused)
