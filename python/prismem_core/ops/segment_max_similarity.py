"""segment_max_similarity: how close the closest item of a set comes to a piece of evidence (Eq. 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place, Rows, common_place, handed_back, rows
from prismem_core.ops import checks, inputs
from prismem_core.ops.encoded import EncodedRows
from prismem_core.ops.on_device import Launcher, flagged, hosted
from prismem_core.ops.registry import Example, Op, Outcome, choose, run
from prismem_core.ops.segments import Segments, ranges_of
from prismem_core.ops.similarity import TOLERANCE, allowed_error, as_float32, close, exact_scores


class SegmentMax(NamedTuple):
    """Largest scores (e,) float32 and where in the segment they were (e,) int64; 0 and -1 for an empty segment."""

    values: NDArray[np.float32]
    indices: NDArray[np.int64]


@dataclass(slots=True)
class SegmentMaxCall:
    """The checked arguments of a call, as `reference` and `launch` take them."""

    evidence: Rows
    items: Rows
    segments: Segments | None
    normalize: bool
    raises: bool
    place: Place
    codes: Any = None


def segment_max_similarity(
    evidence: Any,
    items: Any,
    segments: Segments | None = None,
    *,
    normalize: bool = False,
    nonfinite: str = "raise",
    dtype: str | None = None,
) -> SegmentMax:
    """For each row of `evidence` (e, d) the largest score with `items` (n, d) of its segment, and where (Eq. 8).

    Scores are inner products, or cosines with `normalize`; they may be negative. Ties: the lowest index. An empty
    segment gives 0.0 and -1. Evidence that shares a set of items should share a group of `segments`. nonfinite="raise"
    (default) names a row with NaN or infinity; "skip" leaves NaN scores out (only NaN scores: 0.0 and -1). Inputs as
    for `similarity`; `items` may be EncodedRows (see `encode`): the same result sooner. Errors: ArgumentError,
    NoImplementation.
    """
    plain_items = items.array if isinstance(items, EncodedRows) else items
    choice = choose("segment_max_similarity", common_place(evidence=evidence, items=plain_items))
    call = check(evidence, items, segments, normalize=normalize, nonfinite=nonfinite, dtype=dtype)
    return run(SEGMENT_MAX_SIMILARITY, choice, call)


def check(
    evidence: Any,
    items: Any,
    segments: Segments | None = None,
    *,
    normalize: bool = False,
    nonfinite: str = "raise",
    dtype: str | None = None,
) -> SegmentMaxCall:
    """The checked call; ArgumentError names the argument at fault."""
    codes = None
    if isinstance(items, EncodedRows):
        place = common_place(evidence=evidence, items=items.array)
        right = Rows("items", items.rows.data, items.rows.kind)
        codes = items.codes
    else:
        place = common_place(evidence=evidence, items=items)
        right = rows(items, "items", dtype=dtype)
    left = rows(evidence, "evidence", dtype=dtype)
    checks.same_dim(left, right)
    return SegmentMaxCall(
        left,
        right,
        checks.segments_for(segments, left, right),
        checks.flag(normalize, "normalize"),
        checks.nonfinite_mode(nonfinite),
        place,
        codes,
    )


def reference(call: SegmentMaxCall) -> SegmentMax:
    """The definition."""
    scores = as_float32(exact_scores(call.evidence, call.items, call.normalize))
    values = np.zeros(call.evidence.count, np.float32)
    indices = np.full(call.evidence.count, -1, np.int64)
    for row, (begin, end) in enumerate(ranges_of(call.segments, call.evidence.count, call.items.count)):
        own = scores[row, begin:end]
        bad = np.flatnonzero(~np.isfinite(own))
        if call.raises and bad.size:
            checks.raise_nonfinite(call.evidence, call.items, row, begin + int(bad[0]), 'pass nonfinite="skip"')
        if not np.isnan(own).all():
            indices[row] = np.nanargmax(own)
            values[row] = own[indices[row]]
    return SegmentMax(handed_back(values, call.place), handed_back(indices, call.place))


def launch(call: SegmentMaxCall, implementation: Callable[..., Outcome]) -> SegmentMax:
    """Let an implementation fill the results."""
    values, indices = np.empty(call.evidence.count, np.float32), np.empty(call.evidence.count, np.int64)
    ranges = None if call.segments is None else call.segments.ranges
    groups = None if call.segments is None else call.segments.groups
    _, row, item = implementation(
        call.evidence.data,
        call.items.data,
        ranges,
        groups,
        call.normalize,
        values,
        indices,
        **({} if call.codes is None else {"codes": call.codes}),
    )
    if call.raises and row >= 0:
        begin = 0 if call.segments is None else call.segments.range_of(row)[0]
        checks.raise_nonfinite(call.evidence, call.items, row, begin + item, 'pass nonfinite="skip"')
    return SegmentMax(handed_back(values, call.place), handed_back(indices, call.place))


def launch_on_device(call: SegmentMaxCall, launcher: Launcher) -> SegmentMax:
    """Let kernels of a device fill the results."""
    values = launcher.device.full((call.evidence.count,), "float32", 0.0)
    indices = launcher.device.full((call.evidence.count,), "int64", -1)
    flag = launcher.flag(call.raises)
    if call.evidence.count and call.items.count:
        launcher(call.evidence, call.items, *hosted(call.segments), call.normalize, values, indices, flag)
    row, item = flagged(flag, call.items.count)
    if row >= 0:
        checks.raise_nonfinite(call.evidence, call.items, row, item, 'pass nonfinite="skip"')
    return SegmentMax(handed_back(values, call.place), handed_back(indices, call.place))


def examples(rng: np.random.Generator) -> Iterator[Example]:
    """The pairs of `similarity`, then sets of items as diagnostics make them."""
    for position, (label, x, y) in enumerate(inputs.pairs(rng)):
        yield Example(label, {"evidence": x, "items": y, "normalize": position % 2 == 0})
    lengths = rng.integers(0, 40, 97)
    lengths[::5] = 0
    items = inputs.unit_rows(rng, int(lengths.sum()), 33)
    yield Example(
        "ragged",
        {"evidence": inputs.unit_rows(rng, 97, 33), "items": items, "segments": Segments.from_lengths(lengths)},
    )
    groups = Segments.from_lengths(lengths, rng.integers(0, 97, 300))
    yield Example("grouped", {"evidence": inputs.unit_rows(rng, 300, 33), "items": items, "segments": groups})
    far = -np.abs(inputs.unit_rows(rng, 6, 8))
    yield Example("negative", {"evidence": -far[:2], "items": far, "segments": Segments([0, 2, 6])})
    special = inputs.special_rows()
    for normalize in (False, True):
        yield Example("special", {"evidence": special, "items": special, "normalize": normalize, "nonfinite": "skip"})


def agrees(actual: SegmentMax, call: SegmentMaxCall) -> str | None:
    """What differs from the definition, or None; items with scores within the tolerance may stand for each other."""
    values, indices = np.asarray(actual.values), np.asarray(actual.indices)
    if values.shape != (call.evidence.count,) or values.dtype != np.float32 or indices.dtype != np.int64:
        return f"values {values.dtype}{values.shape}, indices {indices.dtype}{indices.shape}"
    exact = exact_scores(call.evidence, call.items, call.normalize)
    error = allowed_error(call.evidence, call.items, call.normalize)
    for row, (begin, end) in enumerate(ranges_of(call.segments, call.evidence.count, call.items.count)):
        own, slack = exact[row, begin:end], error[row, begin:end]
        index = int(indices[row])
        if np.isnan(own).all():
            if index != -1 or values[row] != 0.0:
                return f"row {row}: {values[row]!r} at {index}, expected 0.0 at -1"
        elif not 0 <= index < end - begin:
            return f"row {row}: index {index} leaves a segment of {end - begin}"
        elif not close(values[row : row + 1], own[index : index + 1], slack[index : index + 1]).all():
            return f"row {row}: {values[row]!r}, but item {index} scores {own[index]!r}"
        elif (own - 2 * np.nan_to_num(slack, nan=0.0, posinf=0.0) > float(values[row])).any():
            return f"row {row}: {values[row]!r}, but the best is {np.nanmax(own)!r}"
    return None


SEGMENT_MAX_SIMILARITY: Op[SegmentMaxCall, SegmentMax] = Op(
    "segment_max_similarity",
    segment_max_similarity,
    check,
    reference,
    launch,
    examples,
    agrees,
    TOLERANCE,
    launch_on_device,
)
