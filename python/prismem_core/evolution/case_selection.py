"""Which training tasks a designer sees (P section 3.1.2, Eq. 7).

Arrays run over the training tasks in task-list order, which settles ties.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prismem_core.evaluation.means import mean
from prismem_core.evolution.rounding import q

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def eligible_cases(member: Bools, current: Floats, delta: float) -> Bools:
    """Tasks of the set `member` whose score is below delta; a score of exactly delta is not eligible; (n,)."""
    return np.array(
        [bool(inside) and q(score) < q(delta) for inside, score in zip(member, current, strict=True)], dtype=bool
    )


def case_weights(history: Floats, times_selected: Ints, times_combination: Ints) -> Floats:
    """Eq. 7: w(i) = (1 + h(i)) / ((1 + m(i)) (1 + m(phi))); (n,).

    `history` is (programs, n): scores of the target's history programs, whose mean h is 0 where there are none.
    `times_combination` counts earlier selections with exactly the task's set of secondaries.
    """
    h = np.array([mean(column) for column in history.T]) if len(history) else np.zeros(len(times_selected))
    return (1.0 + h) / ((1.0 + times_selected) * (1.0 + times_combination))


def combination_counts(secondary: Bools, batches: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """How often each task, and each task's exact set of secondaries, stood in the batches of positions; (n,), (n,)."""
    times_selected = np.zeros(len(secondary), dtype=np.int64)
    times_combination = np.zeros(len(secondary), dtype=np.int64)
    for position in (position for batch in batches for position in batch):
        times_selected[position] += 1
        times_combination += (secondary == secondary[position]).all(axis=1)
    return times_selected, times_combination


def select_cases(eligible: Bools, weights: Floats, current: Floats, k: int) -> list[int]:
    """The first k eligible positions by weight descending, score ascending, position ascending."""
    positions = np.flatnonzero(eligible)
    return [int(i) for i in sorted(positions, key=lambda i: (-q(weights[i]), q(current[i]), i))[:k]]


def weakest_cases(eligible: Bools, current: Floats, k: int) -> list[int]:
    """The k eligible positions of lowest score (strategy `holistic`)."""
    return select_cases(eligible, np.ones(len(current)), current, k)


def representative_cases(primary: Ints, eligible: Bools, times_shown: Ints, current: Floats, count: int) -> list[int]:
    """Stage I: for each of the `count` capabilities its least shown, then weakest, then first eligible task."""
    chosen = []
    for capability in range(count):
        positions = np.flatnonzero(eligible & (primary == capability))
        if len(positions):
            chosen.append(int(min(positions, key=lambda i: (times_shown[i], q(current[i]), i))))
    return chosen
