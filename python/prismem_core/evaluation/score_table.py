"""Score tables: means by capability and native type of everything an evaluation measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prismem_core.errors import FAILURE_KINDS
from prismem_core.evaluation.evaluate import Evaluation
from prismem_core.evaluation.means import mean, mean_or_none
from prismem_core.tasks.capability import CAPABILITIES

FAULTS_SHOWN = 20


def summarise(evaluation: Evaluation) -> dict[str, Any]:
    """The summary of an evaluation as plain, deterministic JSON: scores, official metrics, recall, counts, logical
    usage. `extraction_faults`, where there are any, names the first of what was dropped.
    """
    outcomes = list(evaluation.outcomes.values())
    faults = evaluation.extraction_faults
    return {
        **summarise_outcomes([outcome.to_dict() for outcome in outcomes]),
        "dropped_units": evaluation.dropped_units,
        "unread_segments": evaluation.unread_segments,
        "unread_answers": evaluation.defects("empty"),
        "cut_answers": evaluation.defects("cut"),
        "usage": evaluation.usage.to_dict(),
        **({"extraction_faults": faults[:FAULTS_SHOWN]} if faults else {}),
    }


def summarise_outcomes(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over outcome rows (`Outcome.to_dict`).

    `overall` is the mean over the capabilities present, `score` the mean over questions; `official` likewise.
    `official_answerable` is the official metric over answerable questions (LoCoMo: categories 1-4),
    `false_abstentions` the share of them that were declined. Rows without a value are left out of a mean: of
    `questions`, `scored` have a score and `left_out` counts the others by kind (`errors.FAILURE_KINDS`); `over` says
    over how many each of the other means runs.
    """
    by_capability = {}
    for capability in CAPABILITIES:
        own = [row for row in rows if row["primary"] == capability]
        if own:
            by_capability[str(capability)] = _means(own)
    by_type: dict[str, dict[str, Any]] = {}
    for native_type in dict.fromkeys(row["native_type"] for row in rows):
        by_type[native_type] = _means([row for row in rows if row["native_type"] == native_type])
    whole = _means(rows)
    answerable = [row for row in rows if row["answerable"]]
    means = _means(answerable)
    declined = [row["parts"]["abstained"] for row in answerable if "abstained" in row["parts"]]
    more = {"official_answerable": means["over"]["official"], "false_abstentions": len(declined)}
    return {
        **whole,
        "over": whole["over"] | more,
        "official_answerable": means["official"],
        "false_abstentions": mean(declined) if declined else None,
        "overall": _over_capabilities(by_capability, "score"),
        "official_overall": _over_capabilities(by_capability, "official"),
        "capabilities": by_capability,
        "native_types": by_type,
    }


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def values(value: Callable[[Mapping[str, Any]], float | None]) -> list[float]:
        return [found for row in rows if (found := value(row)) is not None]

    names = dict.fromkeys(name for row in rows for name in row["official_parts"])
    parts = {name: values(_part(name)) for name in names}
    measured = {
        "official": values(lambda row: row["official"]),
        "recall": values(lambda row: row["recall"]),
        "retrieved_chars": values(lambda row: float(row["retrieved_chars"]) if row["failure"] is None else None),
    }
    return {
        "questions": len(rows),
        "scored": sum(row["score"] is not None for row in rows),
        "left_out": {kind: sum(row["left_out"] == kind for row in rows) for kind in FAILURE_KINDS},
        "score": mean_or_none(values(lambda row: row["score"])),
        **{name: mean_or_none(found) for name, found in measured.items()},
        "official_parts": {name: mean_or_none(found) for name, found in parts.items()},
        "over": {
            **{name: len(found) for name, found in measured.items()},
            "official_parts": {name: len(found) for name, found in parts.items()},
        },
    }


def _over_capabilities(by_capability: Mapping[str, Mapping[str, Any]], key: str) -> float | None:
    """The mean over capabilities; where there are questions and none has a value, that is no zero."""
    values = [m[key] for m in by_capability.values() if m[key] is not None]
    return mean(values) if values or not by_capability else None


def _part(name: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda row: row["official_parts"].get(name)
