"""A case: everything a designer may see of one program on one training task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prismem_core.tasks.capability import Capability


@dataclass(frozen=True)
class TaskDiagnostics:
    """Eq. 9-11 of one task: how well evidence is extracted, found when asked for itself, and found for the question.

    `d_ext` is None where no snippet maps to a segment.
    """

    d_ext: float | None
    d_idx: float | None
    d_ret: float | None


@dataclass(frozen=True)
class EvidenceView:
    """One distinct evidence snippet, the text of its source segment and the units (JSON texts) extracted from it."""

    snippet: str
    original_text: str
    extracted_as: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One program on one task.

    `score` is the one that selection uses, in [0, 1]. `diagnostics` is None for a task without evidence. `query_plan`
    is the Query the program was given.
    """

    task_id: str
    primary: Capability
    secondary: tuple[Capability, ...]
    question: str
    reference: str
    predicted: str
    score: float
    diagnostics: TaskDiagnostics | None
    query_plan: Mapping[str, Any]
    retrieved_text: str
    evidence: tuple[EvidenceView, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
