"""Device code of certified codes: rows and queries as small whole numbers, upper bounds of scores, and what proves a
result. The inequality is in `codes`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from prismem_core.kernels.triton.group_scores import single_scores
from prismem_core.kernels.triton.scoring import scores_of_rows
from prismem_core.kernels.triton.selection import EMPTY, FULL, GREATEST, LEAST, insert, ordered, packed

ULP: tl.constexpr = tl.constexpr(2.0**-24)
"""The largest relative error of a rounding in float32."""
HIGH: tl.constexpr = tl.constexpr(128)
"""What the upper digit of a query's code counts."""
SMALLEST: tl.constexpr = tl.constexpr(2.0**-100)
"""Above all that products below the normal range lose, in scores and in bounds."""
HUGE: tl.constexpr = tl.constexpr(2.0**100)
"""Products of lengths from which on a sum might leave float32: no bound is given."""


@triton.jit
def whole(values, per_step, LIMIT: tl.constexpr):
    """The nearest whole numbers to values * per_step, as float32, from -LIMIT to LIMIT."""
    return tl.minimum(tl.maximum(tl.floor(values * per_step + 0.5), -LIMIT), LIMIT)


@triton.jit
def raised(squares, largest, dim):
    """An upper bound of the length whose `squares` were summed in float32 over `dim` dimensions up to `largest`."""
    return tl.sqrt_rn(squares) * (1.0 + (dim + 16) * ULP) + largest * ULP


@triton.jit(do_not_specialize=("num_rows", "first_row"))
def encode_rows(
    rows, powers, inverse, values, scale, error, length, num_rows, first_row, dim, row_stride, value_stride,
    BN: tl.constexpr, BD: tl.constexpr, LEVELS: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Codes of BN rows a program, written from row `first_row` of the outputs on.

    `powers` and `inverse` are the `row_scales` of the rows. UNIT: rows are made unit vectors first. LEVELS 127: a byte
    a code; 7: byte j holds codes j, in its lower half, and value_stride + j, both increased by 8. Dimensions from `dim`
    on get the code 0. Rows that cannot be encoded get the codes 0, and a `scale` of 0.
    """
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = row < num_rows
    starts = rows + row * row_stride
    power = tl.load(powers + row, mask=inside, other=1.0)
    inverted = tl.load(inverse + row, mask=inside, other=0.0)
    finite = inverted == inverted
    squares = tl.zeros((BN, BD), tl.float32)
    largest = tl.zeros((BN,), tl.float32)
    for start in range(0, dim, BD):
        columns = start + tl.arange(0, BD)
        cells = (inside & finite)[:, None] & (columns < dim)[None, :]
        x = tl.load(starts[:, None] + columns[None, :], mask=cells, other=0.0).to(tl.float32) * power[:, None]
        if UNIT:
            x = x * inverted[:, None]
        squares += x * x
        largest = tl.maximum(largest, tl.max(tl.abs(x), 1))
    own_length = raised(tl.sum(squares, 1), largest, dim)
    step = largest * (1.0 / LEVELS) * (1.0 + 4 * ULP)
    per_step = tl.where(step > 0.0, 1.0 / tl.where(step > 0.0, step, 1.0), 0.0)
    if UNIT == 0:
        # Rows far from 1 keep their length alone: a step might leave the normal range.
        step = tl.where(power == 1.0, step, 0.0)
        per_step = tl.where(power == 1.0, per_step, 0.0)
    squares = tl.zeros((BN, BD), tl.float32)
    for start in range(0, value_stride, BD):
        columns = start + tl.arange(0, BD)
        cells = (inside & finite)[:, None] & (columns < dim)[None, :]
        x = tl.load(starts[:, None] + columns[None, :], mask=cells, other=0.0).to(tl.float32) * power[:, None]
        if UNIT:
            x = x * inverted[:, None]
        code = whole(x, per_step[:, None], LEVELS)
        rest = tl.fma(tl.broadcast_to(-step[:, None], (BN, BD)), code, x)
        squares += rest * rest
        if LEVELS == 7:
            others = columns + value_stride
            cells = (inside & finite)[:, None] & (others < dim)[None, :]
            x = tl.load(starts[:, None] + others[None, :], mask=cells, other=0.0).to(tl.float32) * power[:, None]
            if UNIT:
                x = x * inverted[:, None]
            other_code = whole(x, per_step[:, None], LEVELS)
            rest = tl.fma(tl.broadcast_to(-step[:, None], (BN, BD)), other_code, x)
            squares += rest * rest
            byte = (code.to(tl.int32) + 8) + (other_code.to(tl.int32) + 8) * 16
        else:
            byte = code.to(tl.int32)
        out = values + (first_row + row)[:, None] * value_stride + columns[None, :]
        tl.store(out, byte.to(values.dtype.element_ty), mask=inside[:, None] & (columns < value_stride)[None, :])
    own_error = raised(tl.sum(squares, 1), largest, dim)
    if UNIT:
        # The unit vector itself is off by the rounding of its length and of each product.
        unit = tl.where(inverted > 0.0, (dim + 16) * ULP, 0.0)
        own_error += unit
        own_length += unit
    else:
        far = power != 1.0
        # A quotient may be off by four ULP, and what falls below the normal range is less than 2**-117 for any dim.
        lowered = own_length * (1.0 / power) * (1.0 + 16 * ULP) + 2.0**-117
        own_error = tl.where(far, lowered, own_error)
        own_length = tl.where(far, lowered, own_length)
    out = first_row + row
    tl.store(scale + out, tl.where(finite, step, 0.0), mask=inside)
    tl.store(error + out, tl.where(finite, own_error, float("inf")), mask=inside)
    tl.store(length + out, tl.where(finite, own_length, float("inf")), mask=inside)


@triton.jit(do_not_specialize=("num_rows",))
def encode_queries(
    rows, powers, inverse, high, low, constants, sums, num_rows, dim, row_stride, value_stride,
    BN: tl.constexpr, BD: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Codes of queries with two digits, HIGH * high + low, and what their bounds need.

    `high` and `low` (rows, value_stride) int8; `constants` (4, rows) float32: step, factor of a row's length, factor of
    its error, length of the query; `sums` (2, rows) int32: sums of both digits.
    """
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = row < num_rows
    starts = rows + row * row_stride
    power = tl.load(powers + row, mask=inside, other=1.0)
    inverted = tl.load(inverse + row, mask=inside, other=0.0)
    finite = inverted == inverted
    squares = tl.zeros((BN, BD), tl.float32)
    largest = tl.zeros((BN,), tl.float32)
    for start in range(0, dim, BD):
        columns = start + tl.arange(0, BD)
        cells = (inside & finite)[:, None] & (columns < dim)[None, :]
        x = tl.load(starts[:, None] + columns[None, :], mask=cells, other=0.0).to(tl.float32) * power[:, None]
        if UNIT:
            x = x * inverted[:, None]
        squares += x * x
        largest = tl.maximum(largest, tl.max(tl.abs(x), 1))
    length = raised(tl.sum(squares, 1), largest, dim)
    step = largest * (1.0 / 16256.0) * (1.0 + 4 * ULP)
    per_step = tl.where(step > 0.0, 1.0 / tl.where(step > 0.0, step, 1.0), 0.0)
    squares = tl.zeros((BN, BD), tl.float32)
    high_sum = tl.zeros((BN,), tl.int32)
    low_sum = tl.zeros((BN,), tl.int32)
    for start in range(0, value_stride, BD):
        columns = start + tl.arange(0, BD)
        cells = (inside & finite)[:, None] & (columns < dim)[None, :]
        x = tl.load(starts[:, None] + columns[None, :], mask=cells, other=0.0).to(tl.float32) * power[:, None]
        if UNIT:
            x = x * inverted[:, None]
        code = whole(x, per_step[:, None], 16256)
        rest = tl.fma(tl.broadcast_to(-step[:, None], (BN, BD)), code, x)
        squares += rest * rest
        upper = tl.floor((code + 64.0) * (1.0 / HIGH))
        lower = code - upper * HIGH
        upper = upper.to(tl.int32)
        lower = lower.to(tl.int32)
        high_sum += tl.sum(upper, 1)
        low_sum += tl.sum(lower, 1)
        out = row[:, None] * value_stride + columns[None, :]
        there = inside[:, None] & (columns < value_stride)[None, :]
        tl.store(high + out, upper.to(tl.int8), mask=there)
        tl.store(low + out, lower.to(tl.int8), mask=there)
    error = raised(tl.sum(squares, 1), largest, dim)
    if UNIT:
        unit = tl.where(inverted > 0.0, (dim + 16) * ULP, 0.0)
        error += unit
        length += unit
    else:
        # Far from 1 nothing is certified.
        finite = finite & (power == 1.0)
    length = tl.where(finite, length, float("inf"))
    rounding = (8 * dim + 512) * ULP
    tl.store(constants + row, step, mask=inside)
    tl.store(constants + num_rows + row, (error + rounding * length) * (1.0 + 64 * ULP), mask=inside)
    tl.store(constants + 2 * num_rows + row, (error + length * (1.0 + rounding)) * (1.0 + 64 * ULP), mask=inside)
    tl.store(constants + 3 * num_rows + row, length, mask=inside)
    tl.store(sums + row, high_sum, mask=inside)
    tl.store(sums + num_rows + row, low_sum, mask=inside)


@triton.jit
def bounds_of_tile(
    high, low, constants, sums, values, scale, error, length, query, inside, key, within, num_queries, width,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Upper bounds (BQ, BN) float32 of the scores of queries with keys, infinite where there is none; `width` bytes a
    row.
    """
    upper = tl.zeros((BQ, BN), tl.int32)
    lower = tl.zeros((BQ, BN), tl.int32)
    starts = values + key * width
    # Codes of queries have the width of the keys' unpacked codes.
    own = query * (2 * width if PACKED else width)
    for start in range(0, width, BD):
        columns = start + tl.arange(0, BD)
        x = tl.load(starts[:, None] + columns[None, :], mask=within[:, None], other=0)
        first = tl.load(high + own[:, None] + columns[None, :], mask=inside[:, None], other=0)
        second = tl.load(low + own[:, None] + columns[None, :], mask=inside[:, None], other=0)
        if PACKED:
            nibbles = tl.trans((x & 15).to(tl.int8))
            upper = tl.dot(first, nibbles, upper, out_dtype=tl.int32)
            lower = tl.dot(second, nibbles, lower, out_dtype=tl.int32)
            nibbles = tl.trans((x >> 4).to(tl.int8))
            first = tl.load(high + own[:, None] + width + columns[None, :], mask=inside[:, None], other=0)
            second = tl.load(low + own[:, None] + width + columns[None, :], mask=inside[:, None], other=0)
            upper = tl.dot(first, nibbles, upper, out_dtype=tl.int32)
            lower = tl.dot(second, nibbles, lower, out_dtype=tl.int32)
        else:
            codes = tl.trans(x)
            upper = tl.dot(first, codes, upper, out_dtype=tl.int32)
            lower = tl.dot(second, codes, lower, out_dtype=tl.int32)
    if PACKED:
        upper -= 8 * tl.load(sums + query, mask=inside, other=0)[:, None]
        lower -= 8 * tl.load(sums + num_queries + query, mask=inside, other=0)[:, None]
    step = tl.load(constants + query, mask=inside, other=0.0)
    per_length = tl.load(constants + num_queries + query, mask=inside, other=0.0)
    per_error = tl.load(constants + 2 * num_queries + query, mask=inside, other=0.0)
    own_length = tl.load(constants + 3 * num_queries + query, mask=inside, other=0.0)
    key_scale = tl.load(scale + key, mask=within, other=0.0)
    key_error = tl.load(error + key, mask=within, other=0.0)
    key_length = tl.load(length + key, mask=within, other=0.0)
    product = (upper.to(tl.float32) * HIGH + lower.to(tl.float32)) * key_scale[None, :] * step[:, None]
    loss = key_length[None, :] * per_length[:, None] + key_error[None, :] * per_error[:, None]
    bound = product + loss + SMALLEST
    certain = own_length[:, None] * key_length[None, :] < HUGE  # false for NaN and infinity as well
    return tl.where(certain, bound, float("inf"))


@triton.jit(do_not_specialize=("num_queries", "key_begin", "key_end", "split_length", "splits", "query_blocks", "k"))
def best_bounds(
    high, low, constants, sums, values, scale, error, length, mask, thresholds, lists,
    num_queries, width, mask_query_stride, mask_key_stride, key_begin, key_end, split_length, splits, query_blocks, k,
    min_score,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, K: tl.constexpr, PACKED: tl.constexpr,
    PRIVATE_MASK: tl.constexpr,
):  # fmt: skip
    """Lists (k,) int64 of the keys with the largest bounds, as `top_k_kernel.best_of_batch` keeps those of scores."""
    lane = tl.arange(0, BQ)
    split = tl.program_id(0) // query_blocks
    query = (tl.program_id(0) % query_blocks * BQ + lane).to(tl.int64)
    inside = query < num_queries
    begin = key_begin + split.to(tl.int64) * split_length
    many = tl.minimum(key_end - begin, split_length).to(tl.int32)
    base = split * split_length
    column = tl.arange(0, K)
    best = tl.zeros((BQ, K), tl.int64) + tl.where(column < k, EMPTY + column.to(tl.int64), FULL)[None, :]
    least = tl.where(inside, LEAST + 1, GREATEST)
    for start in range(0, many, BN):
        place = start + tl.arange(0, BN)
        within = place < many
        key = begin + place
        shared = tl.load(thresholds + query, mask=inside, other=GREATEST)
        bounds = bounds_of_tile(
            high, low, constants, sums, values, scale, error, length, query, inside, key, within, num_queries, width,
            BQ, BN, BD, PACKED,
        )  # fmt: skip
        eligible = within[None, :]
        if mask is not None:
            if PRIVATE_MASK:
                cells = mask + query[:, None] * mask_query_stride + key[None, :] * mask_key_stride
                eligible = eligible & (tl.load(cells, mask=inside[:, None] & within[None, :], other=0) != 0)
            else:
                eligible = eligible & (tl.load(mask + key * mask_key_stride, mask=within, other=0) != 0)[None, :]
        if min_score is not None:
            eligible = eligible & (bounds >= min_score)
        best, least = insert(best, tl.maximum(least, shared), bounds, eligible, base + place)
        tl.atomic_max(thresholds + query, least - 1, mask=inside & (least - 1 > shared))
    cells = lists + (query * splits + split)[:, None] * k + column[None, :]
    tl.store(cells, best, mask=inside[:, None] & (column < k)[None, :])


@triton.jit(do_not_specialize=("num_keys", "many"))
def score_candidates(
    rows, keys, row_powers, row_inverse, key_powers, key_inverse, extremes, indices, found, flag,
    row_stride, key_stride, dim, num_keys, many, min_score,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EVEN: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Scores of `many` keys `indices` (rows, many) of each row, -1 for none, as candidates `found` (rows, many) int64.

    Program (row, block of BN). The arithmetic is that of top_k: for one query (ALONE), or of its blocks of queries.
    """
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BN + tl.arange(0, BN)
    key = tl.load(indices + row * many + place, mask=place < many, other=-1)
    within = key >= 0
    key = tl.where(within, key, 0)
    if ALONE:
        scores = single_scores(
            rows, row, row_powers, row_inverse, row_stride, keys, key, within, key_powers, key_inverse, key_stride,
            extremes, dim, BN, BD, EVEN,
        )  # fmt: skip
    else:
        lane = tl.arange(0, BQ)
        block = scores_of_rows(
            rows, keys, None, None, row + lane * 0, key, lane == 0, within, 0, 0, row_powers, key_powers, row_inverse,
            key_inverse, extremes, dim, row_stride, key_stride, BQ, BN, BD, EVEN,
        )  # fmt: skip
        scores = tl.sum(tl.where((lane == 0)[:, None], block, 0.0), 0)
    if flag is not None:
        wrong = within & ((tl.abs(scores) < float("inf")) == 0)
        if tl.max(wrong.to(tl.int32), 0) > 0:
            tl.atomic_min(flag, tl.min(tl.where(wrong, row * num_keys + key, FULL), 0))
    counted = within & (scores == scores)
    if min_score is not None:
        counted = counted & (scores >= min_score)
    candidate = tl.where(counted, packed(ordered(scores), key), EMPTY + place.to(tl.int64))
    tl.store(found + row * many + place, candidate, mask=place < many)


@triton.jit(do_not_specialize=("num_queries", "many", "k", "splits", "num_programs", "split_length", "num_keys"))
def judge(
    bounds, counts, scores, hits, order, total, num_queries, many, k, min_score, BN: tl.constexpr
):  # fmt: skip
    """List in `order` (queries,) the `total` (1,) int64 queries whose hits are not proven.

    `bounds` (queries, many) and `counts` (queries,) are the best bounds, in order; `scores` (queries, k) and `hits`
    (queries,) what their keys scored. Proven is a query that left no key out, or only keys whose bounds are below its
    k-th score or, with fewer hits, below min_score.
    """
    query = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = query < num_queries
    full = tl.load(counts + query, mask=inside, other=0) == many
    left_out = tl.load(bounds + query * many + many - 1, mask=inside, other=-float("inf"))
    needed = tl.full((BN,), -float("inf"), tl.float32)
    if min_score is not None:
        needed = tl.full((BN,), 0.0, tl.float32) + min_score
    enough = tl.load(hits + query, mask=inside, other=0) == k
    needed = tl.where(enough, tl.load(scores + query * k + k - 1, mask=inside, other=0.0), needed)
    open_ = inside & full & ((left_out < needed) == 0)
    place = tl.atomic_add(total + tl.zeros((BN,), tl.int32), tl.full((BN,), 1, tl.int64), mask=open_)
    tl.store(order + place, query, mask=open_)


@triton.jit(do_not_specialize=("num_programs", "blocks", "split_length", "num_keys"))
def plan(total, items, num_programs, blocks, split_length, num_keys, BQ: tl.constexpr, BN: tl.constexpr):
    """Items of `top_k_kernel.best_of_batch` (num_programs, 6) for the first `total` queries of the order."""
    program = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = program < num_programs
    first = (program % blocks).to(tl.int64) * BQ
    split = (program // blocks).to(tl.int64)
    count = tl.minimum(tl.maximum(tl.load(total) - first, 0), BQ)
    begin = split * split_length
    end = tl.where(count > 0, tl.minimum(begin + split_length, num_keys), begin)
    item = items + program.to(tl.int64) * 6
    tl.store(item, tl.where(count > 0, first, 0), mask=inside)
    tl.store(item + 1, count, mask=inside)
    tl.store(item + 2, begin, mask=inside)
    tl.store(item + 3, end, mask=inside)
    tl.store(item + 4, tl.zeros((BN,), tl.int64), mask=inside)
    tl.store(item + 5, split, mask=inside)


@triton.jit(do_not_specialize=("k",))
def replace(order, total, scores, indices, counts, new_scores, new_indices, new_counts, k, BN: tl.constexpr):
    """Put the new hits of the first `total` queries in order in the place of their old ones; program i has query i."""
    place = tl.program_id(0)
    if place < tl.load(total):
        query = tl.load(order + place)
        tl.store(counts + query, tl.load(new_counts + query))
        for start in range(0, k, BN):
            column = start + tl.arange(0, BN)
            cells = query * k + column
            tl.store(scores + cells, tl.load(new_scores + cells, mask=column < k, other=0.0), mask=column < k)
            tl.store(indices + cells, tl.load(new_indices + cells, mask=column < k, other=0), mask=column < k)
