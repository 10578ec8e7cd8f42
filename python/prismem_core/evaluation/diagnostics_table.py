"""The diagnostics of a program on the training tasks, one row a capability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismem_core.tasks.capability import Capability


@dataclass(frozen=True)
class Lengths:
    """Mean characters of a unit's JSON text and of a retrieved text; 0 where there is none."""

    chars_per_unit: float
    retrieved_chars: float


@dataclass(frozen=True)
class DiagnosticsRow:
    """Training tasks of one primary capability: their number, mean score and the means of Eq. 9-11 (None: no value)."""

    n_tasks: int
    accuracy: float
    d_ext: float | None
    d_idx: float | None
    d_ret: float | None


@dataclass(frozen=True)
class DiagnosticsTable:
    """Rows in canonical order of the capabilities that have training tasks."""

    rows: Mapping[Capability, DiagnosticsRow]
    lengths: Lengths
