"""Picking relevant rows that are unlike each other among the hits of a search on a device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismem_core.index.device_blocks import Blocks
from prismem_core.index.device_launchers import Launchers
from prismem_core.index.device_search import Hits, Request

Integers = NDArray[np.int64]

_CANDIDATE_BYTES = 256 << 20  # rows of candidates side by side at a time


def diverse(request: Request, pool: Hits, relevance_weight: float, blocks: Blocks, launchers: Launchers) -> Hits:
    """Up to request.k picks of each query from its hits, in the order of selection with the scores of that moment.

    Candidates stand in the order of slots, so that ties fall as they do over all rows.
    """
    memory, torch = blocks.memory, blocks.memory.torch
    width = min(request.k, pool.slots.shape[1])
    count = int(request.queries.shape[0])
    scores = memory.empty((count, width), torch.float32)
    places = memory.empty((count, width), torch.int64)
    counts = memory.empty((count,), torch.int64)
    if not width or not count:
        return Hits(scores, np.empty((count, width), np.int64), np.zeros(count, np.int64))
    ordered = [np.sort(pool.slots[query, : pool.counts[query]]) for query in range(count)]
    ends = np.cumsum(pool.counts)
    per_batch = max(1, _CANDIDATE_BYTES // blocks.row_bytes)
    begin = 0
    while begin < count:
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + per_batch, side="right")))
        batch = slice(begin, end)
        candidates = np.concatenate(ordered[batch])
        edges = np.concatenate([[0], ends[batch] - before]).astype(np.int64)
        keys = _side_by_side(candidates, blocks)
        launchers.mmr_select(
            request.queries[batch],
            keys,
            np.stack([edges[:-1], edges[1:]], 1),
            None,
            None,
            width,
            relevance_weight,
            None,
            request.cosine,
            places[batch],
            scores[batch],
            counts[batch],
            None,
            device=memory.launch_device(),
        )
        starts = memory.upload(edges[:-1])[:, None]
        slots = memory.upload(np.append(candidates, -1))
        picked = torch.where(places[batch] >= 0, places[batch] + starts, candidates.shape[0])
        places[batch] = slots[picked]
        begin = end
    host = torch.cat([places.reshape(-1), counts]).cpu().numpy()
    return Hits(scores, host[: count * width].reshape(count, width), host[count * width :])


def _side_by_side(slots: Integers, blocks: Blocks) -> object:
    """Rows of slots in any order, in which one may stand several times."""
    different, where = np.unique(slots, return_inverse=True)
    rows = blocks.gather(different)
    return (
        rows
        if where.shape[0] == rows.shape[0] and bool((slots == different).all())
        else rows[blocks.memory.upload(where.reshape(-1))]
    )
