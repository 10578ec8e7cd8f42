"""How far two judges agree: the share of equal scores and Cohen's kappa with its interval."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prismem_core.errors import ArgumentError, SettingsError
from prismem_core.evaluation.means import mean_or_none

DECIMALS = 9
MOST_CLASSES = 6
_QUARTERS = 4


@dataclass(frozen=True)
class Confusion:
    """Counts by the scores of the first judge (rows) and the second (columns); `rounded` to quarters where the scores
    are too many to be shown.
    """

    scores: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    rounded: bool


@dataclass(frozen=True)
class Agreement:
    """Agreement on `n` answers: `agreement` is the share of equal scores, `difference` the mean distance of the scores.

    `kappa` is Cohen's, in [-1, 1]; `weighted` where scores between 0 and 1 occur: a disagreement then counts by its
    distance (linear weights). `low` and `high` are its 95 % interval (large-sample). What cannot be told is None, and
    `note` says why.
    """

    n: int
    agreement: float | None
    difference: float | None
    kappa: float | None
    low: float | None
    high: float | None
    weighted: bool
    note: str
    confusion: Confusion

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def agreement(first: Sequence[float], second: Sequence[float]) -> Agreement:
    """The agreement of two judges, A and B: their scores in [0, 1] of the same answers, in the same order.

    Raises ArgumentError for unequal lengths or scores out of range, SettingsError where statsmodels is missing.
    """
    if len(first) != len(second):
        raise ArgumentError(f"the judges scored {len(first)} and {len(second)} answers; expected the same number")
    left, right = ([_checked(score) for score in scores] for scores in (first, second))
    pairs = list(zip(left, right, strict=True))
    classes = sorted({*left, *right})
    weighted = any(score not in (0.0, 1.0) for score in classes)
    kappa, low, high, note = _kappa(pairs, classes, weighted)
    return Agreement(
        len(pairs),
        mean_or_none(a == b for a, b in pairs),
        mean_or_none(abs(a - b) for a, b in pairs),
        kappa,
        low,
        high,
        weighted,
        note,
        _confusion(pairs, classes),
    )


def _checked(score: float) -> float:
    if not 0.0 <= score <= 1.0:
        raise ArgumentError(f"a score is {score!r}; expected a number from 0 to 1")
    return round(float(score), DECIMALS)


def _kappa(
    pairs: Sequence[tuple[float, float]], classes: Sequence[float], weighted: bool
) -> tuple[float | None, float | None, float | None, str]:
    if len(pairs) < 2:
        return None, None, None, f"kappa needs at least 2 answers that both judged; there is {len(pairs) or 'none'}"
    if len(classes) == 1:
        return None, None, None, f"both judges gave {classes[0]:g} throughout, so kappa is not defined"
    for name, scores in (("A", {a for a, _ in pairs}), ("B", {b for _, b in pairs})):
        if len(scores) == 1:
            said = f"judge {name} gave {min(scores):g} throughout, so kappa is 0 whatever the other gave"
            return 0.0, None, None, said
    if all(a == b for a, b in pairs):
        return 1.0, None, None, "the judges agree throughout, so kappa has no interval"
    try:
        from statsmodels.stats.inter_rater import cohens_kappa  # type: ignore[import-untyped]
    except ImportError:
        raise SettingsError(
            "kappa needs statsmodels, which is not installed; install it with: pip install 'prismem-core[statistics]'"
        ) from None
    counts = Counter(pairs)
    table = [[counts[a, b] for b in classes] for a in classes]
    found = cohens_kappa(table, weights=list(classes), wt="linear") if weighted else cohens_kappa(table)
    low, high = float(found.kappa_low), float(found.kappa_upp)
    if not math.isfinite(low) or not math.isfinite(high):
        return float(found.kappa), None, None, "the interval of kappa cannot be estimated from so few answers"
    return float(found.kappa), max(-1.0, low), min(1.0, high), ""


def _confusion(pairs: Sequence[tuple[float, float]], classes: Sequence[float]) -> Confusion:
    rounded = len(classes) > MOST_CLASSES
    if rounded:
        pairs = [(_quarter(a), _quarter(b)) for a, b in pairs]
        classes = [step / _QUARTERS for step in range(_QUARTERS + 1)]
    counts = Counter(pairs)
    return Confusion(tuple(classes), tuple(tuple(counts[a, b] for b in classes) for a in classes), rounded)


def _quarter(score: float) -> float:
    """The nearest quarter, the upper of two that are as near."""
    return math.floor(score * _QUARTERS + 0.5) / _QUARTERS
