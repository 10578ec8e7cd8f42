"""The memory of a run: a fold over its events, from which every decision is taken.

The archive holds no truth of its own: applying the journal's events to an empty one gives it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import RunError
from prismem_core.evolution import gates
from prismem_core.runs.events import (
    Accepted,
    CapabilitySelected,
    CasesSelected,
    Diagnosed,
    Evaluated,
    Event,
    IntegrationPlanned,
    IterationFinished,
    ProgramAdded,
    Rejected,
    Revised,
    RunFinished,
    RunStarted,
    SpecialistsChanged,
)
from prismem_core.tasks.capability import CAPABILITIES, Capability


@dataclass(frozen=True)
class TaskLabel:
    """A task as decisions see it."""

    id: str
    primary: Capability
    secondary: tuple[Capability, ...]


@dataclass
class ProgramRecord:
    """A valid program; `scores` holds what was measured, `full` whether train and valid were measured whole.

    `means` remembers mean scores by the tasks they run over, until more is measured.
    """

    id: str
    iteration: int
    parent: str | None
    source: str
    summary: str
    components: tuple[str, ...]
    scores: dict[str, float] = field(default_factory=dict)
    full: bool = False
    means: dict[tuple[str, ...], float] = field(default_factory=dict, compare=False, repr=False)


@dataclass
class AttemptRecord:
    """A reply of the coder; `reason` is empty until it was rejected, and stays so if it was accepted."""

    iteration: int
    number: int
    parent: str
    summary: str
    code: str
    details: Mapping[str, Any]
    program: str | None = None
    accepted: bool = False
    reason: str = ""
    message: str = ""


@dataclass
class IterationRecord:
    """What an iteration decided; `reason` is that of its last rejection, `finished` comes with its last event."""

    iteration: int
    selected: CapabilitySelected | None = None
    cases: CasesSelected | None = None
    diagnosed: Diagnosed | None = None
    attempts: list[AttemptRecord] = field(default_factory=list)
    reason: str = ""
    finished: IterationFinished | None = None

    @property
    def target(self) -> str | None:
        """The target capability of a stage II iteration."""
        return self.selected.target if self.selected else None


class Archive:
    """Programs, labels, specialists and counts after some events."""

    def __init__(self, events: Iterable[Event] = (), *, overall_set: str = "valid") -> None:
        self.overall_set = overall_set
        self.started: RunStarted | None = None
        self._label((), ())
        self.programs: dict[str, ProgramRecord] = {}
        self.working: list[str] = []
        self.retained: list[str] = []
        self.specialists: dict[str, str] = {}
        self.best: str | None = None
        self.iterations: dict[int, IterationRecord] = {}
        self.plan: IntegrationPlanned | None = None
        self.finished: RunFinished | None = None
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Take one event in; RunError for an event about a program nobody added."""
        match event:
            case RunStarted():
                self.started = event
                self.overall_set = event.settings.get("overall_set", self.overall_set)
                self._label(_labels(event.train), _labels(event.valid))
            case ProgramAdded():
                self.programs[event.program] = ProgramRecord(
                    event.program,
                    event.iteration,
                    event.parent,
                    event.source,
                    event.summary,
                    tuple(event.components),
                )
                if attempts := self.iteration(event.iteration).attempts:
                    attempts[-1].program = event.program
            case Evaluated():
                self._evaluated(event)
            case CapabilitySelected():
                self.iteration(event.iteration).selected = event
            case CasesSelected():
                self.iteration(event.iteration).cases = event
            case Diagnosed():
                self.iteration(event.iteration).diagnosed = event
            case Revised():
                self.iteration(event.iteration).attempts.append(
                    AttemptRecord(
                        event.iteration, event.attempt, event.parent, event.summary, event.code, event.details
                    )
                )
            case Rejected():
                self.iteration(event.iteration).reason = event.reason
                for attempt in self.iteration(event.iteration).attempts[event.attempt :]:
                    attempt.reason, attempt.message = event.reason, event.message
            case Accepted():
                self._accepted(event)
            case SpecialistsChanged():
                self.specialists, self.best = dict(event.specialists), event.best
                self.retained = list(event.retained)
            case IntegrationPlanned():
                self.plan = event
            case IterationFinished():
                self.iteration(event.iteration).finished = event
            case RunFinished():
                self.finished = event

    def _label(self, train: tuple[TaskLabel, ...], valid: tuple[TaskLabel, ...]) -> None:
        """Take in the tasks with what every decision derives from them."""
        self.train, self.valid = train, valid
        self.train_ids: tuple[str, ...] = tuple(task.id for task in train)
        self.valid_ids: tuple[str, ...] = tuple(task.id for task in valid)
        self._train_by_capability, self._valid_by_capability = _by_capability(train), _by_capability(valid)
        self._position = {task: position for position, task in enumerate(self.train_ids)}
        index = {capability: i for i, capability in enumerate(CAPABILITIES)}
        self._primary = np.array([index[task.primary] for task in train], dtype=np.int64)
        self._secondary = np.zeros((len(train), len(CAPABILITIES)), dtype=bool)
        for row, task in enumerate(train):
            self._secondary[row, [index[capability] for capability in task.secondary]] = True
        for labels in (self._primary, self._secondary):
            labels.flags.writeable = False

    def _evaluated(self, event: Evaluated) -> None:
        # Test scores come after the end and drive nothing: no decision can read what is not kept.
        if event.purpose == "test":
            return
        program = self.program(event.program)
        if event.failure is None:
            program.scores.update(event.scores)
            program.means.clear()
            program.full = program.full or event.purpose == "full"

    def _accepted(self, event: Accepted) -> None:
        for attempt in self.iteration(event.iteration).attempts[event.attempt :]:
            attempt.accepted = True
        # Retention in stage II comes with specialists_changed or here; the cold start only grows its working set.
        (self.retained if self.retained else self.working).append(event.program)

    def iteration(self, number: int) -> IterationRecord:
        """The record of an iteration, made on first use."""
        return self.iterations.setdefault(number, IterationRecord(number))

    def program(self, program_id: str) -> ProgramRecord:
        """The program of that id; RunError for an unknown one."""
        try:
            return self.programs[program_id]
        except KeyError:
            raise RunError(
                f"the journal speaks of program {program_id!r}, which it never added; "
                "restore it from a copy or start a new run"
            ) from None

    @property
    def next_iteration(self) -> int:
        """The first iteration that has not finished."""
        return max((n for n, record in self.iterations.items() if record.finished), default=-1) + 1

    @property
    def overall_ids(self) -> tuple[str, ...]:
        """Tasks of the overall score s(P)."""
        return {"valid": self.valid_ids, "train": self.train_ids, "all": self.train_ids + self.valid_ids}[
            self.overall_set
        ]

    def train_by_capability(self) -> dict[str, tuple[str, ...]]:
        """Training task ids of each capability, canonical order, empty ones included."""
        return dict(self._train_by_capability)

    def valid_by_capability(self) -> dict[str, tuple[str, ...]]:
        """Validation task ids of each capability, canonical order, empty ones included."""
        return dict(self._valid_by_capability)

    def accuracy(self, program_id: str) -> dict[Capability, float]:
        """Training means of the capabilities whose tasks were all measured."""
        program = self.program(program_id)
        return {
            Capability(capability): self.mean(program_id, tasks)
            for capability, tasks in self._train_by_capability.items()
            if tasks and (program.full or all(task in program.scores for task in tasks))
        }

    def mean(self, program_id: str, task_ids: Sequence[str]) -> float:
        """Mean score of a program over tasks that were measured."""
        program, tasks = self.program(program_id), tuple(task_ids)
        if tasks not in program.means:
            program.means[tasks] = gates.mean_score(program.scores, tasks)
        return program.means[tasks]

    def best_of(self, program_ids: Sequence[str], task_ids: Sequence[str]) -> str:
        """The program of largest mean over the tasks, the earliest first."""
        return program_ids[gates.first_best([self.mean(program, task_ids) for program in program_ids])]

    def choose_specialists(self) -> tuple[dict[str, str], str]:
        """Specialists and best program among the retained ones."""
        scores = [self.program(program).scores for program in self.retained]
        chosen, best = gates.specialists(scores, self.valid_by_capability(), self.overall_ids)
        return {capability: self.retained[i] for capability, i in chosen.items()}, self.retained[best]

    def labels(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Primary capability (n,) and secondaries (n, C) of the training tasks; read-only."""
        return self._primary, self._secondary

    def train_scores(self, program_id: str) -> NDArray[np.float64]:
        """Training scores of a program, (n,); NaN where a task was not measured."""
        scores = self.program(program_id).scores
        return np.array([scores.get(task.id, np.nan) for task in self.train], dtype=np.float64)

    def target_counts(self) -> NDArray[np.int64]:
        """n(c): iterations that had c as target, whatever became of them; (C,)."""
        counts = Counter(record.target for record in self.iterations.values())
        return np.array([counts[capability] for capability in CAPABILITIES], dtype=np.int64)

    def history_scores(self, target: str) -> NDArray[np.float64]:
        """Training scores of the target's history programs, (programs, n).

        One for each iteration with that target: its last candidate whose evaluation on the target's tasks finished.
        """
        tasks = self.train_by_capability()[target]
        rows = []
        for record in self.iterations.values():
            if record.target != target:
                continue
            measured = [
                attempt.program
                for attempt in record.attempts
                if attempt.program and all(task in self.program(attempt.program).scores for task in tasks)
            ]
            if measured:
                rows.append(self.train_scores(measured[-1]))
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.train))

    def refinement_batches(self) -> list[list[int]]:
        """Positions of the cases of every stage II iteration so far."""
        return [self._positions(cases.tasks) for cases in self._shown("refinement")]

    def times_shown(self, parent: str) -> NDArray[np.int64]:
        """How often each training task was a representative case of this parent; (n,)."""
        times = np.zeros(len(self.train), dtype=np.int64)
        for cases in self._shown("cold_start"):
            if cases.parent == parent:
                times[self._positions(cases.tasks)] += 1
        return times

    def _shown(self, stage: str) -> list[CasesSelected]:
        return [r.cases for r in self.iterations.values() if r.cases is not None and r.cases.stage == stage]

    def _positions(self, task_ids: Sequence[str]) -> list[int]:
        return [self._position[task] for task in task_ids]

    def distance(self, one: str, other: str) -> int:
        """Edges between two programs in the lineage tree."""
        above = {program: edges for edges, program in enumerate(self.ancestry(one))}
        for edges, program in enumerate(self.ancestry(other)):
            if program in above:
                return above[program] + edges
        raise RunError(
            f"programs {one!r} and {other!r} have no common ancestor in the journal; "
            "restore it from a copy or start a new run"
        )

    def ancestry(self, program_id: str) -> list[str]:
        """A program, its parent and so on up to the seed."""
        line = [program_id]
        while (parent := self.program(line[-1]).parent) is not None:
            line.append(parent)
        return line


def _labels(tasks: Sequence[Sequence[Any]]) -> tuple[TaskLabel, ...]:
    return tuple(
        TaskLabel(task_id, Capability(primary), tuple(Capability(c) for c in secondary))
        for task_id, primary, secondary in tasks
    )


def _by_capability(tasks: Sequence[TaskLabel]) -> dict[str, tuple[str, ...]]:
    return {str(c): tuple(task.id for task in tasks if task.primary == c) for c in CAPABILITIES}
