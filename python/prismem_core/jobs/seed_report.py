"""Several runs that differ in their seed alone: means over them, their spread, and intervals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismem_core.errors import RunError
from prismem_core.evaluation.carry_over import PARTS, TEST, estimate
from prismem_core.evaluation.intervals import statistics_installed
from prismem_core.evaluation.means import mean
from prismem_core.jobs.reports import load_report
from prismem_core.runs.events import RunStarted
from prismem_core.runs.report.contents import Contents, shown, task_scores
from prismem_core.runs.report.facts import NEVER_CHANGE_A_RESULT
from prismem_core.runs.run import RunRecord, read_run
from prismem_core.tasks.capability import CAPABILITIES

# Of a model's table: what decides how its calls go out and what they cost. What changes a reply is in its identity.
_OF_CALLS = {
    "batch",
    "budget_calls",
    "budget_money",
    "budget_tokens",
    "concurrency",
    "deadline_seconds",
    "key_env",
    "model",
    "price_input",
    "price_output",
    "requests_per_minute",
    "retries",
    "stream",
    "timeout_seconds",
}
_MOST_NAMED = 8


def seed_report(directories: Sequence[Path]) -> dict[str, Any]:
    """What runs of the same data and settings found under different seeds, as plain JSON.

    `runs` has a row each; `measures` the values of each number by run with `mean`, `sd` (sample, n - 1) and `interval`
    (bootstrap over runs); `by_question` the gains of the result over start and base by part, each question's averaged
    over the runs, with an interval over questions. Raises RunError for a run that has not ended or lacks its test
    questions, and for runs that differ in more than their seed, naming what differs.
    """
    records = [read_run(directory) for directory in directories]
    names = [_name(directory) for directory in directories]
    _check_ended(records, names)
    _check_same(records, names)
    # Intervals over the questions of one run are that run's own report.
    reports = [load_report(directory, intervals=False) for directory in directories]
    intervals = statistics_installed()
    rows = [_row(name, report) for name, report in zip(names, reports, strict=True)]
    measures = []
    for part, label, values in _values(reports):
        spread = statistics.stdev(values) if len(values) > 1 else None
        found = estimate(values, intervals)
        measures.append(
            {"part": part, "measure": label, "values": values, "mean": mean(values), "sd": spread, "interval": found}
        )
    return {
        "runs": rows,
        "header": reports[0].data,
        "code": [report.data["job"].get("provenance", {}) for report in reports],
        "isolation": [report.data["isolation"] for report in reports],
        "intervals": intervals,
        "measures": measures,
        "by_question": _by_question(records, intervals),
    }


def _name(directory: Path) -> str:
    return directory.resolve().name


def _check_ended(records: Sequence[RunRecord], names: Sequence[str]) -> None:
    seen: dict[Path, str] = {}
    for record, name in zip(records, names, strict=True):
        where = record.directory.resolve()
        if where in seen:
            raise RunError(f"{record.directory} is named twice; name each run once")
        seen[where] = name
        start, base, result = shown(record)
        if base is None:
            raise RunError(f"{name} has not ended; go on with `prismem resume {record.directory}`, then report again")
        tested = task_scores(record)[TEST]
        missing = [program for program in (start, result) if program not in tested]
        if missing and record.manifest.extra.get("split", {}).get(TEST):
            raise RunError(
                f"{name} has not put the test questions to {missing[0]}; go on with `prismem resume {record.directory}`"
            )


def _check_same(records: Sequence[RunRecord], names: Sequence[str]) -> None:
    first = _made_of(records[0])
    for record, name in zip(records[1:], names[1:], strict=True):
        other = _made_of(record)
        differing = [key for key in {**first, **other} if first.get(key) != other.get(key)]
        if differing:
            told = [f"{key} ({_short(first.get(key))}, {_short(other.get(key))})" for key in differing[:_MOST_NAMED]]
            more = f" and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
            drawn = "; a split that is drawn changes with the seed: name one by a file" if "split" in differing else ""
            raise RunError(
                f"{names[0]} and {name} differ in more than their seed: {', '.join(told)}{more}; a mean over them "
                f"would mean nothing: report runs of one data set and one set of settings together{drawn}"
            )
    for position, record in enumerate(records):
        for earlier in range(position):
            same_seed = record.manifest.settings.get("seed") == records[earlier].manifest.settings.get("seed")
            if same_seed and task_scores(record) == task_scores(records[earlier]):
                raise RunError(
                    f"{names[earlier]} and {names[position]} have the same seed and the same scores: a repeat that "
                    "cannot differ says nothing of the spread; leave one out, or give each run a --seed of its own"
                )


def _made_of(record: RunRecord) -> dict[str, Any]:
    """All that a run is made of and that can change its numbers, but for the seed; short names for messages."""
    manifest = record.manifest
    started = next((event for event in record.events if isinstance(event, RunStarted)), None)
    extra = manifest.extra
    job = dict(extra.get("job", {}))
    models = job.pop("models", {})
    made: dict[str, Any] = {
        "version": manifest.version,
        "data": manifest.data.get("digest"),
        **{f"data: {key}": value for key, value in manifest.data.get("notes", {}).items()},
        "split": extra.get("parts"),
        "start": None if started is None else started.seed_digest,
        "designer": None if started is None else started.designer,
        "labels of the questions": None if started is None else [started.train, started.valid],
        "selection score": extra.get("scoring"),
        "category map": extra.get("provenance", {}).get("category_map"),
    }
    made |= {key: value for key, value in manifest.settings.items() if key != "seed"}
    made |= {f"role {role}": identity for role, identity in manifest.roles.items()}
    made |= {f"job.{key}": value for key, value in job.items() if key not in NEVER_CHANGE_A_RESULT}
    for role, table in models.items():
        made |= {f"models.{role}.{key}": value for key, value in table.items() if key not in _OF_CALLS}
    return made


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:20]}..."


def _row(name: str, report: Contents) -> dict[str, Any]:
    scores = report.data["scores"]
    programs = {"start": "n00", "base": report.data["base"], "result": report.best}
    return {
        "run": name,
        "seed": report.data["settings"].get("seed"),
        **programs,
        "scores": {
            part: {role: scores[part].get(program, {}).get("score") for role, program in programs.items()}
            for part in PARTS
        },
        "left_out": {
            role: scores[TEST][program].get("left_out") for role, program in programs.items() if program in scores[TEST]
        },
    }


def _values(reports: Sequence[Contents]) -> Iterator[tuple[str, str, list[float]]]:
    """Part, name and values by run of every number that all runs have."""
    for part in PARTS:
        found: dict[str, list[float | None]] = {}
        for report in reports:
            for label, value in _numbers(report, part).items():
                found.setdefault(label, []).append(value)
        for label, values in found.items():
            known = [value for value in values if value is not None]
            if len(known) == len(reports):
                yield part, label, known


def _numbers(report: Contents, part: str) -> dict[str, float | None]:
    """The numbers of one run on one part: means of start, base and result, capabilities of the result, gains, gaps."""
    scores: Mapping[str, Any] = report.data["scores"][part]
    start, base, result = (scores.get(p, {}) for p in ("n00", report.data["base"], report.best))
    numbers: dict[str, float | None] = {
        "start, mean over questions": start.get("score"),
        "base, mean over questions": base.get("score"),
        "result, mean over questions": result.get("score"),
        "result, mean over capabilities": result.get("overall"),
    }
    for capability in CAPABILITIES:
        entry = result.get("capabilities", {}).get(str(capability))
        if entry is not None:
            numbers[f"result, {capability}"] = entry["score"]
    numbers["gain over start"] = _less(result.get("score"), start.get("score"))
    numbers["gain over base"] = _less(result.get("score"), base.get("score"))
    if part == TEST:
        # Under strategy router the specialists answer together; `result` is the best of them alone.
        for name, key in (("questions", "score"), ("capabilities", "overall")):
            numbers[f"router, mean over {name}"] = scores.get("router", {}).get(key)
        numbers["official metric of the result"] = result.get("official")
        numbers["evidence recall of the result"] = result.get("recall")
    else:
        tested = report.data["scores"][TEST].get(report.best, {})
        numbers["result, gap to test"] = _less(result.get("score"), tested.get("score"))
    return numbers


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _by_question(records: Sequence[RunRecord], intervals: bool) -> dict[str, dict[str, Any]]:
    """Gains of the results question by question, averaged over the runs, with intervals over questions."""
    gains: dict[str, dict[str, Any]] = {}
    for index, role in enumerate(("start", "base")):
        for part in PARTS:
            by_question: dict[str, list[float]] = {}
            for record in records:
                programs, scores = shown(record), task_scores(record)[part]
                result, reference = scores.get(programs[2], {}), scores.get(programs[index] or "", {})
                for task in result:
                    if task in reference:
                        by_question.setdefault(task, []).append(result[task] - reference[task])
            values = [mean(found) for found in by_question.values()]
            gains.setdefault(f"over_{role}", {})[part] = estimate(values, intervals)
    return gains
