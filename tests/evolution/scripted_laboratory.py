"""A laboratory and a designer that follow a script; scores are looked up by a program's one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prismem_core.errors import CandidateError
from prismem_core.evaluation.cases import Case
from prismem_core.evaluation.diagnostics_table import DiagnosticsTable, Lengths
from prismem_core.evolution.designer import (
    Attempt,
    Diagnosis,
    IntegrationBrief,
    IntegrationPlan,
    ParentBrief,
    Revision,
)
from prismem_core.evolution.laboratory import CandidateFailure, SetEvaluation, ValidationOutcome
from prismem_core.program.interface import Interface
from prismem_core.program.patch import make_patch
from prismem_core.runs.events import Event
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.task import Task


def task(task_id: str, primary: str, secondary: Sequence[str] = ()) -> Task:
    """A task of which only the labels matter."""
    return Task(
        task_id, "h", f"question {task_id}", "yes", (), "", Capability(primary), tuple(map(Capability, secondary))
    )


def golden_tasks(records: Iterable[Mapping[str, Any]]) -> list[Task]:
    return [task(r["id"], r["primary"], r["secondary"]) for r in records]


def source_of(name: Any) -> str:
    """The program called `name`."""
    return f"NAME = {str(name)!r}\n"


class ScriptedLaboratory:
    """Scores come from `scores[source][task]`; a source in `breaks` fails on sets of that purpose."""

    interface: Interface = "paper"

    def __init__(
        self,
        train: Sequence[Task],
        valid: Sequence[Task],
        scores: Mapping[str, Mapping[str, float]],
        breaks: Mapping[str, str] | None = None,
        invalid: Mapping[str, str] | None = None,
    ) -> None:
        self.train, self.valid = list(train), list(valid)
        self.scores, self.breaks, self.invalid = scores, dict(breaks or {}), dict(invalid or {})
        self.evaluations: list[tuple[str, str, tuple[str, ...]]] = []

    def validate(self, source: str, parent: str | None) -> ValidationOutcome:
        code = self.invalid.get(source, "ok")
        return ValidationOutcome(code == "ok", code, f"check {code}")

    def evaluate(self, program_id: str, source: str, task_ids: Sequence[str], purpose: str) -> SetEvaluation:
        self.evaluations.append((program_id, purpose, tuple(task_ids)))
        how = self.breaks.get(source, "")
        if how == f"raise:{purpose}":
            raise CandidateError("error", "it broke", 3)
        if how == purpose:
            return SetEvaluation({}, CandidateFailure("limit:cpu", "it ran too long"))
        if how == f"unscored:{purpose}":
            return SetEvaluation({t: self.scores[source][t] for t in task_ids[1:]})
        return SetEvaluation({t: self.scores[source][t] for t in task_ids}, details={"purpose": purpose})

    def cases(self, program_id: str, source: str, task_ids: Sequence[str]) -> list[Case]:
        labels = {t.id: t for t in self.train}
        return [
            Case(
                t,
                labels[t].primary,
                labels[t].secondary,
                labels[t].question,
                "yes",
                f"{program_id} says no",
                self.scores[source][t],
                None,
                {},
                "",
            )
            for t in task_ids
        ]

    def diagnostics(self, program_id: str, source: str) -> DiagnosticsTable:
        return DiagnosticsTable({}, Lengths(11.0, 22.0))

    def lengths(self, program_id: str, source: str) -> Lengths:
        return Lengths(33.0, 44.0)


class ScriptedDesigner:
    """Turns `reply(iteration, attempt)`, a source or None for a useless diff, into a patch of what it is shown."""

    identity = "scripted"

    def __init__(self, reply: Callable[[int, int], str | None]) -> None:
        self.reply = reply
        self.briefs: list[ParentBrief | IntegrationBrief] = []
        self.feedback: list[tuple[Attempt, ...]] = []

    def _revision(self, brief: ParentBrief | IntegrationBrief, attempts: Sequence[Attempt]) -> Revision:
        self.briefs.append(brief)
        self.feedback.append(tuple(attempts))
        number = sum(attempt.iteration == brief.iteration for attempt in attempts)
        source = self.reply(brief.iteration, number)
        code = "no diff" if source is None else make_patch(brief.source, source)
        return Revision(f"revision {brief.iteration}.{number}", code, {"edit": brief.iteration, "because": ("a", 1)})

    def diagnose(self, brief: ParentBrief) -> Diagnosis:
        return Diagnosis(f"weak in {brief.target}", brief.target, {"cases": [case.task_id for case in brief.cases]})

    def revise(self, brief: ParentBrief, diagnosis: Diagnosis, feedback: Sequence[Attempt]) -> Revision | None:
        return self._revision(brief, feedback)

    def plan_integration(self, brief: IntegrationBrief) -> IntegrationPlan:
        return IntegrationPlan("merge " + ", ".join(view.program_id for view in brief.specialists))

    def integrate(self, brief: IntegrationBrief, plan: IntegrationPlan, attempts: Sequence[Attempt]) -> Revision | None:
        assert plan.text.startswith("merge ")
        return self._revision(brief, attempts)


class Recorder:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.resumed: list[Event] = []
        self.steps: list[tuple[int, int, str]] = []

    def on_resume(self, events: Sequence[Event]) -> None:
        self.resumed.extend(events)

    def on_step(self, iteration: int, iterations: int, step: str) -> None:
        self.steps.append((iteration, iterations, step))

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_stage_progress(self, stage: str, done: int, total: int) -> None:
        raise AssertionError("the engine has no stages of its own")
