"""What a finished run says: the scores of its start and of its result on the three parts of the data, and its calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prismem_core.errors import RunError
from prismem_core.evaluation.means import mean
from prismem_core.jobs.reports import read_ledger
from prismem_core.runs.events import Evaluated, ProgramAdded, RunFinished, RunStarted
from prismem_core.runs.report.contents import call_counts
from prismem_core.runs.run import RunRecord
from prismem_core.tasks.capability import CAPABILITIES
from prismem_core.tasks.task import Dataset

TRAIN, VALID, TEST = PARTS = ("train", "valid", "test")
START = "n00"
ROUTER = "router"
Scores = Mapping[str, float]

# Settings of a job that change what a run costs, and none of its results.
_OF_NO_CONSEQUENCE = {
    "budget", "cache_bytes", "cache_mib", "copies", "device", "frozen_mib", "record", "replay", "reuse",
    "sandbox_require", "verify_reuse", "workers",
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """A program, or all programs of a router together, on the three parts: the score of every question that has one.

    `details` is the summary of the test questions: official metrics, recall, how many questions have a score.
    """

    program: str
    scores: Mapping[str, Scores]
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """A finished run.

    `base` is the best program before integration, `digests` those of the sources of all that answers in the result,
    `calls` what the run asked of the models (`without_reuse`, `made`).
    `alike` is what runs that are compared must share, `provenance` what code made the run, where it says so.
    """

    strategy: str
    seed: int
    start: Reading
    result: Reading
    base: str
    digests: tuple[str, ...]
    reason: str
    iterations: int
    calls: Mapping[str, Any]
    alike: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @property
    def integrated(self) -> bool:
        """Whether the result came from stage III."""
        return self.result.program not in (self.base, ROUTER)


@dataclass(frozen=True)
class Questions:
    """The questions of each part by capability: train and valid as the runs labelled them, test by the native types."""

    capability: Mapping[str, Mapping[str, str]]

    def grouped(self, part: str, scores: Scores) -> dict[str, list[float]]:
        """The scores by capability, canonical order; capabilities without any are left out."""
        own = self.capability[part]
        groups: dict[str, list[float]] = {str(c): [] for c in CAPABILITIES}
        for task, score in scores.items():
            groups[own[task]].append(score)
        return {capability: values for capability, values in groups.items() if values}

    def overall(self, part: str, scores: Scores) -> float:
        """The mean over the capabilities present."""
        return mean(mean(values) for values in self.grouped(part, scores).values())


def is_finished(record: RunRecord) -> bool:
    """Whether a run has ended and its start and result have been measured on the test questions, where it has any."""
    end = _end(record)
    if end is None:
        return False
    measured = {event.program for event in record.events if isinstance(event, Evaluated) and event.purpose == TEST}
    wanted = {START, ROUTER if end.routes else end.final}
    return wanted <= measured or not record.manifest.extra.get("split", {}).get(TEST, 1)


def questions(record: RunRecord, dataset: Dataset) -> Questions:
    """The questions of a run's three parts; RunError where the run was made from other data."""
    name, digest = record.manifest.data.get("name"), record.manifest.data.get("digest")
    if digest != dataset.digest:
        raise RunError(
            f"{record.directory} was made from other data ({name}, {str(digest)[:12]}) than the given "
            f"({dataset.name}, {dataset.digest[:12]}); name the data of the run with --data"
        )
    started = next(event for event in record.events if isinstance(event, RunStarted))
    parts: dict[str, dict[str, str]] = {
        TRAIN: {task: str(primary) for task, primary, _ in started.train},
        VALID: {task: str(primary) for task, primary, _ in started.valid},
    }
    tests = dataset.split(record.manifest.extra.get("parts")).test
    return Questions({**parts, TEST: {task: str(dataset.task(task).primary) for task in tests}})


def read(record: RunRecord, known: Questions) -> Result:
    """What a finished run says; RunError where the test questions were not measured."""
    end = _end(record)
    if end is None or not is_finished(record):
        raise RunError(f"{record.directory} is not finished; resume it")
    full: dict[str, Scores] = {}
    tests: dict[str, Evaluated] = {}
    for event in record.events:
        if isinstance(event, Evaluated) and event.purpose == TEST:
            tests[event.program] = event
        elif isinstance(event, Evaluated) and event.purpose == "full" and event.failure is None:
            full[event.program] = event.scores
    routes = {**dict.fromkeys(map(str, CAPABILITIES), end.final), **end.routes}

    def reading(program: str) -> Reading:
        def score(part: str, task: str, capability: str) -> float:
            return full[routes[capability] if program == ROUTER else program][task]

        test = tests.get(program)
        if test is None or test.failure is not None or not test.scores:
            why = "it has none" if test is None else (test.failure or {}).get("message", "none of them has a score")
            raise RunError(f"{record.directory}: {program} has no scores on the test questions: {why}")
        own, told = known.overall(TEST, test.scores), test.details["overall"]
        if not math.isclose(own, told, abs_tol=1e-9):
            raise RunError(
                f"{record.directory}: the mean over capabilities of {program} is {own:.6f} by the types of the data "
                f"and {told:.6f} in the run; it was made with another map of types, read it with that version"
            )
        parts = {part: {t: score(part, t, c) for t, c in known.capability[part].items()} for part in (TRAIN, VALID)}
        return Reading(program, {**parts, TEST: test.scores}, test.details)

    settings = record.manifest.settings
    sources = {event.program: event.digest for event in record.events if isinstance(event, ProgramAdded)}
    answering = dict.fromkeys(routes.values()) if end.routes else (end.final,)
    calls = call_counts(record, read_ledger(record))["total"]
    return Result(
        str(settings["strategy"]),
        int(settings["seed"]),
        reading(START),
        reading(ROUTER if end.routes else end.final),
        end.base,
        tuple(sources.get(program, "")[:16] for program in answering),
        end.reason,
        end.iteration,
        {name: calls[name] for name in ("without_reuse", "made")},
        _alike(record),
        dict(record.manifest.extra.get("provenance", {})),
    )


def check_alike(results: Mapping[str, Result]) -> None:
    """Raise RunError where two runs differ in more than strategy and seed, naming what."""
    names = list(results)
    for name in names[1:]:
        first, other = results[names[0]], results[name]
        differing = [key for key in first.alike if first.alike[key] != other.alike.get(key)]
        if differing:
            one, two = ({key: result.alike.get(key) for key in differing} for result in (first, other))
            raise RunError(
                f"the runs {names[0]} and {name} are not of one ablation, they differ in {', '.join(differing)}: {one} "
                f"against {two}; keep each ablation in a --root of its own"
            )
        for part in PARTS:
            if first.start.scores[part] != other.start.scores[part]:
                raise RunError(
                    f"{names[0]} and {name} score the same start differently on the {part} questions: they were not "
                    "measured by the same code or models, and their results cannot be compared"
                )


def _end(record: RunRecord) -> RunFinished | None:
    return next((event for event in record.events if isinstance(event, RunFinished)), None)


def _alike(record: RunRecord) -> dict[str, Any]:
    """All that the runs of one ablation have in common."""
    manifest = record.manifest
    settings = {f"setting {key}": value for key, value in manifest.settings.items() if key not in ("strategy", "seed")}
    job = {
        f"setting {key}": value
        for key, value in manifest.extra.get("job", {}).items()
        if key not in _OF_NO_CONSEQUENCE and not (key == "models" and not value)
    }
    return {
        "version": manifest.version,
        "data": manifest.data.get("digest"),
        "split": manifest.extra.get("parts"),
        "scoring": manifest.extra.get("scoring"),
        "start": manifest.extra.get("start"),
        **{f"model {role}": identity for role, identity in manifest.roles.items()},
        **settings,
        **job,
    }
