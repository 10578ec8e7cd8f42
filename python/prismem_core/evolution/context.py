"""What the stages share: laboratory, designer, settings, archive and the one way to record an event."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prismem_core.errors import CandidateError
from prismem_core.evolution.archive import Archive
from prismem_core.evolution.designer import Designer
from prismem_core.evolution.laboratory import CandidateFailure, Laboratory, Observer, Purpose, SetEvaluation
from prismem_core.evolution.settings import EvolutionSettings
from prismem_core.runs.events import Evaluated, Event, IterationFinished, event_round_trip
from prismem_core.runs.run import Run


@dataclass
class Evolution:
    """One run in progress; `iterations` is how many it can take at most."""

    laboratory: Laboratory
    designer: Designer
    settings: EvolutionSettings
    archive: Archive
    run: Run | None
    observer: Observer
    iterations: int

    def emit(self, event: Event) -> None:
        """Write an event to the journal, then apply it, then show it.

        It is applied in the form the journal gives back, so that a resumed run sees nothing else, not even key orders.
        """
        event = event_round_trip(event)
        if self.run is not None:
            self.run.append(event)
        self.archive.apply(event)
        self.observer.on_event(event)

    def step(self, iteration: int, name: str) -> None:
        """Tell the observer what begins."""
        self.observer.on_step(iteration, self.iterations, name)

    def evaluate(self, iteration: int, program: str, tasks: Sequence[str], purpose: Purpose) -> CandidateFailure | None:
        """Measure a program on a set and record it; the failure where a task of the set got no score in [0, 1]."""
        self.step(iteration, f"evaluate {purpose}")
        source = self.archive.program(program).source
        try:
            result = self.laboratory.evaluate(program, source, tasks, purpose)
        except CandidateError as error:
            result = SetEvaluation({}, CandidateFailure(error.kind, str(error), error.line))
        failure = result.failure or _unscored(result.scores, tasks)
        self.emit(
            Evaluated(
                iteration,
                program,
                purpose,
                {} if failure else {task: float(result.scores[task]) for task in tasks},
                {"kind": failure.kind, "message": failure.message, "line": failure.line} if failure else None,
                result.details,
            )
        )
        return failure

    def evaluate_full(self, iteration: int, program: str) -> CandidateFailure | None:
        """Measure a program on the training and the validation set."""
        return self.evaluate(iteration, program, self.archive.train_ids + self.archive.valid_ids, "full")

    def finish(
        self,
        iteration: int,
        stage: str,
        *,
        target: str | None = None,
        parent: str | None = None,
        program: str | None = None,
        gate: bool | None = None,
        retained: bool = False,
    ) -> None:
        """Record the end of an iteration with its candidate's means."""
        archive = self.archive
        full = program is not None and archive.program(program).full
        self.emit(
            IterationFinished(
                iteration,
                stage,
                target,
                parent,
                program,
                gate,
                retained,
                archive.mean(program, archive.train_ids) if program and full else None,
                archive.mean(program, archive.valid_ids) if program and full else None,
                archive.specialists,
                archive.best,
            )
        )


def _unscored(scores: Mapping[str, float], tasks: Sequence[str]) -> CandidateFailure | None:
    for task in tasks:
        score = scores.get(task)
        if score is None:
            return CandidateFailure("unscored", f"task {task!r} got no score")
        if not (math.isfinite(score) and 0 <= score <= 1):
            return CandidateFailure("unscored", f"task {task!r} got the score {score!r}, which is not in [0, 1]")
    return None
