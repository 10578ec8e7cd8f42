"""How the work of a launch is cut into programs: blocks of queries that share keys, and splits of their keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def split_count(num_keys: int, blocks: int, programs: int, least_keys: int) -> int:
    """Splits of `num_keys` keys so that `blocks` blocks of queries give about `programs` programs."""
    return max(1, min(-(-programs // max(blocks, 1)), num_keys // max(least_keys, 1)))


def split_length(num_keys: int, splits: int, tile: int) -> int:
    """Keys of a split: whole tiles."""
    return max(1, -(-num_keys // (max(splits, 1) * tile))) * tile


def pieces(num_keys: int, largest: int, least_head: int, fraction: int) -> list[int]:
    """Bounds, from 0 to `num_keys`, of pieces of at most `largest` keys that are searched one after the other.

    Where that leaves at least `least_head` keys, a `fraction` of the keys comes first, and a fraction of these before.
    """
    bounds = list(range(0, num_keys, largest))[1:]
    head = min(num_keys, largest) // fraction
    while head >= least_head:
        bounds.insert(0, head)
        head //= fraction
    return [0, *bounds, num_keys]


@dataclass(frozen=True)
class Items:
    """The programs of a grouped launch.

    `order` (queries,) are the queries, those of a group together; `single` and `batched` (., 6) the items of groups
    with one and with more queries: first place in `order`, queries, first key, past the last key, key with index 0,
    split. Query i owns the lists first_list[i] to first_list[i + 1], one a split; `most_lists` is their largest number.
    """

    order: Integers
    single: Integers
    batched: Integers
    first_list: Integers
    most_lists: int


def grouped_items(
    ranges: Integers,
    groups: Integers | None,
    num_queries: int,
    block: int,
    tile: int,
    programs: int,
    least_keys: int,
    begin: int = 0,
    end: int | None = None,
    *,
    single: bool = True,
) -> Items:
    """Items of the queries of all groups, for the keys from `begin` to `end` of each segment.

    Segments are split so that all items together are about `programs` where there is enough work. A query whose segment
    has no key in the piece has no item and no list. Without `single` groups of one query are among the batched ones.
    """
    group = np.arange(num_queries, dtype=np.int64) if groups is None else groups
    order = np.argsort(group, kind="stable").astype(np.int64)
    starts = ranges[:, 0] + begin
    ends = ranges[:, 1] if end is None else np.minimum(ranges[:, 1], ranges[:, 0] + end)
    lengths = np.maximum(ends - starts, 0)
    sizes = np.bincount(group, minlength=len(ranges)).astype(np.int64)
    first_query = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    blocks = -(-sizes // block)
    work = int((lengths * blocks).sum())
    longest_split = max(-(-max(work, 1) // max(programs, 1)), least_keys)
    longest_split = -(-longest_split // tile) * tile
    splits = np.where(sizes > 0, -(-lengths // longest_split), 0)
    singles: list[Integers] = []
    batched: list[Integers] = []
    for number in np.flatnonzero(splits):
        count, first = int(sizes[number]), int(first_query[number])
        alone = single and count == 1
        firsts = np.arange(0, count, block, dtype=np.int64)
        pieces = np.arange(int(splits[number]), dtype=np.int64)
        grid = np.empty((len(pieces), len(firsts), 6), np.int64)
        grid[:, :, 0] = first + firsts
        grid[:, :, 1] = np.minimum(count - firsts, block)
        grid[:, :, 2] = (starts[number] + pieces * longest_split)[:, None]
        grid[:, :, 3] = np.minimum(grid[:, :, 2] + longest_split, ends[number])
        grid[:, :, 4] = starts[number]
        grid[:, :, 5] = pieces[:, None]
        (singles if alone else batched).append(grid.reshape(-1, 6))
    lists = splits[group]
    empty = np.zeros((0, 6), np.int64)
    return Items(
        order,
        np.concatenate(singles) if singles else empty,
        np.concatenate(batched) if batched else empty,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lists)]),
        int(lists.max(initial=0)),
    )
