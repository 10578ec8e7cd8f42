"""Which capability to refine next: the dependency graph of Eq. 1-6 (P section 3.1.2).

Axes: `s` and `p` run over the C capabilities in canonical order, `n` over the training tasks. `primary` is (n,) int,
`secondary` is (n, C) bool, `scores` is (C, n): row s holds the scores of s's specialist. Matrices are indexed `[p, s]`.
Empty sets give 0, diagonals of D, F and I are 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.evaluation.means import mean
from prismem_core.evolution.rounding import q
from prismem_core.tasks.capability import CAPABILITIES, Capability

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def dependency_base_rate(primary: Ints, secondary: Bools) -> Floats:
    """Eq. 1: D(p->s), the share of p's tasks that name s as secondary; (C, C)."""
    count = secondary.shape[1]
    rate = np.zeros((count, count))
    for p in range(count):
        mine = secondary[primary == p]
        if len(mine):
            rate[p] = mine.sum(axis=0) / len(mine)
        rate[p, p] = 0.0
    return rate


def specialist_error(primary: Ints, scores: Floats) -> Floats:
    """Eq. 2: the mean error of s's specialist on p's tasks; (C, C), diagonal included."""
    count = len(scores)
    errors = 1.0 - scores
    return np.array([[mean(errors[s, primary == p]) for s in range(count)] for p in range(count)])


def error_concentration(primary: Ints, secondary: Bools, scores: Floats) -> Floats:
    """Eq. 3: F(p->s), the share of that error which falls on tasks naming s; 0 where there is no error; (C, C)."""
    count = len(scores)
    errors = 1.0 - scores
    concentration = np.zeros((count, count))
    for p in range(count):
        for s in range(count):
            total = math.fsum(errors[s, primary == p])
            if p != s and total != 0:
                concentration[p, s] = math.fsum(errors[s, (primary == p) & secondary[:, s]]) / total
    return concentration


def incoming_pressure(error: Floats, concentration: Floats, base_rate: Floats) -> Floats:
    """Eq. 4: I(p->s) = error * max(F - D, 0); (C, C)."""
    pressure = error * np.maximum(concentration - base_rate, 0.0)
    np.fill_diagonal(pressure, 0.0)
    return pressure


def urgency(error: Floats, pressure: Floats) -> Floats:
    """Eq. 5: U(c), c's own error plus the largest pressure on it; (C,)."""
    count = len(error)
    return np.array(
        [error[c, c] + max((pressure[p, c] for p in range(count) if p != c), default=0.0) for c in range(count)]
    )


def priority(urgencies: Floats, counts: Ints) -> Floats:
    """Eq. 6: rho(c), discounted by the number of earlier refinements of c; (C,)."""
    return urgencies / (1.0 + counts)


def arg_max_priority(priorities: Floats, present: Bools) -> int:
    """The first capability of largest rounded priority among those `present`; ValueError if there is none."""
    candidates = np.flatnonzero(present)
    if len(candidates) == 0:
        raise ValueError("no capability has a training task, so none can be selected")
    return int(max(candidates, key=lambda c: (q(priorities[c]), -c)))


@dataclass(frozen=True)
class CapabilityChoice:
    """The selected capability and every term that led to it, for the journal."""

    capability: Capability
    base_rate: Floats
    error: Floats
    concentration: Floats
    pressure: Floats
    urgency: Floats
    priority: Floats
    counts: Ints

    @property
    def terms(self) -> dict[str, Any]:
        """Plain JSON: `D`, `e`, `F`, `I` as `[p][s]`, `U`, `rho` and `counts` by capability."""
        matrices = {"D": self.base_rate, "e": self.error, "F": self.concentration, "I": self.pressure}
        vectors = {"U": self.urgency, "rho": self.priority}
        return {
            **{
                name: {p: _by_name(row) for p, row in zip(CAPABILITIES, m, strict=True)} for name, m in matrices.items()
            },
            **{name: _by_name(vector) for name, vector in vectors.items()},
            "counts": {str(c): int(n) for c, n in zip(CAPABILITIES, self.counts, strict=True)},
        }


def select_capability(primary: Ints, secondary: Bools, scores: Floats, counts: Ints) -> CapabilityChoice:
    """Eq. 1-6 together; ties go to the earlier capability, capabilities without training tasks take no part."""
    base_rate = dependency_base_rate(primary, secondary)
    error = specialist_error(primary, scores)
    concentration = error_concentration(primary, secondary, scores)
    pressure = incoming_pressure(error, concentration, base_rate)
    urgencies = urgency(error, pressure)
    priorities = priority(urgencies, counts)
    present = np.array([bool((primary == c).any()) for c in range(len(counts))])
    chosen = CAPABILITIES[arg_max_priority(priorities, present)]
    return CapabilityChoice(chosen, base_rate, error, concentration, pressure, urgencies, priorities, counts)


def _by_name(vector: Floats) -> dict[str, float]:
    return {str(capability): float(value) for capability, value in zip(CAPABILITIES, vector, strict=True)}
