"""token_overlap: how many ids two sets share, as coverage or as Dice (lexical term of P §A.3)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place, common_place, handed_back, plain
from prismem_core.errors import ArgumentError
from prismem_core.ops import checks
from prismem_core.ops.inputs import SIZES
from prismem_core.ops.registry import Example, Op, Outcome, choose, run
from prismem_core.ops.segments import Integers, Segments, checked_offsets, ranges_of

MEASURES = ("dice", "coverage")

MAX_SET = 2**30
"""Ids in one set, at most; twice as many still fit into int32."""

TOLERANCE = {
    # Counts are exact and the quotient of two of them is rounded once, as IEEE arithmetic prescribes.
    "int32": 0.0
}


@dataclass(slots=True)
class IdSets:
    """n sets of int32 ids: set i is ids[offsets[i] : offsets[i + 1]], in any order, repeats without meaning."""

    name: str
    ids: NDArray[np.int32]
    offsets: Integers

    @property
    def count(self) -> int:
        """n, the number of sets."""
        return len(self.offsets) - 1

    def sets(self) -> list[frozenset[int]]:
        """The sets themselves."""
        pieces = itertools.pairwise(self.offsets.tolist())
        return [frozenset(self.ids[begin:end].tolist()) for begin, end in pieces]


@dataclass(slots=True)
class TokenOverlapCall:
    """The checked arguments of a call, as `reference` and `launch` take them."""

    queries: IdSets
    keys: IdSets
    dice: bool
    segments: Segments | None
    place: Place

    def starts(self) -> Integers:
        """Where the shares of each query begin in the flat result (m + 1,)."""
        lengths = [end - begin for begin, end in ranges_of(self.segments, self.queries.count, self.keys.count)]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])

    def shaped(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """The flat shares as the caller sees them."""
        shares = flat if self.segments is not None else flat.reshape(self.queries.count, self.keys.count)
        handed: NDArray[np.float64] = handed_back(shares, self.place)
        return handed


def token_overlap(
    queries: Any,
    keys: Any,
    *,
    query_offsets: Sequence[int] | NDArray[Any],
    key_offsets: Sequence[int] | NDArray[Any],
    measure: str = "dice",
    segments: Segments | None = None,
) -> NDArray[np.float64]:
    """The share of ids (m, n) float64 that each query set A has in common with each key set B.

    measure="dice": 2 |A & B| / (|A| + |B|), symmetric; "coverage": |A & B| / |A|, how much of the query the key holds.
    Where there is nothing to divide by (both sets empty; for coverage: an empty query) the share is 0.0. Set i of m is
    queries[query_offsets[i] : query_offsets[i + 1]], and so for keys: int32 ids (p,) of any value, in any order,
    repeats count once. With `segments` a query meets the keys of its segment alone, and the result is flat (p,): the
    shares of the first query, then of the second, and so on.

    Each share is the correctly rounded quotient, float64 as scores are: `2 * shared / total` of Python's integers.
    Ascending ids without repeats are counted fastest. Errors: ArgumentError, NoImplementation.
    """
    choice = choose("token_overlap", common_place(queries=queries, keys=keys))
    call = check(
        queries, keys, query_offsets=query_offsets, key_offsets=key_offsets, measure=measure, segments=segments
    )
    return run(TOKEN_OVERLAP, choice, call)


def check(
    queries: Any,
    keys: Any,
    *,
    query_offsets: Sequence[int] | NDArray[Any],
    key_offsets: Sequence[int] | NDArray[Any],
    measure: str = "dice",
    segments: Segments | None = None,
) -> TokenOverlapCall:
    """The checked call; ArgumentError names the argument at fault."""
    place = common_place(queries=queries, keys=keys)
    left, right = id_sets(queries, query_offsets, "queries"), id_sets(keys, key_offsets, "keys")
    if measure not in MEASURES:
        raise ArgumentError(f'measure: expected "dice" or "coverage", got {measure!r}')
    checks.segments_fit(segments, left.count, "query_offsets", right.count, "key_offsets")
    return TokenOverlapCall(left, right, measure == "dice", segments, place)


def id_sets(ids: Any, offsets: Sequence[int] | NDArray[Any], name: str) -> IdSets:
    """Checked sets of ids."""
    view = plain(ids, name, ("int32",), (1,))
    try:
        bounds = checked_offsets(offsets)
    except ArgumentError as error:
        raise ArgumentError(f"offsets of {name}: {error}") from None
    if bounds[-1] > len(view):
        raise ArgumentError(f"offsets of {name}: the last set ends at {bounds[-1]}, but there are {len(view)} ids")
    longest = int(np.diff(bounds).max(initial=0))
    if longest > MAX_SET:
        raise ArgumentError(f"offsets of {name}: expected at most {MAX_SET} ids in a set, got {longest}")
    return IdSets(name, np.ascontiguousarray(view), bounds)


def share(query: frozenset[int], key: frozenset[int], dice: bool) -> float:
    """The definition of one share."""
    shared = len(query & key)
    if dice:
        return 2 * shared / (len(query) + len(key)) if query or key else 0.0
    return shared / len(query) if query else 0.0


def reference(call: TokenOverlapCall) -> NDArray[np.float64]:
    """The definition."""
    queries, keys = call.queries.sets(), call.keys.sets()
    pairs = enumerate(ranges_of(call.segments, len(queries), len(keys)))
    shares = [share(queries[row], keys[key], call.dice) for row, (begin, end) in pairs for key in range(begin, end)]
    return call.shaped(np.array(shares, np.float64))


def launch(call: TokenOverlapCall, implementation: Callable[..., Outcome]) -> NDArray[np.float64]:
    """Let an implementation fill the shares."""
    starts = call.starts()
    flat = np.empty(int(starts[-1]), np.float64)
    ranges = None if call.segments is None else call.segments.ranges
    groups = None if call.segments is None else call.segments.groups
    queries, keys = call.queries, call.keys
    implementation(
        queries.ids, queries.offsets, keys.ids, keys.offsets, ranges, groups, call.dice, starts[:-1].copy(), flat
    )
    return call.shaped(flat)


def random_sets(
    rng: np.random.Generator, count: int, longest: int, values: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Ids and offsets of sets of up to `longest` ids below `values`, unordered and with repeats."""
    lengths = rng.integers(0, longest + 1, count)
    ids = rng.integers(0, values, int(lengths.sum())).astype(np.int32)
    return ids, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def examples(rng: np.random.Generator) -> Iterator[Example]:
    """Awkward numbers of sets, long sets, repeats, ids at the edge of int32, strides, segments."""

    def example(label: str, left: Any, right: Any, **more: Any) -> Example:
        arguments = {"queries": left[0], "query_offsets": left[1], "keys": right[0], "key_offsets": right[1]}
        return Example(label, {**arguments, **more})

    for position, size in enumerate(SIZES):
        other, measure = SIZES[-1 - position], MEASURES[position % 2]
        left, right = random_sets(rng, size, 20, 60), random_sets(rng, other, 30, 60)
        yield example(f"{size}x{other}", left, right, measure=measure)
    # Words as they come in turns: a few frequent, many rare, each set ascending and without repeats.
    words = [np.unique(rng.zipf(1.4, 25).clip(max=100_000)).astype(np.int32) for _ in range(260)]
    ends = np.cumsum([len(ids) for ids in words])
    turns = (np.concatenate(words), np.concatenate([[0], ends]))
    few = (turns[0][: ends[29]], turns[1][:31])
    for measure in MEASURES:
        yield example(f"words {measure}", few, turns, measure=measure)
    long = random_sets(rng, 5, 3000, 2000)
    yield example("long sets", long, random_sets(rng, 70, 900, 2000))
    yield example("long sets coverage", long, long, measure="coverage")
    edge = np.array([-(2**31), 2**31 - 1, 0, -1, 1, 0, 0], np.int32)
    yield example("edge of int32", (edge, [0, 7]), (edge, [0, 1, 2, 5, 7, 7]))
    none: NDArray[np.int32] = np.zeros(0, np.int32)
    for measure in MEASURES:
        yield example("empty sets", (edge, [0, 0, 2, 2]), (edge, [3, 3, 4, 4]), measure=measure)
        yield example("no keys", (edge, [0, 2]), (none, [0]), measure=measure)
        yield example("no queries", (none, [0]), (edge, [0, 2]), measure=measure)
    ids, offsets = random_sets(rng, 40, 9, 30)
    yield example("reversed", (ids[::-1], offsets), (ids, offsets))
    yield example("spaced", (np.repeat(ids, 3)[::3], offsets), (ids, offsets), measure="coverage")
    yield example("part of the ids", (ids, offsets[5:9]), (ids, offsets[10:30]))
    lengths = rng.integers(0, 90, 33)
    lengths[::4] = 0
    keys = random_sets(rng, int(lengths.sum()), 12, 50)
    yield example("ragged", random_sets(rng, 33, 12, 50), keys, segments=Segments.from_lengths(lengths))
    groups = Segments.from_lengths(lengths, rng.integers(0, 33, 300))
    yield example("grouped", random_sets(rng, 300, 12, 50), keys, segments=groups, measure="coverage")


def agrees(actual: NDArray[np.float64], call: TokenOverlapCall) -> str | None:
    """What differs from the definition, or None; not a bit may differ."""
    shares, expected = np.asarray(actual), np.asarray(reference(call))
    if shares.shape != expected.shape or shares.dtype != np.float64:
        return f"expected float64 of shape {expected.shape}, got {shares.dtype} of shape {shares.shape}"
    wrong = np.argwhere(~(shares == expected))
    if len(wrong):
        place = tuple(wrong[0].tolist())
        return f"share {place} is {shares[place]!r}, expected {expected[place]!r}"
    return None


TOKEN_OVERLAP: Op[TokenOverlapCall, NDArray[np.float64]] = Op(
    "token_overlap", token_overlap, check, reference, launch, examples, agrees, TOLERANCE
)
