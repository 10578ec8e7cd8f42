"""The scores that may drive selection: the offline score of the embedded default, or a judge's verdict as in the
paper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prismem_core.evaluation.offline_score import DatasetStats, dataset_stats, offline_score
from prismem_core.pipeline.trace import Trace
from prismem_core.roles.protocols import Judge, ScoresAll, Verdict
from prismem_core.tasks.task import Dataset, Task


@dataclass(frozen=True)
class Scored:
    """A selection score in [0, 1], None when a judge could not be read; `parts` go into reports."""

    score: float | None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A task with its finished trace and that of its twin, if any."""

    task: Task
    trace: Trace
    twin: Trace | None = None


class Scoring(Protocol):
    """Turns finished traces into the scores that drive selection, as one batch, in their order.

    `whole_replies` says that it grades all of an answer; others get its first words (`Dataset.reply_words`).
    `needs_twins` says that it looks at the twins' answers, so that these must be had.
    """

    identity: str
    whole_replies: bool
    needs_twins: bool

    def score_all(self, finished: Sequence[Finished]) -> list[Scored]: ...


class JudgeScoring:
    """The judge's verdict on the answer alone is the score, as in the paper.

    A model is shown whole answers, as the benchmarks do; metrics that count words are won by many of them.
    """

    needs_twins = False

    def __init__(self, judge: Judge | ScoresAll) -> None:
        self.identity = f"judge score ({judge.identity})"
        self.whole_replies = isinstance(judge, ScoresAll)
        self._judge = judge

    def score_all(self, finished: Sequence[Finished]) -> list[Scored]:
        """The judge's scores of the answers."""
        verdicts = verdicts_of(self._judge, [(one.task, one.trace.answer) for one in finished])
        return [Scored(verdict.score, verdict.parts) for verdict in verdicts]


class OfflineScoring:
    """The offline score: half answer, half retrieved evidence, abstaining rewarded only where the twin is answered.

    What it must know of the data set comes from the tasks of the ids `known`, by default from all.
    """

    identity = "offline score"
    whole_replies = False
    needs_twins = True

    def __init__(self, dataset: Dataset, known: Collection[str] | None = None) -> None:
        self._stats = dataset_stats(dataset, known)

    def score_all(self, finished: Sequence[Finished]) -> list[Scored]:
        """The offline scores of the answers and the retrieved texts."""
        return [_offline(one, self._stats) for one in finished]


def verdicts_of(judge: Judge | ScoresAll, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
    """The verdicts on pairs of task and answer, as one batch where the judge takes one."""
    if isinstance(judge, ScoresAll):
        return judge.score_all(pairs)
    return [judge.score(task, answer) for task, answer in pairs]


def _offline(one: Finished, stats: DatasetStats) -> Scored:
    twin = one.twin.answer if one.twin else None
    result = offline_score(one.task, one.trace.answer, one.trace.retrieved, twin, stats)
    parts = {"f1": result.f1, "abstained": float(result.abstained)}
    if result.recall is not None:
        parts["recall"] = result.recall
    return Scored(result.score, parts)
