"""Run a program on tasks and score it: the selection score, the official metric beside it, and evidence recall."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from prismem_core.errors import DataError, FailureKind, failure_kind
from prismem_core.evaluation.judge import cut_reply
from prismem_core.evaluation.metrics import evidence_recall
from prismem_core.evaluation.scoring import Finished, Scored, Scoring, verdicts_of
from prismem_core.pipeline.pipeline import ExtractedHistory, Pipeline, PipelineResult
from prismem_core.pipeline.stage_clock import StageClock
from prismem_core.pipeline.structured import without_reasoning
from prismem_core.pipeline.trace import Defect, Failure, StageUsage, Trace
from prismem_core.program.program import Program
from prismem_core.roles.protocols import Judge, Verdict
from prismem_core.tasks.history import History
from prismem_core.tasks.task import Dataset, Task

Runs = Callable[[Mapping[str, History], Sequence[tuple[str, str]]], PipelineResult]
"""What answers questions, pairs of (history id, question), as `Pipeline.run` does for a program."""


@dataclass(frozen=True)
class Outcome:
    """One task: the selection score, the official verdict, evidence recall (None without evidence) and the trace.

    `failure` is why it has none of them: that of its trace, or of its twin's where the score looks at twins.
    """

    task: Task
    scored: Scored
    official: Verdict
    recall: float | None
    trace: Trace
    failure: Failure | None = None

    @property
    def left_out(self) -> FailureKind | None:
        """Why the task is in no mean of scores, None where it has a score."""
        if self.failure is not None:
            return failure_kind(self.failure.kind)
        return "judge" if self.scored.score is None else None

    def to_dict(self) -> dict[str, Any]:
        """A JSON row for reports; the retrieved text counts by its length."""
        failure = self.failure
        return {
            "task": self.task.id,
            "primary": str(self.task.primary),
            "native_type": self.task.native_type,
            "answerable": not self.task.expects_abstention,
            "question": self.task.question,
            "reference": self.task.reference,
            "answer": self.trace.answer,
            "query": dict(self.trace.query),
            "retrieved_chars": len(self.trace.retrieved),
            "score": self.scored.score,
            "parts": dict(self.scored.parts),
            "official": self.official.score,
            "official_parts": dict(self.official.parts),
            "recall": self.recall,
            **({"defect": self.trace.defect} if self.trace.defect else {}),
            "left_out": self.left_out,
            "failure": None
            if failure is None
            else {"stage": failure.stage, "kind": failure.kind, "message": failure.message},
        }


@dataclass(frozen=True)
class Evaluation:
    """Outcomes by task id in task-list order; `failure` is the first failing task's, and then the set has no score."""

    outcomes: Mapping[str, Outcome]
    failure: tuple[str, Failure] | None
    usage: StageUsage
    dropped_units: int
    unread_segments: int
    extracted: Mapping[str, ExtractedHistory]

    @property
    def scores(self) -> dict[str, float]:
        """Scores of the tasks that got one."""
        return {i: o.scored.score for i, o in self.outcomes.items() if o.scored.score is not None}

    @property
    def unscored(self) -> tuple[str, ...]:
        """Ids of the tasks whose answer a judge could not be read on: no fault of the program, and never a zero."""
        return tuple(i for i, o in self.outcomes.items() if o.left_out == "judge")

    @property
    def extraction_faults(self) -> list[str]:
        """What of the replies to extraction could not be used, by history and segment (from 1), one line a fault."""
        lines = []
        for history_id, history in self.extracted.items():
            for number, extraction in enumerate(history.extractions.values(), start=1):
                faults = (extraction.problem, *extraction.faults) if extraction.problem else extraction.faults
                lines += [f"{history_id}, segment {number}: {fault}" for fault in faults]
        return lines

    def defects(self, defect: Defect) -> int:
        """How many answers are kept although they are `empty` or `cut`."""
        return sum(outcome.trace.defect == defect for outcome in self.outcomes.values())


@dataclass(frozen=True)
class Answers:
    """What a program said: traces by task id, the extracted histories by id and the logical usage."""

    traces: Mapping[str, Trace]
    histories: Mapping[str, ExtractedHistory]
    usage: StageUsage


class Evaluator:
    """Evaluates programs on the tasks of one data set.

    `judge` gives the official verdict that is shown beside the score, of an answer's first words.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        dataset: Dataset,
        judge: Judge,
        scoring: Scoring,
        clock: StageClock | None = None,
    ) -> None:
        self._clock = clock or StageClock()
        self.pipeline = pipeline
        self.dataset = dataset
        self.scoring = scoring
        self._official = judge
        self._tasks = {task.id: task for task in dataset.tasks}

    def tasks(self, task_ids: Sequence[str]) -> list[Task]:
        """The tasks of these ids; raises DataError for an unknown one."""
        unknown = [i for i in task_ids if i not in self._tasks]
        if unknown:
            raise DataError(f"data set {self.dataset.name!r} has no task {unknown[0]!r}")
        return [self._tasks[i] for i in task_ids]

    def evaluate(self, program: Program, task_ids: Sequence[str], *, every: bool = False) -> Evaluation:
        """Outcomes of `task_ids`; where the score looks at twins, those outside the set are run too, but only their
        answers count.

        A set with a failure has no score, so that the questions after it on the same history are not tried: they
        share it. For a report, which shows those that ran, `every` question is tried.

        Raises ProgramError for a program that does not load, RoleError when a model fails.
        """
        return self.evaluate_runs(partial(self.pipeline.run, program, every=every), task_ids)

    def evaluate_runs(self, run: Runs, task_ids: Sequence[str]) -> Evaluation:
        """`evaluate` for whatever answers questions of histories, be it a program or not."""
        tasks, asked = self.with_twins(task_ids)
        answers = self._answers(run, asked)
        return self.score(tasks, answers.traces, answers.usage, answers.histories)

    def with_twins(self, task_ids: Sequence[str]) -> tuple[list[Task], list[Task]]:
        """The tasks of these ids, and all that must be asked to score them: the same and the twins outside the set."""
        tasks = self.tasks(task_ids)
        asked = {task.id: task for task in tasks}
        for task in tasks:
            if task.twin is not None and self.scoring.needs_twins:
                asked.setdefault(task.twin, self._tasks[task.twin])
        return tasks, list(asked.values())

    def answer(self, program: Program, tasks: Sequence[Task], *, every: bool = False) -> Answers:
        """A program's traces of the tasks, not scored yet; raises as `evaluate`."""
        return self._answers(partial(self.pipeline.run, program, every=every), tasks)

    def _answers(self, run: Runs, tasks: Sequence[Task]) -> Answers:
        result = run(self.dataset.histories, [(task.history_id, task.asked) for task in tasks])
        traces = {task.id: self._plain(trace) for task, trace in zip(tasks, result.traces, strict=True)}
        return Answers(traces, result.histories, result.usage)

    def score(
        self,
        tasks: Sequence[Task],
        traces: Mapping[str, Trace],
        usage: StageUsage,
        extracted: Mapping[str, ExtractedHistory],
    ) -> Evaluation:
        """The evaluation of tasks that were answered, by whichever programs; `traces` has those of their twins, too."""
        with self._clock.stage("score"):
            outcomes = self._outcomes(tasks, traces)
        failure = None
        for task in tasks:
            broken = self._failure(task, traces)
            if failure is None and broken is not None:
                failure = (task.id, broken)
        extractions = [e for h in extracted.values() for e in h.extractions.values()]
        return Evaluation(
            outcomes,
            failure,
            usage,
            sum(e.dropped for e in extractions),
            sum(bool(e.problem) for e in extractions),
            extracted,
        )

    def _plain(self, trace: Trace) -> Trace:
        # Reasoning quotes the retrieved text, which whoever grades must not see.
        said = without_reasoning(trace.answer)
        return replace(trace, answer=said if self.scoring.whole_replies else self._first_words(said))

    def _first_words(self, answer: str) -> str:
        return cut_reply(answer, self.dataset.reply_words)

    def _failure(self, task: Task, traces: Mapping[str, Trace]) -> Failure | None:
        twin = traces.get(task.twin or "") if self.scoring.needs_twins else None
        return traces[task.id].failure or (twin.failure if twin is not None else None)

    def _outcomes(self, tasks: Sequence[Task], traces: Mapping[str, Trace]) -> dict[str, Outcome]:
        """Outcomes in the order of `tasks`, all answers scored as one batch."""
        failures = {task.id: self._failure(task, traces) for task in tasks}
        whole = [task for task in tasks if failures[task.id] is None]
        scored = self.scoring.score_all(
            [Finished(task, traces[task.id], traces.get(task.twin or "")) for task in whole]
        )
        official = verdicts_of(self._official, [(t, self._first_words(traces[t.id].answer)) for t in whole])
        graded = {task.id: (a, b) for task, a, b in zip(whole, scored, official, strict=True)}
        outcomes = {}
        for task in tasks:
            trace = traces[task.id]
            score, verdict = graded.get(task.id, (Scored(None), Verdict(None)))
            failure = failures[task.id]
            recall = evidence_recall(task.evidence, trace.retrieved) if failure is None else None
            outcomes[task.id] = Outcome(task, score, verdict, recall, trace, failure)
        return outcomes
