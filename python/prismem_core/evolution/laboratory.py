"""The laboratory: the engine's only door to validation, evaluation and cases (the test set stays outside)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from prismem_core.evaluation.cases import Case
from prismem_core.evaluation.diagnostics_table import DiagnosticsTable, Lengths
from prismem_core.program.interface import Interface
from prismem_core.runs.events import Event
from prismem_core.tasks.task import Task

Purpose = Literal["full", "target"]


@dataclass(frozen=True)
class ValidationOutcome:
    """`code` is `ok` or that of the first failing check, `message` a sentence for the coder."""

    ok: bool
    code: str = "ok"
    message: str = ""


@dataclass(frozen=True)
class CandidateFailure:
    """Why a program got no scores: `kind` is a kind of CandidateError or LimitError, or `unscored` for a score that is
    missing or out of range (a judge that cannot be read raises JudgeError instead).
    """

    kind: str
    message: str
    line: int | None = None


@dataclass(frozen=True)
class SetEvaluation:
    """Scores in [0, 1] by task id, or a failure; `details` is plain, deterministic JSON for the journal."""

    scores: Mapping[str, float]
    failure: CandidateFailure | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Laboratory(Protocol):
    """Measures programs on the labelled tasks `train` and `valid` (task-list order).

    `interface` is what the backend of its programs offers.
    A failing model, embedder or judge raises RoleError, which leaves `evolve` as it is: the run pauses. A failing
    program is a result (`SetEvaluation.failure`), or a CandidateError where that is easier. Repeating a call is cheap
    (the execution cache) and gives the same result.
    """

    @property
    def interface(self) -> Interface: ...

    @property
    def train(self) -> Sequence[Task]: ...

    @property
    def valid(self) -> Sequence[Task]: ...

    def validate(self, source: str, parent: str | None) -> ValidationOutcome: ...

    def evaluate(self, program_id: str, source: str, task_ids: Sequence[str], purpose: Purpose) -> SetEvaluation: ...

    def cases(self, program_id: str, source: str, task_ids: Sequence[str]) -> Sequence[Case]: ...

    def diagnostics(self, program_id: str, source: str) -> DiagnosticsTable: ...

    def lengths(self, program_id: str, source: str) -> Lengths: ...


@runtime_checkable
class Observer(Protocol):
    """Follows a run; calls must be quick and must not raise.

    `on_resume` gets the events of the finished iterations, `on_step` says what begins (`diagnose`, `revise`,
    `validate`, `evaluate target`, ...), `on_event` comes after an event is in the journal and applied.
    `on_stage_progress` is for the laboratory: items done of a pipeline stage.
    """

    def on_resume(self, events: Sequence[Event]) -> None: ...

    def on_step(self, iteration: int, iterations: int, step: str) -> None: ...

    def on_event(self, event: Event) -> None: ...

    def on_stage_progress(self, stage: str, done: int, total: int) -> None: ...


class SilentObserver:
    """An observer that looks away."""

    def on_resume(self, events: Sequence[Event]) -> None: ...

    def on_step(self, iteration: int, iterations: int, step: str) -> None: ...

    def on_event(self, event: Event) -> None: ...

    def on_stage_progress(self, stage: str, done: int, total: int) -> None: ...
