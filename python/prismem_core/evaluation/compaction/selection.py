"""Which spans of a text and which units are shown within a budget of characters (spec 5.4, 5.6, 5.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError
from prismem_core.evaluation.compaction.assembly import MARK, Assembly, assemble
from prismem_core.evaluation.compaction.spans import Span

Float64 = NDArray[np.float64]

# A mark on a line of its own, the least that a text which does not fit can be shown as.
MIN_BUDGET = len(MARK) + 1


@dataclass(frozen=True)
class Excerpt:
    """A text as it is shown: `order` has the kept spans as they were chosen (None: kept whole; empty: none fits, and a
    part of one is shown), `coverage` the value of the choice (None where there was none).
    """

    text: str
    order: tuple[int, ...] | None
    coverage: float | None


def excerpt(text: str, spans: Sequence[Span], relevance: Any, weights: Any, budget: int) -> Excerpt:
    """`text` within `budget` characters, marks counted: unchanged where it fits, else the spans that cover the cues.

    `relevance` (n, k) is that of the text's spans to the cues, `weights` (k,) those of the cues. Ties go to the lowest
    index. Where nothing fits, the beginning of the span that bears most on the cues is shown; a fence is never cut.
    Errors: ArgumentError for a budget of less than 6 characters.
    """
    if budget < MIN_BUDGET:
        raise ArgumentError(f"budget: expected at least {MIN_BUDGET} characters, got {budget}")
    if len(text) <= budget:
        return Excerpt(text, None, None)
    values, cue_weights = _checked(relevance, weights, len(spans))
    assembly = Assembly(spans)
    order = _greedy(values, cue_weights, lambda j: assembly.length_with(j) <= budget, assembly.add)
    if order:
        return Excerpt(assemble(spans, sorted(order)), tuple(order), coverage(values, cue_weights, order))
    return Excerpt(_beginning(spans, values @ cue_weights, budget), (), None)


def coverage(relevance: Any, weights: Any, kept: Iterable[int]) -> float:
    """`sum_k w_k (1 - prod_{j in kept} (1 - r_jk))`, what is maximised."""
    chosen = list(kept)
    values, cue_weights = _checked(relevance, weights, len(relevance))
    return float((cue_weights * (1 - np.prod(1 - values[chosen], axis=0))).sum())


def best_units(cosines: Any) -> list[int]:
    """The unit most like each snippet, ties to the lowest index, each unit once, in the order of the snippets.

    `cosines` has shape (units, snippets); no units: [].
    """
    columns = np.asarray(cosines, np.float64).T
    return list(dict.fromkeys(_first_largest(column) for column in columns if len(column)))


def select_units(units: Sequence[str], relevance: Any, weights: Any, cosines: Any, budget: int) -> list[int]:
    """Ascending positions of the units that are shown of a list of JSON texts.

    Repeats of a text are dropped. The unit most like each snippet (`cosines` (units, snippets)) is shown whatever its
    length; others follow by what they add to the coverage of the cues while the lengths, with one character between
    units, stay within `budget`.
    """
    first: dict[str, int] = {}
    for position, unit in enumerate(units):
        first.setdefault(unit, position)
    distinct = list(first.values())
    if not distinct:
        return []
    values, cue_weights = _checked(relevance, weights, len(units))
    always = best_units(np.asarray(cosines, np.float64)[distinct])
    lengths = [len(unit) for unit in first]
    used = sum(lengths[i] for i in always) + len(always) - 1

    def fits(i: int) -> bool:
        return used + 1 + lengths[i] <= budget

    def add(i: int) -> None:
        nonlocal used
        used += 1 + lengths[i]

    added = _greedy(values[distinct], cue_weights, fits, add, always)
    return sorted(distinct[i] for i in [*always, *added])


def _greedy(
    relevance: Float64,
    weights: Float64,
    fits: Callable[[int], bool],
    add: Callable[[int], None],
    shown: Iterable[int] = (),
) -> list[int]:
    """Positions in the order in which they are added to those `shown`: always the largest gain among what fits."""
    missing = np.ones(relevance.shape[1])
    left = np.ones(len(relevance), bool)
    for i in shown:
        missing = missing * (1 - relevance[i])
        left[i] = False
    weighted = relevance * weights
    order: list[int] = []
    while True:
        best = _best_gain(np.where(left, (weighted * missing).sum(axis=1), 0.0), fits)
        if best is None:
            return order
        add(best)
        order.append(best)
        left[best] = False
        missing = missing * (1 - relevance[best])


def _best_gain(gains: Float64, fits: Callable[[int], bool]) -> int | None:
    """Of the positions that fit the one of the largest gain, rounded; None where none gains."""
    best: int | None = None
    for i in map(int, np.argsort(-gains, kind="stable")):
        # From the first that fits on only those may equal it whose gain differs by less than rounding hides.
        if _q(gains[i]) <= 0 or (best is not None and gains[i] < gains[best] - 2e-9):
            break
        if (best is None or (-_q(gains[i]), i) < (-_q(gains[best]), best)) and fits(i):
            best = i
    return best


def _beginning(spans: Sequence[Span], values: Float64, budget: int) -> str:
    unfenced = [i for i, span in enumerate(spans) if not span.fence]
    if not unfenced:
        return MARK
    best = spans[unfenced[_first_largest(values[unfenced])]]
    return f"{(best.role + best.text)[: budget - MIN_BUDGET]}\n{MARK}"


def _first_largest(values: Float64) -> int:
    rounded = [_q(value) for value in values]
    return rounded.index(max(rounded))


def _q(value: float) -> float:
    return round(float(value), 9)


def _checked(relevance: Any, weights: Any, rows: int) -> tuple[Float64, Float64]:
    values, own = np.asarray(relevance, np.float64), np.asarray(weights, np.float64)
    if own.ndim != 1 or values.shape != (rows, len(own)):
        raise ArgumentError(
            f"relevance: expected shape ({rows}, {own.size}), a row for each text and a column for each cue weight, "
            f"got {values.shape}"
        )
    return values, own
