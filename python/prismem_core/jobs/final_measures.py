"""The test questions, put to start, base and result once every decision has been made.

With strategy `router` they are also put to all programs together, each to the specialist of its capability.
"""

from __future__ import annotations

from typing import Any

from prismem_core.errors import JudgeError, RunError
from prismem_core.evaluation.evaluate import Evaluation
from prismem_core.evaluation.routing import (
    Routes,
    classify,
    evaluate_routed,
    routing_summary,
    with_classification,
)
from prismem_core.evaluation.score_table import summarise
from prismem_core.evolution.laboratory import Observer
from prismem_core.jobs.workbench import Workbench
from prismem_core.program.program import Program
from prismem_core.runs.events import ROUTER, Evaluated, Event, ProgramAdded, RunFinished
from prismem_core.runs.run import Run
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.task import Split


def unmeasured(run: Run, split: Split) -> list[str]:
    """Start, base before integration, result and router, where the test questions have not been put to them yet."""
    if not split.test:
        return []
    finished = _finished(run)
    measured = {e.program for e in run.events if isinstance(e, Evaluated) and e.purpose == "test"}
    wanted = ["n00", finished.base, finished.final, *([ROUTER] if finished.routes else [])]
    return [program for program in dict.fromkeys(wanted) if program not in measured]


def measure_on_test(run: Run, bench: Workbench, split: Split, router: str, observer: Observer) -> None:
    """Evaluate start, base, result and, where questions are routed, the router on the test questions, once each.

    `router` says where a question's capability comes from: `question` (the task model) or `oracle` (the native type).
    """
    finished = _finished(run)
    sources = {e.program: e.source for e in run.events if isinstance(e, ProgramAdded)}
    programs = {program: Program(source) for program, source in sources.items()}
    for program in unmeasured(run, split):
        observer.on_step(finished.iteration, finished.iteration, f"test {program}")
        with bench.ledger.scope(program=program, purpose="test"):
            if program == ROUTER:
                evaluation, more = _routed(bench, split, finished, router, programs)
            else:
                evaluation, more = bench.evaluator.evaluate(programs[program], split.test, every=True), {}
        if evaluation.failure is None and not evaluation.scores:
            raise JudgeError(
                "no verdict of the judge on the test questions could be read, however often it was asked; what was "
                "paid for is kept: resume to ask again"
            )
        event = test_event(finished.iteration, program, evaluation, more)
        run.append(event)
        observer.on_event(event)


def _finished(run: Run) -> RunFinished:
    found: list[Event] = [event for event in run.events if isinstance(event, RunFinished)]
    if not found or not isinstance(found[-1], RunFinished):
        raise RunError(f"{run.directory} ended without a result; resume it")
    return found[-1]


def _routed(
    bench: Workbench, split: Split, finished: RunFinished, router: str, programs: dict[str, Program]
) -> tuple[Evaluation, dict[str, Any]]:
    """All test questions, each answered by the program of its capability, and how they were routed."""
    routes = Routes({Capability(c): program for c, program in finished.routes.items()}, finished.final)
    tasks, asked = bench.evaluator.with_twins(split.test)
    chosen: dict[str, Capability | None] = {task.id: task.primary for task in asked}
    answered = []
    if router == "question":
        settings = bench.pipeline.settings
        answered = classify(
            bench.chat,
            [task.question for task in asked],
            retries=settings.output_retries,
            max_tokens=settings.max_tokens,
        )
        chosen = {task.id: one.value for task, one in zip(asked, answered, strict=True)}
    routed = evaluate_routed(bench.evaluator, split.test, chosen, routes, programs, bench.ledger)
    summary = routing_summary(router, tasks, chosen, routes, routed.parts)
    return with_classification(routed.evaluation, answered), {"routing": summary}


def test_event(iteration: int, program: str, evaluation: Evaluation, more: dict[str, Any]) -> Evaluated:
    """The journal's record of an evaluation on the test questions."""
    failure: dict[str, Any] | None = None
    if evaluation.failure is not None:
        task_id, broken = evaluation.failure
        failure = {"kind": broken.kind, "message": f"{task_id}: {broken.message}", "line": broken.line}
    return Evaluated(iteration, program, "test", evaluation.scores, failure, {**summarise(evaluation), **more})
