"""What an evolution gained, and how much of it carries over to questions that decided nothing, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.evaluation.intervals import (
    LEVEL,
    Interval,
    difference_interval,
    interval,
    statistics_installed,
)
from prismem_core.evaluation.means import mean

TEST = "test"
DROVE = ("train", "valid")
PARTS = (*DROVE, TEST)
_NAMES = {"train": "training", "valid": "validation"}

Scores = Mapping[str, float]


def carry_over(
    scores: Mapping[str, Mapping[str, Scores]], start: str, base: str | None, result: str, *, intervals: bool = True
) -> dict[str, Any]:
    """Start, base before integration (None: none yet) and result of a run on each part, as plain JSON.

    `scores` has the scores by part (`train`, `valid`, `test`), program and question; only questions that have a score
    count. Estimates are `{"mean", "low", "high", "n"}`, None where there is no score: means of `programs` by part,
    their `gaps` (train - test, valid - test: other questions, so unpaired), `gains` of the result over start and base
    by part (paired by question), and `excess`, how far the gain on train and valid lies above that on test.
    `findings` are sentences. Without `intervals`, or without scipy, `low` and `high` are None and `intervals` false.
    """
    intervals = intervals and statistics_installed()

    def of(part: str, program: str | None) -> Scores:
        return scores.get(part, {}).get(program or "", {})

    roles = {"start": start, "base": base, "result": result}
    programs = []
    for program in dict.fromkeys(p for p in roles.values() if p is not None):
        means = {part: estimate(list(of(part, program).values()), intervals) for part in PARTS}
        gaps = {
            part: _difference(list(of(part, program).values()), list(of(TEST, program).values()), intervals)
            for part in DROVE
        }
        own = [role for role, name in roles.items() if name == program]
        programs.append({"program": program, "roles": own, **means, "gaps": gaps})
    gains = {
        f"over_{role}": {part: estimate(_gains(of(part, result), of(part, roles[role])), intervals) for part in PARTS}
        for role in ("start", "base")
        if roles[role] not in (None, result)
    }
    excess = {}
    if start != result:
        on_test = _gains(of(TEST, result), of(TEST, start))
        excess = {part: _difference(_gains(of(part, result), of(part, start)), on_test, intervals) for part in DROVE}
    told = {"level": LEVEL, "intervals": intervals, "programs": programs, "gains": gains, "excess": excess}
    return {**told, "findings": _findings(told) if intervals else []}


def router_gains(
    scores: Mapping[str, Mapping[str, Scores]], router: str, start: str, best: str, *, intervals: bool = True
) -> dict[str, Any]:
    """What routing gains on the test questions over start and best program (`over_start`, `over_best`), by question;
    estimates as those of `carry_over`.
    """
    intervals, test = intervals and statistics_installed(), scores.get(TEST, {})
    return {
        name: estimate(_gains(test.get(router, {}), test.get(program, {})), intervals)
        for name, program in (("over_start", start), ("over_best", best))
    }


def _gains(result: Scores, reference: Scores) -> list[float]:
    return [result[task] - reference[task] for task in result if task in reference]


def estimate(values: Sequence[float], intervals: bool) -> dict[str, Any] | None:
    """The mean of values as `{"mean", "low", "high", "n"}`, None for no values; without `intervals` a plain mean."""
    if not values:
        return None
    return (interval(values) if intervals else Interval(mean(values), None, None, len(values))).to_dict()


def _difference(first: Sequence[float], second: Sequence[float], intervals: bool) -> dict[str, Any] | None:
    if not first or not second:
        return None
    if intervals:
        return difference_interval(first, second).to_dict()
    return Interval(mean(first) - mean(second), None, None, min(len(first), len(second))).to_dict()


def _above_zero(estimate: Mapping[str, Any] | None) -> bool:
    return estimate is not None and estimate["low"] is not None and estimate["low"] > 0


def _findings(told: Mapping[str, Any]) -> list[str]:
    """A sentence for each part that the result fits better than the test questions by more than chance would."""
    result = next(row for row in told["programs"] if "result" in row["roles"])
    start = next(row for row in told["programs"] if "start" in row["roles"])
    said = []
    for part in DROVE:
        excess, gap = told["excess"].get(part), result["gaps"][part]
        if _above_zero(excess):
            gain = told["gains"]["over_start"]
            said.append(
                f"Over-fitting to the {_NAMES[part]} questions: there the result gained {gain[part]['mean']:+.3f}, on "
                f"the test questions {gain[TEST]['mean']:+.3f}; {_words(excess)} apart is more than chance. "
                "What carries over is the gain on the test questions."
            )
        elif _above_zero(gap):
            also = "" if start is result else f"; the start by {_words(start['gaps'][part])}"
            said.append(
                f"The result scores higher on the {_NAMES[part]} questions than on the test questions by {_words(gap)}"
                f"{also}: the test questions are harder, or the start knew the others by heart."
            )
    return said


def _words(estimate: Mapping[str, Any]) -> str:
    return f"{estimate['mean']:+.3f} [{estimate['low']:+.3f}, {estimate['high']:+.3f}]"
