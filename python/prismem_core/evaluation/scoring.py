"""The scores that may drive selection: the offline score of the embedded default, or a judge's verdict as in the
paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prismem_core.evaluation.offline_score import dataset_stats, offline_score
from prismem_core.pipeline.trace import Trace
from prismem_core.roles.protocols import Judge
from prismem_core.tasks.task import Dataset, Task


@dataclass(frozen=True)
class Scored:
    """A selection score in [0, 1], None when a judge could not be read; `parts` go into reports."""

    score: float | None
    parts: Mapping[str, float] = field(default_factory=dict)


class Scoring(Protocol):
    """Turns a finished trace into the score that drives selection; `twin` is the trace of the task's twin, if any."""

    identity: str

    def score(self, task: Task, trace: Trace, twin: Trace | None) -> Scored: ...


class JudgeScoring:
    """The judge's verdict on the answer alone is the score, as in the paper."""

    def __init__(self, judge: Judge) -> None:
        self.identity = f"judge score ({judge.identity})"
        self._judge = judge

    def score(self, task: Task, trace: Trace, twin: Trace | None) -> Scored:
        """The judge's score of the answer."""
        verdict = self._judge.score(task, trace.answer)
        return Scored(verdict.score, verdict.parts)


class OfflineScoring:
    """The offline score: half answer, half retrieved evidence, abstaining rewarded only where the twin is answered."""

    identity = "offline score"

    def __init__(self, dataset: Dataset) -> None:
        self._stats = dataset_stats(dataset)

    def score(self, task: Task, trace: Trace, twin: Trace | None) -> Scored:
        """The offline score of the answer and the retrieved text."""
        result = offline_score(task, trace.answer, trace.retrieved, twin.answer if twin else None, self._stats)
        parts = {"f1": result.f1, "abstained": float(result.abstained)}
        if result.recall is not None:
            parts["recall"] = result.recall
        return Scored(result.score, parts)
