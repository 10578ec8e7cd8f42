"""Device code of top_k: score tiles of keys and keep the best candidates of each query; scores are never written."""

from __future__ import annotations

import triton
import triton.language as tl

from prismem_core.kernels.triton.scoring import cosines, tile_scores
from prismem_core.kernels.triton.selection import EMPTY, FULL, GREATEST, LEAST, NOTHING, insert, ordered, packed

ITEM: tl.constexpr = tl.constexpr(6)
"""Numbers of a work item: first place in `order`, queries, first key, past the last key, key with index 0, split."""


@triton.jit
def best_of_batch(
    queries, keys, query_powers, query_inverse, key_powers, key_inverse, mask, flag,
    items, order, first_list, thresholds, lists,
    num_queries, num_keys, dim, query_stride, key_stride, mask_query_stride, mask_key_stride,
    key_begin, key_end, split_length, splits, query_blocks, k, min_score,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, K: tl.constexpr,
    EVEN: tl.constexpr, GROUPED: tl.constexpr, SCALED: tl.constexpr, COSINE: tl.constexpr, MASKED: tl.constexpr,
    LIMITED: tl.constexpr, FLAGGED: tl.constexpr,
):
    """Lists of the k best candidates of a block of queries among a range of keys.

    Dense: program = split * query_blocks + block, keys from key_begin + split * split_length, list query * splits +
    split. GROUPED: program = item of `items` (., 6) int64, queries order[first:...], list first_list[query] + split.
    `thresholds` (queries,) int32, LEAST at first, share the k-th best score so far between the splits of a query; only
    scores below it are dropped, so results do not depend on when it is read. MASKED: 1 `mask` (keys,), 2 (queries,
    keys). LIMITED: scores below min_score are left out. FLAGGED: `flag` becomes the least query * num_keys + key of an
    allowed pair whose score is not finite.
    """
    lane = tl.arange(0, BQ)
    if GROUPED:
        item = items + tl.program_id(0) * ITEM
        first = tl.load(item)
        inside = lane < tl.load(item + 1)
        query = tl.load(order + first + lane, mask=inside, other=0)
        begin = tl.load(item + 2)
        length = (tl.load(item + 3) - begin).to(tl.int32)
        base = (begin - tl.load(item + 4)).to(tl.int32)
        split = tl.load(item + 5)
        own_list = tl.load(first_list + query, mask=inside, other=0) + split
    else:
        block = tl.program_id(0) % query_blocks
        split = tl.program_id(0) // query_blocks
        query = (block * BQ + lane).to(tl.int64)
        inside = query < num_queries
        begin = key_begin + split.to(tl.int64) * split_length
        length = tl.minimum(key_end - begin, split_length).to(tl.int32)
        base = split * split_length
        own_list = query * splits + split
    q_rows = queries + query * query_stride
    if COSINE:
        q_inverse = tl.load(query_inverse + query, mask=inside, other=0.0)
    q_powers = tl.full((BQ,), 1.0, tl.float32)
    if SCALED:
        q_powers = tl.load(query_powers + query, mask=inside, other=1.0)
    column = tl.arange(0, K)
    empty = tl.zeros((BQ, K), tl.int64) + tl.where(column < k, EMPTY + column.to(tl.int64), FULL)[None, :]
    best = empty
    bound = tl.where(inside, LEAST + 1, GREATEST)
    for start in range(0, length, BN):
        place = start + tl.arange(0, BN)
        within = place < length
        key = begin + place
        shared = tl.load(thresholds + query, mask=inside, other=LEAST)
        x_powers = tl.full((BN,), 1.0, tl.float32)
        if SCALED:
            x_powers = tl.load(key_powers + key, mask=within, other=1.0)
        scores = tile_scores(
            q_rows, inside, q_powers, keys + key * key_stride, within, x_powers, dim, BQ, BN, BD, EVEN, SCALED
        )
        if COSINE:
            scores = cosines(scores, q_inverse, tl.load(key_inverse + key, mask=within, other=0.0))
        eligible = within[None, :]
        if MASKED == 1:
            eligible = eligible & (tl.load(mask + key * mask_key_stride, mask=within, other=0) != 0)[None, :]
        if MASKED == 2:
            cells = mask + query[:, None] * mask_query_stride + key[None, :] * mask_key_stride
            eligible = eligible & (tl.load(cells, mask=inside[:, None] & within[None, :], other=0) != 0)
        if FLAGGED:
            wrong = eligible & inside[:, None] & ((tl.abs(scores) < float("inf")) == 0)
            if tl.max(tl.max(wrong.to(tl.int32), 1), 0) > 0:
                pair = query[:, None] * num_keys + key[None, :]
                tl.atomic_min(flag, tl.min(tl.min(tl.where(wrong, pair, FULL), 1), 0))
        if LIMITED:
            eligible = eligible & (scores >= min_score)
        best, bound = insert(best, tl.maximum(bound, tl.where(inside, shared, GREATEST)), scores, eligible, base + place)
        worst = (tl.min(best, 1) >> 32).to(tl.int32)
        tl.atomic_max(thresholds + query, worst, mask=inside & (worst > shared))
    cells = lists + own_list[:, None] * k + column[None, :]
    tl.store(cells, best, mask=inside[:, None] & (column < k)[None, :])


@triton.jit
def best_of_one(
    queries, keys, query_powers, query_inverse, key_powers, key_inverse, mask, flag,
    items, order, first_list, thresholds, lists,
    num_queries, num_keys, dim, query_stride, key_stride, mask_query_stride, mask_key_stride,
    key_begin, key_end, split_length, splits, query_blocks, k, min_score,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, K: tl.constexpr,
    EVEN: tl.constexpr, GROUPED: tl.constexpr, SCALED: tl.constexpr, COSINE: tl.constexpr, MASKED: tl.constexpr,
    LIMITED: tl.constexpr, FLAGGED: tl.constexpr,
):
    """As `best_of_batch` for one query a program (BQ is 1): multiply and add in float32, at the speed of memory."""
    if GROUPED:
        item = items + tl.program_id(0) * ITEM
        query = tl.load(order + tl.load(item))
        begin = tl.load(item + 2)
        length = (tl.load(item + 3) - begin).to(tl.int32)
        base = (begin - tl.load(item + 4)).to(tl.int32)
        own_list = tl.load(first_list + query) + tl.load(item + 5)
    else:
        query = (tl.program_id(0) % query_blocks).to(tl.int64)
        split = tl.program_id(0) // query_blocks
        begin = key_begin + split.to(tl.int64) * split_length
        length = tl.minimum(key_end - begin, split_length).to(tl.int32)
        base = split * split_length
        own_list = query * splits + split
    q_row = queries + query * query_stride
    column = tl.arange(0, K)
    best = tl.where(column < k, EMPTY + column.to(tl.int64), FULL)[None, :]
    bound = tl.full((1,), LEAST + 1, tl.int32)
    for start in range(0, length, BN):
        place = start + tl.arange(0, BN)
        within = place < length
        key = begin + place
        shared = tl.load(thresholds + query)
        x_rows = keys + key * key_stride
        sums = tl.zeros((BN, BD), tl.float32)
        for dimension in range(0, dim, BD):
            columns = dimension + tl.arange(0, BD)
            if EVEN:
                q = tl.load(q_row + columns)
                x = tl.load(x_rows[:, None] + columns[None, :], mask=within[:, None], other=0.0)
            else:
                q = tl.load(q_row + columns, mask=columns < dim, other=0.0)
                x = tl.load(x_rows[:, None] + columns[None, :], mask=within[:, None] & (columns < dim)[None, :], other=0.0)
            q = q.to(tl.float32)
            x = x.to(tl.float32)
            if SCALED:
                q = q * tl.load(query_powers + query)
                x = x * tl.load(key_powers + key, mask=within, other=1.0)[:, None]
            sums += q[None, :] * x
        scores = tl.sum(sums, 1)[None, :]
        if COSINE:
            q_inverse = tl.load(query_inverse + query + tl.arange(0, 1))
            scores = cosines(scores, q_inverse, tl.load(key_inverse + key, mask=within, other=0.0))
        eligible = within
        if MASKED:
            eligible = eligible & (tl.load(mask + query * mask_query_stride + key * mask_key_stride, mask=within, other=0) != 0)
        eligible = eligible[None, :]
        if FLAGGED:
            wrong = eligible & ((tl.abs(scores) < float("inf")) == 0)
            if tl.max(tl.max(wrong.to(tl.int32), 1), 0) > 0:
                pair = (query * num_keys + key)[None, :]
                tl.atomic_min(flag, tl.min(tl.min(tl.where(wrong, pair, FULL), 1), 0))
        if LIMITED:
            eligible = eligible & (scores >= min_score)
        best, bound = insert(best, tl.maximum(bound, shared), scores, eligible, base + place)
        worst = tl.min(tl.min(best, 1), 0)
        worst = (worst >> 32).to(tl.int32)
        if worst > shared:
            tl.atomic_max(thresholds + query, worst)
    tl.store(lists + own_list * k + column[None, :], best, mask=(column < k)[None, :])
