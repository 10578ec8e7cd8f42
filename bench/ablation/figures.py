"""The figures of an ablation: means over seeds with intervals, and differences between strategies paired by seed and
by question.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.evaluation.intervals import grouped_interval, interval
from prismem_core.evaluation.means import mean
from prismem_core.tasks.capability import CAPABILITIES

from .plan import STRATEGIES
from .reading import PARTS, TEST, TRAIN, VALID, Questions, Reading, Result

FIRST = STRATEGIES[0]
"""The strategy that every other one is compared with."""

# Of the summary of the test questions; a measure that a data set does not have is None in every run.
TEST_MEASURES = (
    "official", "official_overall", "official_answerable", "false_abstentions", "recall", "retrieved_chars",
)  # fmt: skip


def figures(known: Questions, results: Sequence[Result]) -> dict[str, Any]:
    """All figures of one data set as plain JSON.

    `strategies` has for each: `seeds`, `runs` (one row a seed), `measures` (mean, standard deviation, interval over
    seeds, values), `capabilities`. A measure `test` is the mean over questions of the score that drove selection,
    `test_overall` its mean over capabilities; likewise `train` and `valid`. `differences` compares the first strategy
    with each other one over the seeds that both have.
    """
    by_strategy = {s: [r for r in results if r.strategy == s] for s in STRATEGIES}
    strategies = {
        strategy: _strategy(known, sorted(own, key=lambda r: r.seed)) for strategy, own in by_strategy.items() if own
    }
    first = by_strategy[FIRST]
    others = {s: own for s, own in by_strategy.items() if own and s != FIRST} if first else {}
    return {
        "questions": {part: _counts(known.capability[part]) for part in PARTS},
        "start": _measures(known, results[0].start),
        "strategies": strategies,
        "differences": {s: difference for s, own in others.items() if (difference := _difference(known, first, own))},
    }


def _counts(capability: Mapping[str, str]) -> dict[str, int]:
    own = list(capability.values())
    return {"all": len(own), **{str(c): own.count(str(c)) for c in CAPABILITIES if str(c) in own}}


def _measures(known: Questions, reading: Reading) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for part in PARTS:
        found[part] = mean(reading.scores[part].values())
        found[f"{part}_overall"] = known.overall(part, reading.scores[part])
    for one, other in ((TRAIN, TEST), (VALID, TEST)):
        for suffix in ("", "_overall"):
            found[f"{one}-{other}{suffix}"] = (found[one + suffix] or 0.0) - (found[other + suffix] or 0.0)
    return {**found, **{name: reading.details.get(name) for name in TEST_MEASURES}}


def _strategy(known: Questions, results: Sequence[Result]) -> dict[str, Any]:
    by_run = [_measures(known, result.result) for result in results]
    calls = [
        {f"calls_{kind}": None if counts is None else counts["calls"] for kind, counts in result.calls.items()}
        for result in results
    ]
    return {
        "seeds": [result.seed for result in results],
        "runs": [
            {
                "seed": result.seed,
                "result": result.result.program,
                "digests": list(result.digests),
                "base": result.base,
                "integrated": result.integrated,
                "iterations": result.iterations,
                "reason": result.reason,
                "questions_scored": len(result.result.scores[TEST]),
                "calls": dict(result.calls),
                **measures,
            }
            for result, measures in zip(results, by_run, strict=True)
        ],
        "measures": {
            name: spread([row[name] for row in rows])
            for rows in (by_run, calls)
            for name in rows[0]
            if all(row[name] is not None for row in rows)
        },
        "over_questions": _over_questions(known, results),
        "capabilities": {part: _by_capability(known, part, results) for part in PARTS},
    }


def _by_capability(known: Questions, part: str, results: Sequence[Result]) -> dict[str, Any]:
    """Means over seeds by capability; a run without a score in one is left out of it."""
    groups = [known.grouped(part, result.result.scores[part]) for result in results]
    found = {str(c): [mean(own[str(c)]) for own in groups if str(c) in own] for c in CAPABILITIES}
    return {capability: spread(values) for capability, values in found.items() if values}


def spread(values: Sequence[Any]) -> dict[str, Any]:
    """Mean, sample standard deviation (None for one value), bootstrap interval and the values themselves, by seed."""
    numbers = [float(value) for value in values]
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    return {**interval(numbers).to_dict(), "deviation": deviation, "values": numbers}


def _over_questions(known: Questions, results: Sequence[Result]) -> dict[str, Any]:
    """The mean test score with its interval over questions, each question first averaged over the seeds."""
    return by_question(known, TEST, [result.result.scores[TEST] for result in results])


def by_question(known: Questions, part: str, scores: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Intervals over questions of values that are first averaged over the runs; questions that some run lacks are out.

    `score` is the mean over questions, `overall` that over capabilities, whose questions are resampled by themselves.
    """
    tasks = [task for task in known.capability[part] if all(task in own for own in scores)]
    values = {task: mean(own[task] for own in scores) for task in tasks}
    return {
        "score": interval(list(values.values())).to_dict(),
        "overall": grouped_interval(list(known.grouped(part, values).values())).to_dict(),
    }


def _difference(known: Questions, first: Sequence[Result], other: Sequence[Result]) -> dict[str, Any] | None:
    """The first strategy minus another on each part: over the seeds that both have, and over questions."""
    one, two = ({result.seed: result.result.scores for result in results} for results in (first, other))
    seeds = sorted(one.keys() & two.keys())
    if not seeds:
        return None
    found: dict[str, Any] = {"seeds": seeds}
    for part in PARTS:
        pairs = [(one[seed][part], two[seed][part]) for seed in seeds]
        gaps = [{task: a[task] - b[task] for task in a.keys() & b.keys()} for a, b in pairs]
        questions = by_question(known, part, gaps)
        means = {
            "score": [mean(a.values()) - mean(b.values()) for a, b in pairs],
            "overall": [known.overall(part, a) - known.overall(part, b) for a, b in pairs],
        }
        found[part] = {
            name: {"over_seeds": spread(values), "over_questions": questions[name]} for name, values in means.items()
        }
    return found
