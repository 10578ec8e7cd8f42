"""Evidence diagnostics: how far extraction, indexing and retrieval preserve the evidence (P A.2, Eq. 8-11)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core import ops
from prismem_core.evaluation.cases import TaskDiagnostics
from prismem_core.evaluation.diagnostics_table import DiagnosticsRow, DiagnosticsTable, Lengths
from prismem_core.evaluation.means import mean_or_none
from prismem_core.ops.screened import Screen
from prismem_core.tasks.capability import CAPABILITIES, Capability

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class EvidenceVectors:
    """Embeddings around one distinct snippet: `units` of its source segment (None: it maps to no segment) and
    `oracle` blocks.
    """

    vector: Matrix
    units: Matrix | None
    oracle: Matrix


@dataclass(frozen=True)
class TaskVectors:
    """The distinct snippets of a task and the `retrieved` blocks (n, d) of its real question."""

    evidence: tuple[EvidenceVectors, ...]
    retrieved: Matrix


def unit_json(unit: Mapping[str, Any]) -> str:
    """The text a unit is embedded and measured as."""
    return json.dumps(dict(unit), ensure_ascii=False)


def normalised(rows: Matrix) -> Matrix:
    """Rows scaled to length 1 in float32; a zero row stays zero."""
    wide = np.asarray(rows, np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    scaled: Matrix = np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0).astype(np.float32)
    return scaled


def diagnose_tasks(
    tasks: Sequence[TaskVectors], dimension: int, screen: Screen | None = None
) -> list[TaskDiagnostics | None]:
    """Eq. 9-11 of every task, all evidences of all tasks in one grouped launch; None for a task without evidence.

    Rows need not have length 1. A snippet that maps to no segment is left out of `d_ext` only; without any mapped
    snippet `d_ext` is None. An empty set has similarity 0. `screen` searches the sets, on the CPU by default.
    """
    evidence: list[Matrix] = []
    items: list[Matrix] = []
    groups: list[int] = []
    sets: list[tuple[int, int]] = []
    offset = 0

    def add_set(rows: Matrix) -> int:
        nonlocal offset
        sets.append((offset, offset + len(rows)))
        items.append(rows)
        offset += len(rows)
        return len(sets) - 1

    extents: list[tuple[int, int, int]] = []
    for task in tasks:
        retrieved = add_set(task.retrieved)
        first = len(groups)
        for chosen in ("units", "oracle"):
            for piece in task.evidence:
                rows = getattr(piece, chosen)
                if rows is not None:
                    evidence.append(piece.vector)
                    groups.append(add_set(rows))
        mapped = sum(piece.units is not None for piece in task.evidence)
        for piece in task.evidence:
            evidence.append(piece.vector)
            groups.append(retrieved)
        extents.append((first, mapped, len(task.evidence)))
    if not groups:
        return [None] * len(tasks)
    values, _ = (screen or Screen()).segment_max_similarity(
        normalised(np.stack(evidence)),
        normalised(np.concatenate(items)) if offset else np.zeros((0, dimension), np.float32),
        ops.Segments.grouped(np.asarray(sets, np.int64), np.asarray(groups, np.int64)),
    )
    offsets = [0]
    for first, mapped, count in extents:
        offsets += [first + mapped, first + mapped + count, first + mapped + 2 * count]
    means = ops.segment_mean(values, np.asarray(offsets, np.int64)).reshape(len(tasks), 3)
    result: list[TaskDiagnostics | None] = []
    for task, row in zip(tasks, means, strict=True):
        d_ext, d_idx, d_ret = (None if math.isnan(value) else float(value) for value in row)
        result.append(TaskDiagnostics(d_ext, d_idx, d_ret) if task.evidence else None)
    return result


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
