"""segment_mean: the means of neighbouring pieces of a list (Eq. 9-11)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place, common_place, handed_back, neighbours, plain, readable
from prismem_core.errors import ArgumentError
from prismem_core.ops.on_device import HostArray, Launcher
from prismem_core.ops.registry import Example, Op, Outcome, choose, run
from prismem_core.ops.segments import Integers, checked_offsets

TOLERANCE = {
    # The sum is compensated, so it is off by about one rounding of float64; the quotient rounds once more.
    "float32": 4e-16,
    "float64": 4e-16,
}


@dataclass(slots=True)
class SegmentMeanCall:
    """The checked arguments of a call, as `reference` and `launch` take them."""

    values: NDArray[Any]
    offsets: Integers
    place: Place


def segment_mean(values: Any, offsets: Sequence[int] | NDArray[Any]) -> NDArray[np.float64]:
    """Means (s,) float64 of values[offsets[g] : offsets[g + 1]] for `values` (n,) and `offsets` (s + 1,) (Eq. 9-11).

    Values are float32 or, as scores are, float64. An empty piece has the mean NaN. Sums are compensated: the mean is
    that of `math.fsum` up to the last bit or two. Errors: ArgumentError, NoImplementation.
    """
    choice = choose("segment_mean", common_place(values=values))
    return run(SEGMENT_MEAN, choice, check(values, offsets))


def check(values: Any, offsets: Sequence[int] | NDArray[Any]) -> SegmentMeanCall:
    """The checked call; ArgumentError names the argument at fault."""
    place = common_place(values=values)
    view = plain(values, "values", ("float32", "float64"), (1,))
    if place.device == "cpu":
        view = np.ascontiguousarray(readable(view))
    else:
        neighbours(view, "values")
    bounds = checked_offsets(offsets)
    if bounds[-1] > len(view):
        raise ArgumentError(f"offsets: the last segment ends at {bounds[-1]}, but there are {len(view)} values")
    return SegmentMeanCall(view, bounds, place)


def mean(values: NDArray[Any]) -> float:
    """The exactly summed mean; NaN of nothing, and with infinities what IEEE arithmetic gives."""
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        with np.errstate(invalid="ignore"):
            return float(numbers.sum() / len(numbers))
    try:
        return math.fsum(numbers.tolist()) / len(numbers) if len(numbers) else math.nan
    except OverflowError:
        return math.copysign(math.inf, numbers.sum())


def reference(call: SegmentMeanCall) -> NDArray[np.float64]:
    """The definition."""
    means = [mean(call.values[begin:end]) for begin, end in itertools.pairwise(call.offsets)]
    handed: NDArray[np.float64] = handed_back(np.array(means, np.float64), call.place)
    return handed


def launch(call: SegmentMeanCall, implementation: Callable[..., Outcome]) -> NDArray[np.float64]:
    """Let an implementation fill the means."""
    means = np.empty(len(call.offsets) - 1, np.float64)
    implementation(call.values, call.offsets, means)
    handed: NDArray[np.float64] = handed_back(means, call.place)
    return handed


def launch_on_device(call: SegmentMeanCall, launcher: Launcher) -> NDArray[np.float64]:
    """Let kernels of a device fill the means."""
    means = launcher.device.empty((len(call.offsets) - 1,), "float64")
    if len(call.offsets) > 1:
        launcher(call.values, HostArray(call.offsets), means)
    handed: NDArray[np.float64] = handed_back(means, call.place)
    return handed


def examples(rng: np.random.Generator) -> Iterator[Example]:
    """Pieces of many lengths, empty ones, cancellation, values that are not finite, strides."""
    values = rng.standard_normal(1000).astype(np.float32)
    cuts = np.sort(rng.integers(0, 1000, 60))
    yield Example("float32", {"values": values, "offsets": cuts})
    yield Example("float64", {"values": rng.standard_normal(1000), "offsets": cuts})
    yield Example("list of offsets", {"values": values, "offsets": [0, 0, 1, 1000, 1000]})
    yield Example("cancelling", {"values": np.array([1e30, 1.0, -1e30, 1e-30] * 9), "offsets": [0, 4, 36]})
    yield Example(
        "not finite", {"values": np.array([1, np.inf, 2, np.nan, np.inf, -np.inf, 3]), "offsets": [0, 2, 3, 4, 6, 7]}
    )
    yield Example("reversed", {"values": values[::-1], "offsets": cuts})
    yield Example("spaced", {"values": values[::7], "offsets": [0, 100, 143]})
    yield Example("none", {"values": values[:0], "offsets": [0]})
    yield Example("empty pieces", {"values": values[:0], "offsets": [0, 0, 0]})


def agrees(actual: NDArray[np.float64], call: SegmentMeanCall) -> str | None:
    """What differs from the definition, or None."""
    means = np.asarray(actual)
    if means.shape != (len(call.offsets) - 1,) or means.dtype != np.float64:
        return f"expected float64 of shape {(len(call.offsets) - 1,)}, got {means.dtype} of shape {means.shape}"
    for g, got in enumerate(means.tolist()):
        piece = call.values[call.offsets[g] : call.offsets[g + 1]]
        expected = mean(piece)
        if got == expected or (math.isnan(got) and math.isnan(expected)):
            continue
        # What compensation loses is of second order: (2**-52)**2 of the sum of the sizes, with some room.
        size = float(np.abs(piece.astype(np.float64)).sum()) / len(piece)
        if not abs(got - expected) <= TOLERANCE["float64"] * abs(expected) + 2.0**-100 * size * len(piece):
            return f"mean {g} is {got!r}, expected {expected!r}"
    return None


SEGMENT_MEAN: Op[SegmentMeanCall, NDArray[np.float64]] = Op(
    "segment_mean", segment_mean, check, reference, launch, examples, agrees, TOLERANCE, launch_on_device
)
