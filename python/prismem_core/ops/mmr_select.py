"""mmr_select: a diverse selection of the keys relevant to each query (maximal marginal relevance, P E.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place, Rows, common_place, handed_back, rows
from prismem_core.ops import checks, inputs
from prismem_core.ops.on_device import Launcher, cut, flagged, hosted
from prismem_core.ops.registry import Example, Op, Outcome, choose, run
from prismem_core.ops.segments import Segments, ranges_of
from prismem_core.ops.similarity import TOLERANCE, Float64, allowed_error, as_float32, exact_scores


class MmrSelection(NamedTuple):
    """Picks of m rows in the order of selection: indices (m, c) int64, scores (m, c) float32, counts (m,) int64.

    A score is that of the moment of selection. c is the largest count; on a device, which this would wait for, it is
    min(k, longest segment). Cells past a row's count hold index -1 and score -infinity and are no picks.
    """

    indices: NDArray[np.int64]
    scores: NDArray[np.float32]
    counts: NDArray[np.int64]


@dataclass(slots=True)
class MmrCall:
    """The checked arguments of a call, as `reference` and `launch` take them."""

    queries: Rows
    keys: Rows
    k: int
    relevance_weight: float
    min_relevance: float | None
    segments: Segments | None
    mask: NDArray[np.bool_] | None
    normalize: bool
    raises: bool
    place: Place

    @property
    def width(self) -> int:
        """Columns that hold the picks of every row."""
        return min(self.k, self.keys.count if self.segments is None else self.segments.longest)

    def allowed(self, row: int, begin: int, end: int) -> NDArray[np.bool_]:
        """Which keys of a range the mask lets a row see."""
        return checks.allowed(self.mask, row, begin, end)


def mmr_select(
    queries: Any,
    keys: Any,
    k: int,
    *,
    relevance_weight: float,
    min_relevance: float | None = None,
    segments: Segments | None = None,
    mask: Any = None,
    normalize: bool = False,
    nonfinite: str = "raise",
    dtype: str | None = None,
) -> MmrSelection:
    """Up to k keys of each query, relevant and unlike each other: `queries` (m, d), `keys` (n, d).

    The first pick is the most relevant key for every weight; each next one has the largest relevance_weight * relevance
    - (1 - relevance_weight) * (largest similarity to a pick), which is not clipped at 0. The score of the first pick is
    relevance_weight * relevance. Relevance and similarity are inner products, or cosines with `normalize`.
    `relevance_weight` is in [0, 1]; 1 is plain top_k. Candidates are the keys that `mask` (n,) or (m, n) lets pass with
    relevance >= `min_relevance` (inclusive, in float32). Ties: the lowest index; duplicates are ordinary candidates; no
    key is picked twice. Indices count from the start of the segment. nonfinite="raise" (default) names a row with NaN
    or infinity; "skip" leaves keys without a relevance out, and a candidate whose score becomes NaN is not picked any
    more. Inputs as for `similarity`. Errors: ArgumentError, NoImplementation.
    """
    choice = choose("mmr_select", common_place(queries=queries, keys=keys, mask=mask))
    call = check(
        queries,
        keys,
        k,
        relevance_weight=relevance_weight,
        min_relevance=min_relevance,
        segments=segments,
        mask=mask,
        normalize=normalize,
        nonfinite=nonfinite,
        dtype=dtype,
    )
    return run(MMR_SELECT, choice, call)


def check(
    queries: Any,
    keys: Any,
    k: int,
    *,
    relevance_weight: float,
    min_relevance: float | None = None,
    segments: Segments | None = None,
    mask: Any = None,
    normalize: bool = False,
    nonfinite: str = "raise",
    dtype: str | None = None,
) -> MmrCall:
    """The checked call; ArgumentError names the argument at fault."""
    place = common_place(queries=queries, keys=keys, mask=mask)
    left, right = rows(queries, "queries", dtype=dtype), rows(keys, "keys", dtype=dtype)
    checks.same_dim(left, right)
    return MmrCall(
        left,
        right,
        checks.whole_number(k, "k"),
        checks.weight(relevance_weight, "relevance_weight"),
        checks.threshold(min_relevance, "min_relevance"),
        checks.segments_for(segments, left, right),
        checks.mask_for(mask, left, right),
        checks.flag(normalize, "normalize"),
        checks.nonfinite_mode(nonfinite),
        place,
    )


def greedy(
    relevance: Float64, similarity: Float64, candidates: NDArray[np.int64], k: int, relevance_weight: float
) -> tuple[list[int], list[float]]:
    """The definition of the selection: picks and their scores at selection, in order."""
    picks: list[int] = []
    scores: list[float] = []
    left = candidates.tolist()
    with np.errstate(invalid="ignore"):
        while left and len(picks) < k:
            values = np.array([step_score(relevance, similarity, i, picks, relevance_weight) for i in left])
            order = relevance[left] if not picks else values
            numbers = np.flatnonzero(~np.isnan(order))
            if not numbers.size:
                break
            best = int(numbers[order[numbers].argmax()])
            picks.append(left.pop(best))
            scores.append(float(values[best]))
    return picks, scores


def step_score(relevance: Float64, similarity: Float64, i: int, picks: list[int], relevance_weight: float) -> float:
    """The score of candidate i after `picks`; without picks, its weighted relevance."""
    score = relevance_weight * relevance[i]
    if picks:
        score = score - (1.0 - relevance_weight) * similarity[i, picks].max()
    return float(score)


def reference(call: MmrCall) -> MmrSelection:
    """The definition."""
    relevance = as_float32(exact_scores(call.queries, call.keys, call.normalize))
    found: list[tuple[list[int], list[float]]] = []
    for row, (begin, end) in enumerate(ranges_of(call.segments, call.queries.count, call.keys.count)):
        own = relevance[row, begin:end]
        allowed = call.allowed(row, begin, end)
        bad = np.flatnonzero(allowed & ~np.isfinite(own))
        if call.raises and call.k > 0 and bad.size:
            checks.raise_nonfinite(call.queries, call.keys, row, begin + int(bad[0]), 'pass nonfinite="skip"')
        candidates = np.flatnonzero(allowed & ~np.isnan(own) & above(own, call.min_relevance))
        own_keys = Rows("keys", call.keys.data[begin:end], call.keys.kind)
        similarity = as_float32(exact_scores(own_keys, own_keys, call.normalize)).astype(np.float64)
        found.append(greedy(own.astype(np.float64), similarity, candidates, call.k, call.relevance_weight))
    return padded(found, call.width, call.place)


def above(relevance: NDArray[np.float32], least: float | None) -> NDArray[np.bool_]:
    """Where a relevance reaches the threshold, both in float32."""
    return np.ones(relevance.shape, np.bool_) if least is None else relevance >= np.float32(least)


def padded(found: list[tuple[list[int], list[float]]], width: int, place: Place) -> MmrSelection:
    """Rows of different counts as rectangles."""
    counts = np.array([len(picks) for picks, _ in found], np.int64)
    width = int(counts.max(initial=0)) if found else width
    indices = np.full((len(found), width), -1, np.int64)
    scores = np.full((len(found), width), -np.inf, np.float32)
    for row, (picks, values) in enumerate(found):
        indices[row, : len(picks)] = picks
        scores[row, : len(picks)] = as_float32(np.array(values, np.float64))
    return MmrSelection(handed_back(indices, place), handed_back(scores, place), handed_back(counts, place))


def filled(
    num_rows: int, width: int, place: Place, implementation: Callable[..., Outcome]
) -> tuple[MmrSelection, int, int]:
    """Allocate a selection, let `implementation(indices, scores, counts)` fill it, cut columns that no row uses."""
    indices, scores = np.empty((num_rows, width), np.int64), np.empty((num_rows, width), np.float32)
    counts = np.empty(num_rows, np.int64)
    _, row, key = implementation(indices, scores, counts)
    # A reduction would take a tenth of the time of a small call, which has one row.
    used = int(counts[0]) if num_rows == 1 else int(counts.max(initial=0)) if num_rows else width
    if used < width:
        indices, scores = np.ascontiguousarray(indices[:, :used]), np.ascontiguousarray(scores[:, :used])
    selection = MmrSelection(handed_back(indices, place), handed_back(scores, place), handed_back(counts, place))
    return selection, row, key


def launch(call: MmrCall, implementation: Callable[..., Outcome]) -> MmrSelection:
    """Let an implementation fill the picks."""

    ranges, groups = (None, None) if call.segments is None else (call.segments.ranges, call.segments.groups)
    queries, keys, width = call.queries.data, call.keys.data, call.width

    def fill(*outputs: NDArray[Any]) -> Outcome:
        return implementation(
            queries,
            keys,
            ranges,
            groups,
            call.mask,
            width,
            call.relevance_weight,
            call.min_relevance,
            call.normalize,
            *outputs,
        )

    selection, row, key = filled(len(queries), width, call.place, fill)
    if call.raises and row >= 0:
        begin = 0 if call.segments is None else call.segments.range_of(row)[0]
        checks.raise_nonfinite(call.queries, call.keys, row, begin + key, 'pass nonfinite="skip"')
    return selection


def launch_on_device(call: MmrCall, launcher: Launcher) -> MmrSelection:
    """Let kernels of a device fill the picks."""
    shape, device = (call.queries.count, call.width), launcher.device
    indices, scores = device.empty(shape, "int64"), device.empty(shape, "float32")
    counts, flag = device.full(shape[:1], "int64", 0), launcher.flag(call.raises)
    if shape[0] and shape[1]:
        launcher(
            call.queries,
            call.keys,
            *hosted(call.segments),
            call.mask,
            call.width,
            call.relevance_weight,
            call.min_relevance,
            call.normalize,
            indices,
            scores,
            counts,
            flag,
        )
    query, key = flagged(flag, call.keys.count)
    if query >= 0:
        checks.raise_nonfinite(call.queries, call.keys, query, key, 'pass nonfinite="skip"')
    indices, scores = cut(call.place, counts, indices, scores)
    return MmrSelection(*(handed_back(part, call.place) for part in (indices, scores, counts)))


def examples(rng: np.random.Generator) -> Iterator[Example]:
    """The pairs of `similarity` with every kind of weight, then duplicates, thresholds, masks and segments."""
    for position, (label, x, y) in enumerate(inputs.pairs(rng)):
        if "values" in label:
            continue  # products of the keys with each other leave the range of float32
        weight, k = (0.5, 0.0, 1.0, 0.7)[position % 4], (0, 1, 4, 40)[position // 2 % 4]
        arguments = {"queries": x, "keys": y, "k": k, "relevance_weight": weight, "normalize": position % 3 == 0}
        yield Example(f"{label} k={k} weight={weight}", arguments)
    x, y = inputs.unit_rows(rng, 9, 17), inputs.unit_rows(rng, 200, 17)
    yield Example("threshold", {"queries": x, "keys": y, "k": 10, "relevance_weight": 0.6, "min_relevance": 0.3})
    repeated = y[rng.integers(0, 12, 60)]
    yield Example("duplicates", {"queries": x, "keys": repeated, "k": 60, "relevance_weight": 0.6})
    mask = rng.random((9, 200)) < 0.2
    yield Example("masks", {"queries": x, "keys": y, "k": 8, "relevance_weight": 0.7, "mask": mask, "normalize": True})
    lengths = np.array([0, 3, 140, 1, 0, 30, 9, 10, 7])
    ragged = Segments.from_lengths(lengths)
    yield Example("ragged", {"queries": x, "keys": y, "k": 8, "relevance_weight": 0.5, "segments": ragged})
    groups = Segments([0, 60, 200], rng.integers(0, 2, 9))
    half = y.astype(np.float16)
    yield Example("groups float16", {"queries": x, "keys": half, "k": 8, "relevance_weight": 0.5, "segments": groups})


def agrees(actual: MmrSelection, call: MmrCall) -> str | None:
    """What differs from the definition, or None; picks with scores within the tolerance may stand for each other."""
    relevance = exact_scores(call.queries, call.keys, call.normalize)
    error = allowed_error(call.queries, call.keys, call.normalize)
    for row, (begin, end) in enumerate(ranges_of(call.segments, call.queries.count, call.keys.count)):
        own_keys = Rows("keys", call.keys.data[begin:end], call.keys.kind)
        similarity = exact_scores(own_keys, own_keys, call.normalize)
        slack = error[row, begin:end].max(initial=0) + allowed_error(own_keys, own_keys, call.normalize).max(initial=0)
        complaint = row_agrees(
            actual, row, relevance[row, begin:end], similarity, call.allowed(row, begin, end), slack, call
        )
        if complaint:
            return f"row {row}: {complaint}"
    return None


class _Limits(NamedTuple):
    k: int
    relevance_weight: float
    min_relevance: float | None


def row_agrees(
    actual: MmrSelection,
    row: int,
    relevance: Float64,
    similarity: Float64,
    allowed: NDArray[np.bool_],
    slack: float,
    call: Any,
) -> str | None:
    """Walk the picks of one row: each must be within `slack` of the best choice after those before it."""
    limits = _Limits(call.k, call.relevance_weight, call.min_relevance)
    indices, scores, counts = (np.asarray(part) for part in actual)
    count = int(counts[row])
    picks, values = indices[row, :count].tolist(), scores[row, :count].tolist()
    if not (indices[row, count:] == -1).all() or not (scores[row, count:] == -np.inf).all():
        return "unused cells hold something"
    eligible = allowed & ~np.isnan(relevance)
    surely, maybe = eligible, eligible
    if limits.min_relevance is not None:
        surely, maybe = (
            eligible & (relevance - slack > limits.min_relevance),
            eligible & (relevance + slack >= limits.min_relevance),
        )
    if len(set(picks)) != count or not all(0 <= pick < len(relevance) and maybe[pick] for pick in picks):
        return f"picks {picks} repeat or are no candidates"
    if not min(limits.k, int(surely.sum())) <= count <= min(limits.k, int(maybe.sum())):
        return f"{count} picks, expected {min(limits.k, int(surely.sum()))} to {min(limits.k, int(maybe.sum()))}"
    for position, pick in enumerate(picks):
        before = picks[:position]
        left = [i for i in np.flatnonzero(surely).tolist() if i not in before]
        score = step_score(relevance, similarity, pick, before, limits.relevance_weight)
        chosen = relevance[pick] if position == 0 else score
        best = max(
            [
                relevance[i] if position == 0 else step_score(relevance, similarity, i, before, limits.relevance_weight)
                for i in left
            ],
            default=chosen,
        )
        if chosen < best - 2 * slack:
            return f"pick {position} is {pick} with {chosen!r}, but {best!r} was there"
        if not abs(values[position] - score) <= slack:
            return f"pick {position} has score {values[position]!r}, expected {score!r}"
    return None


MMR_SELECT: Op[MmrCall, MmrSelection] = Op(
    "mmr_select", mmr_select, check, reference, launch, examples, agrees, TOLERANCE, launch_on_device
)
