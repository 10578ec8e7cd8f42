"""similarity: all inner products, or cosines, of two sets of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.arrays import Place, Rows, common_place, handed_back, rows
from prismem_core.ops import checks, inputs
from prismem_core.ops.on_device import Launcher, flagged
from prismem_core.ops.registry import Example, Op, Outcome, choose, run

Float64 = NDArray[np.float64]

TOLERANCE = {
    # Eight partial sums of dim / 8 terms each: rounding grows about as sqrt(dim / 8) * 2**-24, 7e-7 at 1024 dimensions.
    "float32": 2e-6,
    # Products of two halves are exact in float32, so only the sums round, as above.
    "float16": 2e-6,
    "bfloat16": 2e-6,
}


@dataclass(slots=True)
class SimilarityCall:
    """The checked arguments of a call, as `reference` and `launch` take them."""

    x: Rows
    y: Rows
    normalize: bool
    raises: bool
    place: Place


def similarity(
    x: Any, y: Any, *, normalize: bool = False, nonfinite: str = "raise", dtype: str | None = None
) -> NDArray[np.float32]:
    """Scores (m, n) of the rows of `x` (m, d) with the rows of `y` (n, d): <x_i, y_j>, or the cosine with `normalize`.

    float32, float16 or bfloat16 in (also mixed), float32 out, in the library of the inputs; products accumulate in
    float32 or better. A zero vector has cosine 0.0 with everything. nonfinite="raise" (default) names a row with NaN or
    infinity; "skip" returns what arithmetic gives, and with `normalize` NaN for such a row. dtype="bfloat16" says what
    the bits of uint16 arrays mean. Errors: ArgumentError, NoImplementation.
    """
    choice = choose("similarity", common_place(x=x, y=y))
    return run(SIMILARITY, choice, check(x, y, normalize=normalize, nonfinite=nonfinite, dtype=dtype))


def check(
    x: Any, y: Any, *, normalize: bool = False, nonfinite: str = "raise", dtype: str | None = None
) -> SimilarityCall:
    """The checked call; ArgumentError names the argument at fault."""
    place = common_place(x=x, y=y)
    left, right = rows(x, "x", dtype=dtype), rows(y, "y", dtype=dtype)
    checks.same_dim(left, right)
    return SimilarityCall(left, right, checks.flag(normalize, "normalize"), checks.nonfinite_mode(nonfinite), place)


def exact_scores(left: Rows, right: Rows, normalize: bool) -> Float64:
    """The definition of a score, in float64: (m, n) inner products or cosines.

    With `normalize` a row that holds NaN or infinity scores NaN, else a zero row scores 0.0; cosines stay in [-1, 1].
    """
    x, y = left.float64(), right.float64()
    with np.errstate(all="ignore"):
        dots = np.empty((len(x), len(y)))
        for i, row in enumerate(x):
            dots[i] = (y * row).sum(axis=1)  # not a matrix product: equal rows must get equal scores
        if not normalize:
            return dots
        norms_x = np.sqrt((x * x).sum(axis=1))[:, None]
        norms_y = np.sqrt((y * y).sum(axis=1))[None, :]
        cosines: Float64 = np.clip(dots / norms_x / norms_y, -1.0, 1.0)
        cosines[np.broadcast_to((norms_x == 0) | (norms_y == 0), cosines.shape)] = 0.0
        cosines[np.broadcast_to(~(np.isfinite(norms_x) & np.isfinite(norms_y)), cosines.shape)] = np.nan
        return cosines


def as_float32(scores: Float64) -> NDArray[np.float32]:
    """Rounded to float32; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def allowed_error(left: Rows, right: Rows, normalize: bool) -> Float64:
    """The error (m, n) that a score may have: the tolerance of the coarser kind, for rows of any length."""
    tolerance = max(TOLERANCE[left.kind], TOLERANCE[right.kind])
    if normalize:
        return np.full((left.count, right.count), tolerance)
    with np.errstate(all="ignore"):
        x, y = left.float64(), right.float64()
        lengths: Float64 = np.sqrt((x * x).sum(axis=1))[:, None] * np.sqrt((y * y).sum(axis=1))[None, :]
    # Scores too small for float32 may become 0.
    return tolerance * lengths + 1e-44


def close(actual: NDArray[Any], exact: Float64, allowed: Float64) -> NDArray[np.bool_]:
    """Where results agree: within the allowed error, the same infinity, or both NaN."""
    with np.errstate(all="ignore"):
        near: NDArray[np.bool_] = np.abs(actual.astype(np.float64) - exact) <= allowed
        same = as_float32(exact) == actual
    agreed: NDArray[np.bool_] = near | same | (np.isnan(actual) & np.isnan(exact))
    return agreed


def reference(call: SimilarityCall) -> NDArray[np.float32]:
    """The definition."""
    out = as_float32(exact_scores(call.x, call.y, call.normalize))
    bad = np.argwhere(~np.isfinite(out))
    if call.raises and len(bad):
        checks.raise_nonfinite(call.x, call.y, int(bad[0][0]), int(bad[0][1]), 'pass nonfinite="skip"')
    handed: NDArray[np.float32] = handed_back(out, call.place)
    return handed


def launch(call: SimilarityCall, implementation: Callable[..., Outcome]) -> NDArray[np.float32]:
    """Let an implementation fill the scores."""
    out = np.empty((call.x.count, call.y.count), np.float32)
    implementation(call.x.data, call.y.data, call.normalize, out)
    if call.raises and not np.isfinite(out).all():
        row, column = np.argwhere(~np.isfinite(out))[0]
        checks.raise_nonfinite(call.x, call.y, int(row), int(column), 'pass nonfinite="skip"')
    handed: NDArray[np.float32] = handed_back(out, call.place)
    return handed


def launch_on_device(call: SimilarityCall, launcher: Launcher) -> NDArray[np.float32]:
    """Let kernels of a device fill the scores."""
    out = launcher.device.empty((call.x.count, call.y.count), "float32")
    flag = launcher.flag(call.raises)
    if call.x.count and call.y.count:
        launcher(call.x, call.y, call.normalize, out, flag)
    row, column = flagged(flag, call.y.count)
    if row >= 0:
        checks.raise_nonfinite(call.x, call.y, row, column, 'pass nonfinite="skip"')
    handed: NDArray[np.float32] = handed_back(out, call.place)
    return handed


def examples(rng: np.random.Generator) -> Iterator[Example]:
    """Awkward sizes, all kinds of rows and all strides, plain and normalised."""
    for normalize in (False, True):
        for label, x, y in inputs.pairs(rng):
            yield Example(f"{label}{'/cosine' if normalize else ''}", {"x": x, "y": y, "normalize": normalize})
        special = inputs.special_rows()
        yield Example("special", {"x": special, "y": special, "normalize": normalize, "nonfinite": "skip"})


def agrees(actual: NDArray[np.float32], call: SimilarityCall) -> str | None:
    """What differs from the definition, or None."""
    scores = np.asarray(actual)
    exact = exact_scores(call.x, call.y, call.normalize)
    if scores.shape != exact.shape or scores.dtype != np.float32:
        return f"expected float32 of shape {exact.shape}, got {scores.dtype} of shape {scores.shape}"
    wrong = np.argwhere(~close(scores, exact, allowed_error(call.x, call.y, call.normalize)))
    if len(wrong):
        i, j = wrong[0]
        return f"score ({i}, {j}) is {scores[i, j]!r}, expected {exact[i, j]!r}"
    return None


SIMILARITY: Op[SimilarityCall, NDArray[np.float32]] = Op(
    "similarity", similarity, check, reference, launch, examples, agrees, TOLERANCE, launch_on_device
)
