"""Evidence diagnostics: how far extraction, indexing and retrieval preserve the evidence (P A.2, Eq. 8-11)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prismem_core import ops
from prismem_core.arrays import foreign
from prismem_core.evaluation.cases import TaskDiagnostics
from prismem_core.evaluation.diagnostics_table import DiagnosticsRow, DiagnosticsTable, Lengths
from prismem_core.evaluation.means import mean_or_none
from prismem_core.ops.screened import Screen
from prismem_core.tasks.capability import CAPABILITIES, Capability

LAUNCH_BYTES = 2 << 30


@dataclass(frozen=True)
class EvidenceRows:
    """Rows of an embedding matrix around one distinct snippet: its own, the `units` of its source segment (None: it
    maps to no segment) and the `oracle` blocks.
    """

    row: int
    units: tuple[int, ...] | None
    oracle: tuple[int, ...]


@dataclass(frozen=True)
class TaskRows:
    """The distinct snippets of a task and the rows of the `retrieved` blocks of its real question."""

    evidence: tuple[EvidenceRows, ...]
    retrieved: tuple[int, ...]


def unit_json(unit: Mapping[str, Any]) -> str:
    """The text a unit is embedded and measured as."""
    return json.dumps(dict(unit), ensure_ascii=False)


def normalised(rows: Any) -> Any:
    """Rows scaled to length 1 in float32, in the caller's library and place; a zero row stays zero."""
    if isinstance(rows, np.ndarray):
        wide = np.asarray(rows, np.float64)
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        return np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0).astype(np.float32)
    wide = foreign.cast(rows, "float64")
    norms = (wide * wide).sum(1) ** 0.5
    return foreign.cast(wide / (norms + (norms == 0))[:, None], "float32")


def diagnose_tasks(
    tasks: Sequence[TaskRows], matrix: Any, screen: Screen | None = None, *, launch_bytes: int = LAUNCH_BYTES
) -> list[TaskDiagnostics | None]:
    """Eq. 9-11 of every task over rows of `matrix` (n, d); None for a task without evidence.

    The three sets of all evidences of all tasks are searched in one grouped launch, where the matrix lies: an array of
    torch or cupy on a device stays there. Only where the gathered sets would take more than `launch_bytes` are there
    several. Rows need not have length 1. A snippet that maps to no segment is left out of `d_ext` only; without any
    mapped snippet `d_ext` is None. An empty set has similarity 0. `screen` searches arrays of numpy, on the CPU by
    default.
    """
    unit = normalised(matrix)
    result: list[TaskDiagnostics | None] = []
    for launch in _launches(tasks, launch_bytes // max(1, 4 * unit.shape[1])):
        result += _diagnose(launch, unit, screen or Screen())
    return result


def _launches(tasks: Sequence[TaskRows], most: int) -> Iterator[Sequence[TaskRows]]:
    """Runs of tasks whose sets have at most so many rows, or one task."""
    first = count = 0
    for i, task in enumerate(tasks):
        own = len(task.retrieved) + sum(len(piece.units or ()) + len(piece.oracle) for piece in task.evidence)
        if i > first and count + own > most:
            yield tasks[first:i]
            first, count = i, 0
        count += own
    if first < len(tasks):
        yield tasks[first:]


def _diagnose(tasks: Sequence[TaskRows], unit: Any, screen: Screen) -> list[TaskDiagnostics | None]:
    evidence: list[int] = []
    groups: list[int] = []
    sets: dict[tuple[int, ...], int] = {}  # evidence that is compared with the same set shares its group
    offsets = [0]
    for task in tasks:
        mapped = [piece for piece in task.evidence if piece.units is not None]
        compared = (
            [(piece.row, piece.units or ()) for piece in mapped],
            [(piece.row, piece.oracle) for piece in task.evidence],
            [(piece.row, task.retrieved) for piece in task.evidence],
        )
        for pairs in compared:
            evidence += [row for row, _ in pairs]
            groups += [sets.setdefault(chosen, len(sets)) for _, chosen in pairs]
            offsets.append(len(evidence))
    if not evidence:
        return [None] * len(tasks)
    ends = np.cumsum([len(chosen) for chosen in sets], dtype=np.int64)
    ranges = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1)
    search = screen.segment_max_similarity if isinstance(unit, np.ndarray) else ops.segment_max_similarity
    values, _ = search(
        _gathered(unit, evidence),
        _gathered(unit, [row for chosen in sets for row in chosen]),
        ops.Segments.grouped(ranges, np.asarray(groups, np.int64)),
    )
    means = foreign.to_host(ops.segment_mean(values, np.asarray(offsets, np.int64))).reshape(len(tasks), 3)
    result: list[TaskDiagnostics | None] = []
    for task, row in zip(tasks, means, strict=True):
        d_ext, d_idx, d_ret = (None if math.isnan(value) else float(value) for value in row)
        result.append(TaskDiagnostics(d_ext, d_idx, d_ret) if task.evidence else None)
    return result


def _gathered(matrix: Any, rows: Sequence[int]) -> Any:
    return foreign.taken(matrix, np.asarray(rows, np.int64))


def diagnostics_table(
    primaries: Sequence[Capability],
    scores: Sequence[float],
    diagnostics: Sequence[TaskDiagnostics | None],
    lengths: Lengths,
) -> DiagnosticsTable:
    """One row a capability that has tasks; tasks without a value are left out of that mean."""
    rows = {}
    for capability in CAPABILITIES:
        own = [i for i, primary in enumerate(primaries) if primary == capability]
        if not own:
            continue
        found = [d for i in own if (d := diagnostics[i]) is not None]
        rows[capability] = DiagnosticsRow(
            len(own),
            math.fsum(scores[i] for i in own) / len(own),
            mean_or_none([d.d_ext for d in found if d.d_ext is not None]),
            mean_or_none([d.d_idx for d in found if d.d_idx is not None]),
            mean_or_none([d.d_ret for d in found if d.d_ret is not None]),
        )
    return DiagnosticsTable(rows, lengths)


def measure_lengths(units: Sequence[Mapping[str, Any]], retrieved: Sequence[str]) -> Lengths:
    """Mean characters of the units' JSON texts and of the retrieved texts; 0 for none."""
    per_unit = [float(len(unit_json(unit))) for unit in units]
    per_text = [float(len(text)) for text in retrieved]
    return Lengths(mean_or_none(per_unit) or 0.0, mean_or_none(per_text) or 0.0)
