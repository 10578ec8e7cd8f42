"""Bootstrap intervals of means: over questions, over seeds, and of paired differences."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError, SettingsError
from prismem_core.evaluation.means import mean

LEVEL = 0.95
RESAMPLES = 9999
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True)
class Interval:
    """A mean of `n` values with its bootstrap interval; `low` and `high` are None for fewer than two values."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero and does not touch it."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def interval(values: Sequence[float], *, seed: int = 0, level: float = LEVEL) -> Interval:
    """The mean of independent values and its bias-corrected, accelerated bootstrap interval (`scipy.stats.bootstrap`).

    The same values and seed give the same interval. Values that are all equal give one without width. Raises
    ArgumentError for no values or a value that is not finite, SettingsError where scipy is missing.
    """
    data = _checked("interval", values)
    centre = mean(data.tolist())
    if len(data) < 2:
        return Interval(centre, None, None, len(data))
    if np.ptp(data) == 0:
        return Interval(centre, centre, centre, len(data))
    return Interval(centre, *_bootstrap((data,), _mean, seed, level), len(data))


def difference_interval(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0, level: float = LEVEL
) -> Interval:
    """The mean of `first` less that of `second`, two independent samples of any sizes, with its interval.

    Both samples are resampled; `n` is the size of the smaller. Otherwise as `interval`.
    """
    one, other = (_checked("difference_interval", values) for values in (first, second))
    centre, smaller = mean(one.tolist()) - mean(other.tolist()), min(len(one), len(other))
    if smaller < 2:
        return Interval(centre, None, None, smaller)
    if np.ptp(one) == 0 and np.ptp(other) == 0:
        return Interval(centre, centre, centre, smaller)
    return Interval(centre, *_bootstrap((one, other), _difference, seed, level), smaller)


def grouped_interval(groups: Sequence[Sequence[float]], *, seed: int = 0, level: float = LEVEL) -> Interval:
    """The mean of the means of groups that count alike, such as capabilities, with its interval.

    Each group is resampled by itself, so that none is left out of a resample; one of a single value adds no spread. `n`
    counts all values. Otherwise as `interval`.
    """
    samples = [_checked("grouped_interval", values) for values in groups]
    if not samples:
        raise ArgumentError("grouped_interval: expected at least one group of values, got none")
    means = [mean(sample.tolist()) for sample in samples]
    centre, size = mean(means), sum(len(sample) for sample in samples)
    spread = [number for number, sample in enumerate(samples) if np.ptp(sample) > 0]
    if not spread:
        none = all(len(sample) < 2 for sample in samples)
        return Interval(centre, None, None, size) if none else Interval(centre, centre, centre, size)
    still = math.fsum(value for number, value in enumerate(means) if number not in spread)

    def overall(*drawn: NDArray[np.float64], axis: int = -1) -> Any:
        return (still + sum(np.mean(own, axis=axis) for own in drawn)) / len(samples)

    return Interval(centre, *_bootstrap(tuple(samples[number] for number in spread), overall, seed, level), size)


def _checked(name: str, values: Sequence[float]) -> NDArray[np.float64]:
    data = np.asarray(values, np.float64)
    if data.ndim != 1 or not len(data) or not np.isfinite(data).all():
        raise ArgumentError(f"{name}: expected at least one finite value in one dimension, got {data.shape}")
    return data


def _mean(values: NDArray[np.float64], axis: int = -1) -> Any:
    return np.mean(values, axis=axis)


def _difference(first: NDArray[np.float64], second: NDArray[np.float64], axis: int = -1) -> Any:
    return np.mean(first, axis=axis) - np.mean(second, axis=axis)


def _bootstrap(
    samples: tuple[NDArray[np.float64], ...], statistic: Callable[..., Any], seed: int, level: float
) -> tuple[float, float]:
    try:
        from scipy.stats import bootstrap
    except ImportError as error:
        raise SettingsError(
            "an interval needs scipy, which is not installed; run: pip install 'prismem-core[statistics]'"
        ) from error
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            # Where the correction has no value the next method is taken, which is no concern of the user.
            warnings.simplefilter("ignore")
            found = bootstrap(
                samples,
                statistic,
                n_resamples=RESAMPLES,
                batch=max(1, _BATCH_BYTES // max(sample.nbytes for sample in samples)),
                confidence_level=level,
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        # The correction has no value where the resamples say nothing of skew, as with two values.
        if np.isfinite([found.low, found.high]).all():
            break
    return float(found.low), float(found.high)


def paired_interval(first: Sequence[float], second: Sequence[float], *, seed: int = 0) -> Interval:
    """The mean of `first - second`, value by value, with its interval; ArgumentError for unequal lengths."""
    if len(first) != len(second):
        raise ArgumentError(f"paired_interval: {len(first)} and {len(second)} values; expected pairs")
    return interval([a - b for a, b in zip(first, second, strict=True)], seed=seed)


def statistics_installed() -> bool:
    """Whether the extra `statistics`, which intervals need, is there."""
    from importlib.util import find_spec

    return find_spec("scipy") is not None
