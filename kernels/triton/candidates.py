"""Lists of candidates on a device as hits: merged by rank, sorted, and put together from pieces."""

from __future__ import annotations

from typing import Any

import torch

from prismem_core.kernels.triton import launch
from prismem_core.kernels.triton.launch import Config, Variant
from prismem_core.kernels.triton.selection import merge_candidates

LARGEST_LIST = 256
"""The most hits a row that lists in registers and their merging by rank are made for."""
EMPTY = -(2**63)
"""A cell without a candidate."""
_NOTHING = EMPTY + 2**32 - 1
_LOW = 2**32 - 1


def merge(
    lists: Any,
    first_list: Any,
    most_lists: int,
    num_rows: int,
    k: int,
    scores: Any,
    indices: Any,
    counts: Any,
    device: Any,
) -> None:
    """Rank the candidates of each row in rounds until they fit one program, then write the k best as hits.

    `lists` (., width) int64: row i has the lists first_list[i] to first_list[i + 1] (a tensor on the device), at most
    `most_lists`, or exactly so many each without `first_list`. `k` is at most LARGEST_LIST.
    """
    while True:
        chunks, arguments = _merging(lists, first_list, most_lists, k)
        arguments |= {"scores": scores, "indices": indices, "counts": counts, "result": lists}
        if chunks > 1:
            arguments["result"] = device.empty((num_rows, chunks, k), "int64")
        with launch.on(device):
            launch.start(merge_candidates, (num_rows, chunks), arguments, _MERGING[arguments["CHUNK"] > 512])
        if chunks == 1:
            return
        lists, first_list, most_lists = arguments["result"].view(-1, k), None, chunks


_MERGING = Config(1, 1, 1, warps=4, stages=1), Config(1, 1, 1, warps=8, stages=1)


def _merging(lists: Any, first_list: Any, most_lists: int, k: int) -> tuple[int, dict[str, Any]]:
    """Chunks of a row and the arguments of a round of merging, apart from where results go."""
    width = int(lists.shape[1])
    total, least = max(most_lists * width, 1), launch.power_of_two(k)
    chunk = min(max(launch.power_of_two(total), least), max(256, 4 * least))
    chunks = -(-total // chunk)
    arguments = {
        "lists": lists,
        "first_list": first_list,
        "lists_a_row": most_lists,
        "length": width,
        "chunks": chunks,
        "k": k,
        "CHUNK": chunk,
        "STEP": chunk if launch.INTERPRETED else min(chunk, 8),
        "LAST": chunks == 1,
    }
    return chunks, arguments


def unpack(candidates: Any, scores: Any, indices: Any, counts: Any) -> None:
    """Candidates (m, k) in descending order as hits."""
    found = candidates > _NOTHING
    codes = (candidates >> 32).to(torch.int32)
    shown = torch.where(codes < 0, codes ^ 0x7FFFFFFF, codes).view(torch.float32)
    scores.copy_(torch.where(found, shown, -float("inf")))
    indices.copy_(torch.where(found, _LOW - (candidates & _LOW), -1))
    counts.copy_(found.sum(dim=1))


def ordered(scores: Any) -> Any:
    """float32 to int32 that compare alike; scores hold neither NaN nor -0.0."""
    bits = scores.view(torch.int32)
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def join(parts: tuple[Any, Any, Any], k: int, scores: Any, indices: Any, counts: Any, device: Any) -> None:
    """The hits of keys that were searched in pieces: `parts` are scores, indices (pieces, m, k), counts (pieces, m)."""
    pieces, count, _ = parts[0].shape
    hits, all_indices = (part.transpose(0, 1).reshape(count, -1) for part in parts[:2])
    # Hits of a piece are in order, and so are the pieces, so the place among all hits breaks ties as the index would.
    places = torch.arange(pieces * k, device=hits.device)
    found = torch.arange(k, device=hits.device)[None, None, :] < parts[2].transpose(0, 1)[:, :, None]
    packed = (ordered(hits).to(torch.int64) << 32) | (_LOW - places)
    candidates = torch.where(found.reshape(count, -1), packed, EMPTY).contiguous()
    if k <= LARGEST_LIST:
        merge(candidates, None, 1, count, k, scores, indices, counts, device)
    else:
        unpack(torch.topk(candidates, k, dim=1).values, scores, indices, counts)
    indices.copy_(torch.where(indices < 0, indices, all_indices.gather(1, indices.clamp(min=0))))


def variants(sm: int) -> list[Variant]:
    """What `merge` compiles: a round of many lists, the last round, and the longest lists."""
    found = []
    for k, lists, name in ((10, 264, "many lists"), (10, 17, "last"), (LARGEST_LIST, 8, "long lists")):
        result = torch.empty(1, k, dtype=torch.int64, device="meta")
        _, arguments = _merging(result, None, lists, k)
        hits = torch.empty(1, k, device="meta")
        arguments |= {"result": result, "scores": hits, "indices": result, "counts": result[:, 0]}
        notes = {"loads": "few candidates, beside the keys that they come from"}
        config = _MERGING[arguments["CHUNK"] > 512]
        found.append(launch.variant(f"top_k/merge {name}", "top_k", merge_candidates, arguments, config, notes=notes))
    return found
