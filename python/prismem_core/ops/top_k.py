"""top_k: the best keys of each query."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place, Rows, common_place, handed_back, rows
from prismem_core.ops import checks, inputs
from prismem_core.ops.encoded import EncodedRows
from prismem_core.ops.on_device import Launcher, cut, flagged, hosted
from prismem_core.ops.registry import Example, Op, Outcome, choose, run
from prismem_core.ops.segments import Segments, ranges_of
from prismem_core.ops.similarity import TOLERANCE, allowed_error, as_float32, close, exact_scores


class TopK(NamedTuple):
    """Hits of m queries, best first: scores (m, c) float32, indices (m, c) int64, counts (m,) int64.

    c is the largest count; on a device, which this would wait for, it is min(k, longest segment). Cells past a row's
    count hold index -1 and score -infinity and are no hits.
    """

    scores: NDArray[np.float32]
    indices: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(slots=True)
class TopKCall:
    """The checked arguments of a call, as `reference` and `launch` take them."""

    queries: Rows
    keys: Rows
    k: int
    normalize: bool
    segments: Segments | None
    mask: NDArray[np.bool_] | None
    min_score: float | None
    raises: bool
    place: Place
    codes: Any = None

    @property
    def width(self) -> int:
        """Columns that hold the hits of every row."""
        return min(self.k, self.keys.count if self.segments is None else self.segments.longest)

    def allowed(self, row: int, begin: int, end: int) -> NDArray[np.bool_]:
        """Which keys of a range the mask lets a row see."""
        return checks.allowed(self.mask, row, begin, end)


def top_k(
    queries: Any,
    keys: Any,
    k: int,
    *,
    normalize: bool = False,
    segments: Segments | None = None,
    mask: Any = None,
    min_score: float | None = None,
    nonfinite: str = "raise",
    dtype: str | None = None,
) -> TopK:
    """The min(k, eligible) best keys of each query: `queries` (m, d), `keys` (n, d), <q, x> or cosine.

    Order: score descending, then index ascending; -0.0 equals 0.0. Eligible are the keys of the query's own segment
    (all without `segments`) that `mask` (n,) or (m, n) lets pass and whose score is at least `min_score` (inclusive,
    compared in float32, as the caller sees the score). Indices count from the start of the query's segment.
    nonfinite="raise" (default) names a scored row with NaN or infinity; "skip" never returns keys with a NaN score and
    treats infinities as values. Inputs float32, float16, bfloat16 (see `similarity`). A batch gives exactly what its
    queries give one by one; k = 0 and empty inputs are valid. `keys` may be EncodedRows (see `encode`): the same hits
    sooner, where there are no segments. Errors: ArgumentError, NoImplementation.
    """
    plain_keys = keys.array if isinstance(keys, EncodedRows) else keys
    choice = choose("top_k", common_place(queries=queries, keys=plain_keys, mask=mask))
    call = check(
        queries,
        keys,
        k,
        normalize=normalize,
        segments=segments,
        mask=mask,
        min_score=min_score,
        nonfinite=nonfinite,
        dtype=dtype,
    )
    return run(TOP_K, choice, call)


def check(
    queries: Any,
    keys: Any,
    k: int,
    *,
    normalize: bool = False,
    segments: Segments | None = None,
    mask: Any = None,
    min_score: float | None = None,
    nonfinite: str = "raise",
    dtype: str | None = None,
) -> TopKCall:
    """The checked call; ArgumentError names the argument at fault."""
    codes = None
    if isinstance(keys, EncodedRows):
        place = common_place(queries=queries, keys=keys.array, mask=mask)
        right = Rows("keys", keys.rows.data, keys.rows.kind)
        codes = keys.codes
    else:
        place = common_place(queries=queries, keys=keys, mask=mask)
        right = rows(keys, "keys", dtype=dtype)
    left = rows(queries, "queries", dtype=dtype)
    checks.same_dim(left, right)
    return TopKCall(
        left,
        right,
        checks.whole_number(k, "k"),
        checks.flag(normalize, "normalize"),
        checks.segments_for(segments, left, right),
        checks.mask_for(mask, left, right),
        checks.threshold(min_score, "min_score"),
        checks.nonfinite_mode(nonfinite),
        place,
        codes,
    )


def reference(call: TopKCall) -> TopK:
    """The definition: score, leave out, sort, cut."""
    scores = as_float32(exact_scores(call.queries, call.keys, call.normalize))
    found: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
    for row, (begin, end) in enumerate(ranges_of(call.segments, call.queries.count, call.keys.count)):
        own = scores[row, begin:end]
        eligible = call.allowed(row, begin, end)
        bad = np.flatnonzero(eligible & ~np.isfinite(own))
        if call.raises and call.k > 0 and bad.size:
            checks.raise_nonfinite(call.queries, call.keys, row, begin + int(bad[0]), 'pass nonfinite="skip"')
        eligible = eligible & ~np.isnan(own)
        if call.min_score is not None:
            eligible = eligible & (own >= np.float32(call.min_score))
        index = np.flatnonzero(eligible)
        order = index[np.argsort(-own[index], kind="stable")][: call.k]
        found.append((own[order], order.astype(np.int64)))
    return padded(found, call.width, call.place)


def padded(found: list[tuple[NDArray[np.float32], NDArray[np.int64]]], width: int, place: Place) -> TopK:
    """Rows of different counts as rectangles."""
    counts = np.array([len(order) for _, order in found], np.int64)
    width = int(counts.max(initial=0)) if len(found) else width
    scores = np.full((len(found), width), -np.inf, np.float32)
    indices = np.full((len(found), width), -1, np.int64)
    for row, (own, order) in enumerate(found):
        scores[row, : len(own)] = own
        indices[row, : len(order)] = order
    return TopK(handed_back(scores, place), handed_back(indices, place), handed_back(counts, place))


def launch(call: TopKCall, implementation: Callable[..., Outcome]) -> TopK:
    """Let an implementation fill the hits, then cut columns that no row uses."""
    shape = (call.queries.count, call.width)
    scores, indices = np.empty(shape, np.float32), np.empty(shape, np.int64)
    counts = np.empty(call.queries.count, np.int64)
    ranges = None if call.segments is None else call.segments.ranges
    groups = None if call.segments is None else call.segments.groups
    _, query, key = implementation(
        call.queries.data,
        call.keys.data,
        ranges,
        groups,
        call.mask,
        call.width,
        call.normalize,
        call.min_score,
        scores,
        indices,
        counts,
        **({} if call.codes is None else {"codes": call.codes}),
    )
    if call.raises and query >= 0:
        begin = 0 if call.segments is None else call.segments.range_of(query)[0]
        checks.raise_nonfinite(call.queries, call.keys, query, begin + key, 'pass nonfinite="skip"')
    used = call.width
    if counts.size and not (call.raises and call.segments is None and call.mask is None and call.min_score is None):
        used = int(counts.max())
    if used < call.width:
        scores, indices = np.ascontiguousarray(scores[:, :used]), np.ascontiguousarray(indices[:, :used])
    return TopK(handed_back(scores, call.place), handed_back(indices, call.place), handed_back(counts, call.place))


def launch_on_device(call: TopKCall, launcher: Launcher) -> TopK:
    """Let kernels of a device fill the hits."""
    shape, device = (call.queries.count, call.width), launcher.device
    scores, indices = device.empty(shape, "float32"), device.empty(shape, "int64")
    counts, flag = device.full(shape[:1], "int64", 0), launcher.flag(call.raises)
    usable = launcher.backend == "triton" and call.segments is None
    if shape[0] and shape[1] and usable and call.codes is not None and call.codes.normalize == call.normalize:
        outputs = (scores, indices, counts, flag)
        launcher.with_codes()(call.queries, call.keys, call.codes, call.mask, call.width, call.min_score, *outputs)
    elif shape[0] and shape[1]:
        launcher(
            call.queries,
            call.keys,
            *hosted(call.segments),
            call.mask,
            call.width,
            call.normalize,
            call.min_score,
            scores,
            indices,
            counts,
            flag,
        )
    query, key = flagged(flag, call.keys.count)
    if query >= 0:
        checks.raise_nonfinite(call.queries, call.keys, query, key, 'pass nonfinite="skip"')
    scores, indices = cut(call.place, counts, scores, indices)
    return TopK(*(handed_back(part, call.place) for part in (scores, indices, counts)))


def examples(rng: np.random.Generator) -> Iterator[Example]:
    """The pairs of `similarity`, ties, masks, thresholds, segments and values at the edge."""
    for position, (label, x, y) in enumerate(inputs.pairs(rng)):
        arguments = {"queries": x, "keys": y, "k": (0, 1, 3, 10, 1000)[position % 5], "normalize": position % 2 == 1}
        yield Example(f"{label} k={arguments['k']}", arguments)
    x, y = inputs.unit_rows(rng, 65, 17), inputs.unit_rows(rng, 500, 17)
    yield Example("batch", {"queries": x, "keys": y, "k": 10})
    yield Example("threshold", {"queries": x, "keys": y, "k": 10, "min_score": 0.4})
    yield Example("mask", {"queries": x, "keys": y, "k": 10, "mask": rng.random(500) < 0.1})
    yield Example("masks", {"queries": x, "keys": y, "k": 10, "mask": rng.random((65, 500)) < 0.1, "min_score": 0.0})
    yield Example("mask sliced", {"queries": x, "keys": y, "k": 7, "mask": (rng.random((130, 1000)) < 0.3)[::2, ::-2]})
    yield Example("duplicates", {"queries": x, "keys": y[rng.integers(0, 40, 500)], "k": 30})
    lengths = rng.integers(0, 20, 65)
    lengths[::7] = 0
    ragged = Segments.from_lengths(lengths)
    yield Example(
        "ragged", {"queries": x, "keys": inputs.unit_rows(rng, int(lengths.sum()), 17), "k": 5, "segments": ragged}
    )
    groups = rng.integers(0, 4, 65)
    shared = Segments([0, 130, 130, 311, 500], groups)
    yield Example("groups", {"queries": x, "keys": y, "k": 9, "segments": shared, "mask": rng.random(500) < 0.5})
    overlapping = Segments.grouped([(5, 300), (100, 101), (200, 500)], rng.integers(0, 3, 65))
    yield Example("overlapping", {"queries": x, "keys": y, "k": 9, "segments": overlapping, "normalize": True})
    special = inputs.special_rows()
    for normalize in (False, True):
        yield Example(
            "special", {"queries": special, "keys": special, "k": 9, "normalize": normalize, "nonfinite": "skip"}
        )


def agrees(actual: TopK, call: TopKCall) -> str | None:
    """What differs from the definition, or None; keys whose scores are within the tolerance may change places."""
    scores, indices, counts = np.asarray(actual.scores), np.asarray(actual.indices), np.asarray(actual.counts)
    exact = exact_scores(call.queries, call.keys, call.normalize)
    error = allowed_error(call.queries, call.keys, call.normalize)
    if scores.shape != indices.shape or scores.dtype != np.float32 or indices.dtype != np.int64:
        return f"scores {scores.dtype}{scores.shape} and indices {indices.dtype}{indices.shape} do not fit together"
    if call.queries.count and scores.shape[1] != int(counts.max()):
        return f"{scores.shape[1]} columns for a largest count of {int(counts.max())}"
    for row, (begin, end) in enumerate(ranges_of(call.segments, call.queries.count, call.keys.count)):
        count = int(counts[row])
        if not (indices[row, count:] == -1).all() or not (scores[row, count:] == -np.inf).all():
            return f"row {row}: unused cells hold something"
        complaint = row_agrees(
            scores[row, :count],
            indices[row, :count],
            exact[row, begin:end],
            error[row, begin:end],
            call,
            row,
            begin,
            end,
        )
        if complaint:
            return f"row {row}: {complaint}"
    return None


def row_agrees(
    scores: NDArray[np.float32],
    indices: NDArray[np.int64],
    exact: NDArray[np.float64],
    error: NDArray[np.float64],
    call: TopKCall,
    row: int,
    begin: int,
    end: int,
) -> str | None:
    """What is wrong with the hits of one row, or None."""
    if len(set(indices.tolist())) != len(indices) or (
        len(indices) and not 0 <= indices.min() <= indices.max() < end - begin
    ):
        return f"indices {indices.tolist()} repeat or leave the segment"
    if not call.allowed(row, begin, end)[indices].all():
        return "a masked key was returned"
    if not close(scores, exact[indices], error[indices]).all():
        return f"scores {scores.tolist()}, expected {exact[indices].tolist()}"
    steps = list(zip(scores.tolist(), indices.tolist(), strict=True))
    if any(a[0] < b[0] or (a[0] == b[0] and a[1] > b[1]) for a, b in itertools.pairwise(steps)):
        return f"hits are not in order: {steps}"
    eligible = call.allowed(row, begin, end) & ~np.isnan(exact)
    surely, maybe = eligible, eligible
    slack = np.nan_to_num(error, nan=0.0, posinf=0.0)
    if call.min_score is not None:
        surely, maybe = eligible & (exact - slack > call.min_score), eligible & (exact + slack >= call.min_score)
        if (scores < np.float32(call.min_score)).any():
            return "a score is below min_score"
    least, most = min(call.k, int(surely.sum())), min(call.k, int(maybe.sum()))
    if not least <= len(indices) <= most:
        return f"{len(indices)} hits, expected {least} to {most}"
    left_out = surely.copy()
    left_out[indices] = False
    if len(indices) and len(indices) < call.k and left_out.any():
        return "an eligible key is missing although there is room"
    if (
        len(indices)
        and left_out.any()
        and (exact[left_out] - 2 * slack[left_out] > float(scores[-1]) + slack.max()).any()
    ):
        return "a better key was left out"
    return None


TOP_K: Op[TopKCall, TopK] = Op("top_k", top_k, check, reference, launch, examples, agrees, TOLERANCE, launch_on_device)
