"""Algorithm 1: seed, cold start, refinement, integration; every step is in the journal before it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prismem_core.digests import digest_bytes
from prismem_core.errors import ProgramError, RunError
from prismem_core.evolution import cold_start, integration, refinement
from prismem_core.evolution.archive import Archive
from prismem_core.evolution.attempts import program_id
from prismem_core.evolution.context import Evolution
from prismem_core.evolution.designer import Designer
from prismem_core.evolution.laboratory import Laboratory, Observer, SilentObserver
from prismem_core.evolution.recipes import RECIPES, Recipe
from prismem_core.evolution.settings import EvolutionSettings
from prismem_core.runs.events import Accepted, ProgramAdded, RunFinished, RunStarted
from prismem_core.runs.run import Run
from prismem_core.tasks.task import Task


@dataclass(frozen=True)
class EvolutionResult:
    """The evolved program: `final` and `base` (best before integration) are ids in `archive`.

    `routes` names the program of each capability where the strategy routes questions; `final` answers the others.
    """

    final: str
    base: str
    reason: str
    source: str
    archive: Archive
    routes: Mapping[str, str]


def evolve(
    laboratory: Laboratory,
    designer: Designer,
    seed_source: str,
    settings: EvolutionSettings,
    run: Run | None = None,
    observer: Observer | None = None,
) -> EvolutionResult:
    """Evolve a seed program; with `run`, record every event there and go on where it stopped.

    A run that stopped inside an iteration does it again from its start; a finished one returns its result. Settings,
    tasks, seed or designer other than the recorded ones raise RunError, a seed that is invalid or cannot be evaluated
    raises ProgramError, a failing role RoleError: what was recorded stays, and the same call goes on later.
    """
    observer = observer or SilentObserver()
    recipe = RECIPES[settings.strategy]
    start = _start(laboratory, designer, seed_source, settings)
    if run is not None:
        run.rewind()
    archive = Archive(run.events if run is not None else (), overall_set=settings.overall_set)
    if archive.started is not None:
        _check_same(archive.started, start)
    refinements = recipe.refinements(settings)
    rounds = settings.T3 if recipe.integrates else 0
    iterations = settings.T1 + refinements + rounds
    evolution = Evolution(laboratory, designer, settings, archive, run, observer, iterations)
    if run is not None and run.events:
        observer.on_resume(run.events)
    if archive.started is None:
        evolution.emit(start)
    if archive.finished is None:
        _go_on(evolution, recipe, seed_source, refinements, rounds)
    return _result(archive)


def _go_on(evolution: Evolution, recipe: Recipe, seed_source: str, refinements: int, rounds: int) -> None:
    archive, settings = evolution.archive, evolution.settings
    if archive.next_iteration == 0:
        _plant(evolution, seed_source)
    while archive.next_iteration <= settings.T1:
        cold_start.iterate(evolution, archive.next_iteration)
    while archive.next_iteration <= settings.T1 + refinements:
        refinement.iterate(evolution, recipe, archive.next_iteration)
    base = archive.best
    if base is None:
        raise RunError(
            "the journal ends the cold start without a base program; restore it from a copy or start a new run"
        )
    final, reason = base, f"strategy {recipe.name} does not integrate"
    routes: dict[str, str] = {}
    if recipe.ending == "route":
        routes = dict(archive.specialists)
        reason = f"questions go to the specialist of their capability, others to {base}"
    elif rounds:
        final, reason = _integrate(evolution, recipe, base, settings.T1 + refinements + rounds)
    elif recipe.integrates:
        reason = "T3 = 0 allows no integration"
    evolution.emit(RunFinished(archive.next_iteration - 1, final, base, reason, routes))


def check_seed(laboratory: Laboratory, source: str) -> None:
    """ProgramError for a seed that is invalid; no model is called for it."""
    verdict = laboratory.validate(source, None)
    if not verdict.ok:
        raise ProgramError(verdict.code, f"the seed program is invalid ({verdict.code}): {verdict.message}")


def _plant(evolution: Evolution, source: str) -> None:
    """Iteration 0: the seed, validated and evaluated on both sets."""
    evolution.step(0, "validate")
    check_seed(evolution.laboratory, source)
    seed = program_id(0)
    evolution.emit(ProgramAdded(0, seed, None, source, _digest(source), "", "seed program", []))
    failure = evolution.evaluate_full(0, seed)
    if failure:
        raise ProgramError(
            failure.kind,
            f"the seed program failed ({failure.kind}): {failure.message}; start a new run "
            "with a program that answers every training and validation question",
            failure.line,
        )
    evolution.emit(Accepted(0, 0, seed))
    cold_start.close(evolution, 0)
    evolution.finish(0, "seed", program=seed, retained=True)


def _integrate(evolution: Evolution, recipe: Recipe, base: str, last: int) -> tuple[str, str]:
    """Rounds until one is accepted; the resulting program and why the run ends."""
    archive = evolution.archive
    previous = archive.iterations[archive.next_iteration - 1].finished
    if previous is not None and previous.stage == "integration" and previous.retained and previous.program:
        return previous.program, f"integrated in iteration {previous.iteration}"
    pairs = integration.find_pairs(evolution, recipe, base)
    if not pairs:
        return base, "no specialist beats the best program on its capability"
    while archive.next_iteration <= last:
        iteration = archive.next_iteration
        if integration.iterate(evolution, iteration, base, pairs):
            finished = archive.iterations[iteration].finished
            if finished is not None and finished.program is not None:
                return finished.program, f"integrated in iteration {iteration}"
    return base, "no integration was accepted"


def _start(laboratory: Laboratory, designer: Designer, seed: str, settings: EvolutionSettings) -> RunStarted:
    return RunStarted(
        0,
        settings.strategy,
        settings.model_dump(),
        designer.identity,
        _digest(seed),
        [_label(task) for task in laboratory.train],
        [_label(task) for task in laboratory.valid],
    )


def _label(task: Task) -> list[Any]:
    return [task.id, str(task.primary), [str(c) for c in task.secondary]]


def _digest(source: str) -> str:
    return digest_bytes(source.encode("utf-8", "surrogatepass"))


def _check_same(recorded: RunStarted, current: RunStarted) -> None:
    before, now = recorded.to_json(), current.to_json()
    for name, what in (
        ("settings", "settings"),
        ("designer", "designer"),
        ("seed_digest", "seed program"),
        ("train", "training tasks"),
        ("valid", "validation tasks"),
    ):
        if before[name] != now[name]:
            raise RunError(
                f"the run was started with other {what}; its history could not be continued faithfully: "
                "use the same ones or start a new run"
            )


def _result(archive: Archive) -> EvolutionResult:
    finished = archive.finished
    if finished is None:
        raise RunError("the journal has no end; restore it from a copy or start a new run")
    source = archive.program(finished.final).source
    return EvolutionResult(finished.final, finished.base, finished.reason, source, archive, dict(finished.routes))
