"""Device code of top_k: score tiles of keys and keep the best candidates of each query; scores are never written."""

from __future__ import annotations

import triton
import triton.language as tl

from prismem_core.kernels.triton.scoring import cosines, note_nonfinite, scores_of_rows
from prismem_core.kernels.triton.selection import EMPTY, FULL, GREATEST, LEAST, insert, ordered, packed

UNSPECIALISED = (
    "num_queries", "num_keys", "key_begin", "key_end", "split_length", "splits", "query_blocks", "k", "first_query",
    "width",
)  # fmt: skip
"""Numbers whose divisibility makes no difference to the code."""
ITEM: tl.constexpr = tl.constexpr(6)
"""Numbers of a work item, see `work.Items`."""


@triton.jit(do_not_specialize=UNSPECIALISED)
def best_of_batch(
    queries, keys, described_queries, described_keys, query_powers, query_inverse, key_powers, key_inverse, extremes,
    mask, flag, items, order, first_list, thresholds, lists,
    num_queries, num_keys, dim, query_stride, key_stride, mask_query_stride, mask_key_stride,
    key_begin, key_end, split_length, splits, query_blocks, k, first_query, width, min_score,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, K: tl.constexpr, EVEN: tl.constexpr,
    PRIVATE_MASK: tl.constexpr,
):  # fmt: skip
    """Lists (k,) int64 of the best candidates of a block of queries among a range of keys.

    What is None is not done. `items` (., 6) int64, see `work.Items`: program = item, queries order[first:...], list
    first_list[query] + split; without them program = split * query_blocks + block, keys from key_begin + split *
    split_length, list query * splits + split. Rows come through tensor descriptors where there are some (not with
    items). `extremes` (1,) int32 says that a power of two is not 1, so that rows must be multiplied by theirs;
    inverse lengths make cosines. `mask` uint8 (keys,), or (queries, keys) with PRIVATE_MASK. `flag` becomes the least
    (first_query + query) * num_keys + key of an allowed pair whose score is not finite. `thresholds` (queries,) int32,
    LEAST at first, share the k-th best score so far between the splits of a query; only scores below it are dropped,
    so results do not depend on when it is read. Without them there are no lists: candidate `index` of a query goes to
    lists[query * width + index].
    """
    lane = tl.arange(0, BQ)
    first_row = 0
    if items is not None:
        item = items + tl.program_id(0) * ITEM
        inside = lane < tl.load(item + 1)
        query = tl.load(order + tl.load(item) + lane, mask=inside, other=0)
        begin = tl.load(item + 2)
        length = (tl.load(item + 3) - begin).to(tl.int32)
        base = (begin - tl.load(item + 4)).to(tl.int32)
        own_list = query
        if thresholds is not None:
            own_list = tl.load(first_list + query, mask=inside, other=0) + tl.load(item + 5)
    else:
        first_row = tl.program_id(0) % query_blocks * BQ
        split = tl.program_id(0) // query_blocks
        query = (first_row + lane).to(tl.int64)
        inside = query < num_queries
        begin = key_begin + split.to(tl.int64) * split_length
        length = tl.minimum(key_end - begin, split_length).to(tl.int32)
        base = split * split_length
        own_list = query
        if thresholds is not None:
            own_list = query * splits + split
    column = tl.arange(0, K)
    best = tl.zeros((BQ, K), tl.int64) + tl.where(column < k, EMPTY + column.to(tl.int64), FULL)[None, :]
    bound = tl.where(inside, LEAST + 1, GREATEST)
    for start in range(0, length, BN):
        place = start + tl.arange(0, BN)
        within = place < length
        key = begin + place
        shared = bound
        if thresholds is not None:
            shared = tl.load(thresholds + query, mask=inside, other=GREATEST)
        scores = scores_of_rows(
            queries, keys, described_queries, described_keys, query, key, inside, within, first_row,
            (begin + start).to(tl.int32), query_powers, key_powers, query_inverse, key_inverse, extremes,
            dim, query_stride, key_stride, BQ, BN, BD, EVEN,
        )  # fmt: skip
        eligible = within[None, :]
        if mask is not None:
            if PRIVATE_MASK:
                cells = mask + query[:, None] * mask_query_stride + key[None, :] * mask_key_stride
                eligible = eligible & (tl.load(cells, mask=inside[:, None] & within[None, :], other=0) != 0)
            else:
                eligible = eligible & (tl.load(mask + key * mask_key_stride, mask=within, other=0) != 0)[None, :]
        if flag is not None:
            pairs = (first_query + query) * num_keys + begin
            note_nonfinite(flag, scores, eligible & inside[:, None], pairs, place)
        if min_score is not None:
            eligible = eligible & (scores >= min_score)
        if thresholds is None:
            codes = packed(ordered(scores), (base + place)[None, :])
            cells = lists + own_list[:, None] * width + (base + place)[None, :]
            shown = tl.where(eligible & (scores == scores), codes, EMPTY)
            tl.store(cells, shown, mask=inside[:, None] & within[None, :])
        else:
            best, bound = insert(best, tl.maximum(bound, shared), scores, eligible, base + place)
            # A bound above what was read is one more than the k-th best score of this program.
            tl.atomic_max(thresholds + query, bound - 1, mask=inside & (bound - 1 > shared))
    if thresholds is not None:
        cells = lists + own_list[:, None] * k + column[None, :]
        tl.store(cells, best, mask=inside[:, None] & (column < k)[None, :])


@triton.jit(do_not_specialize=UNSPECIALISED)
def best_of_one(
    queries, keys, described_queries, described_keys, query_powers, query_inverse, key_powers, key_inverse, extremes,
    mask, flag, items, order, first_list, thresholds, lists,
    num_queries, num_keys, dim, query_stride, key_stride, mask_query_stride, mask_key_stride,
    key_begin, key_end, split_length, splits, query_blocks, k, first_query, width, min_score,
    BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, K: tl.constexpr, EVEN: tl.constexpr,
    PRIVATE_MASK: tl.constexpr,
):  # fmt: skip
    """As `best_of_batch` for one query a program: multiply and add in float32, at the speed of memory.

    It takes the same arguments; BQ, PRIVATE_MASK, descriptors and width do not matter.
    """
    if items is not None:
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
        shared = tl.load(thresholds + query + tl.arange(0, 1))
        x_rows = keys + key * key_stride
        sums = tl.zeros((BN, BD // 8), tl.float32)
        for dimension in range(0, dim, BD):
            columns = dimension + tl.arange(0, BD)
            if EVEN:
                q = tl.load(q_row + columns)
                x = tl.load(x_rows[:, None] + columns[None, :], mask=within[:, None], other=0.0)
            else:
                inner = columns < dim
                q = tl.load(q_row + columns, mask=inner, other=0.0)
                x = tl.load(x_rows[:, None] + columns[None, :], mask=within[:, None] & inner[None, :], other=0.0)
            q = q.to(tl.float32)
            x = x.to(tl.float32)
            if extremes is not None:
                q = q * tl.load(query_powers + query)
                x = x * tl.load(key_powers + key, mask=within, other=1.0)[:, None]
            sums += tl.sum(tl.reshape(q[None, :] * x, (BN, BD // 8, 8)), 2)
        scores = tl.sum(sums, 1)[None, :]
        if key_inverse is not None:
            q_inverse = tl.load(query_inverse + query + tl.arange(0, 1))
            scores = cosines(scores, q_inverse, tl.load(key_inverse + key, mask=within, other=0.0))
        eligible = within
        if mask is not None:
            cells = mask + query * mask_query_stride + key * mask_key_stride
            eligible = eligible & (tl.load(cells, mask=within, other=0) != 0)
        eligible = eligible[None, :]
        if flag is not None:
            note_nonfinite(flag, scores, eligible, (first_query + query) * num_keys + begin + tl.arange(0, 1), place)
        if min_score is not None:
            eligible = eligible & (scores >= min_score)
        best, bound = insert(best, tl.maximum(bound, shared), scores, eligible, base + place)
        tl.atomic_max(thresholds + query + tl.arange(0, 1), bound - 1, mask=bound - 1 > shared)
    tl.store(lists + own_list * k + column[None, :], best, mask=(column < k)[None, :])
