"""Score tables: what counts in which mean, and what is left out of it."""

from __future__ import annotations

from typing import Any

import pytest

from prismem_core.errors import FAILURE_KINDS, failure_kind
from prismem_core.evaluation.score_table import summarise_outcomes


def row(primary: str, score: float | None, official: float | None = 0.0, **changes: Any) -> dict[str, Any]:
    plain = {
        "primary": primary,
        "native_type": primary,
        "answerable": True,
        "retrieved_chars": 10,
        "score": score,
        "parts": {},
        "official": official,
        "official_parts": {},
        "recall": None,
        "failure": None,
    }
    plain["left_out"] = "judge" if score is None else None
    return plain | changes


def failed(primary: str, kind: str = "error") -> dict[str, Any]:
    failure = {"stage": "retrieve", "kind": kind, "message": "it broke"}
    return row(primary, None, None, retrieved_chars=0, failure=failure, left_out=failure_kind(kind))


def test_overall_is_the_mean_over_the_capabilities_present() -> None:
    rows = [row("factual_retrieval", s, s) for s in (1.0, 0.0, 0.5)] + [row("adversarial", 1.0, 0.0)]
    table = summarise_outcomes(rows)
    assert table["overall"] == 0.75 and table["score"] == 0.625
    assert table["official_overall"] == 0.25 and table["official"] == 0.375
    assert list(table["capabilities"]) == ["factual_retrieval", "adversarial"]
    assert summarise_outcomes([])["overall"] == 0.0


def test_what_failed_is_in_no_mean_and_both_counts_are_shown() -> None:
    rows = [row("temporal", 0.5, 0.25, recall=1.0), failed("temporal"), failed("adversarial")]
    table = summarise_outcomes(rows)
    assert (table["questions"], table["scored"]) == (3, 1)
    assert table["left_out"] == {"provider": 0, "judge": 0, "candidate": 2, "limit": 0}
    assert table["over"] == {
        "official": 1,
        "recall": 1,
        "retrieved_chars": 1,
        "official_parts": {},
        "official_answerable": 1,
        "false_abstentions": 0,
    }
    assert table["score"] == table["overall"] == 0.5
    assert table["official"] == table["official_overall"] == 0.25
    assert table["recall"] == 1.0 and table["retrieved_chars"] == 10.0
    assert table["capabilities"]["temporal"]["score"] == 0.5
    assert table["capabilities"]["adversarial"]["score"] is None


def test_declined_answers_are_counted_over_answerable_questions_alone() -> None:
    rows = [
        row("factual_retrieval", 0.0, 0.0, parts={"abstained": 1.0}),
        row("factual_retrieval", 1.0, 0.5, parts={"abstained": 0.0}),
        row("adversarial", 1.0, 1.0, parts={"abstained": 1.0}, answerable=False),
    ]
    table = summarise_outcomes(rows)
    assert table["false_abstentions"] == 0.5
    assert table["official_answerable"] == 0.25
    assert table["official"] == pytest.approx(0.5)


def test_what_no_verdict_could_be_read_of_is_counted_apart_and_never_a_zero() -> None:
    rows = [row("temporal", None, 0.25), row("temporal", 1.0, 0.75), failed("temporal")]
    table = summarise_outcomes(rows)
    assert (table["questions"], table["scored"]) == (3, 1)
    assert table["left_out"] == {"provider": 0, "judge": 1, "candidate": 1, "limit": 0}
    assert table["over"]["official"] == 2 and table["capabilities"]["temporal"]["left_out"] == table["left_out"]
    assert table["score"] == table["overall"] == 1.0 and table["official"] == 0.5
    none = summarise_outcomes(rows[:1])
    assert none["score"] is None and none["overall"] is None and none["official_overall"] == 0.25


def test_the_four_kinds_of_failure_are_counted_apart() -> None:
    kinds = ["error", "invalid", "died", "structured_output", "limit:cpu", "limit:memory", "provider"]
    rows = [*(failed("temporal", kind) for kind in kinds), row("temporal", None), row("temporal", 0.25)]
    table = summarise_outcomes(rows)
    assert (table["questions"], table["scored"], table["score"]) == (9, 1, 0.25)
    assert table["left_out"] == {"provider": 1, "judge": 1, "candidate": 4, "limit": 2}
    assert table["native_types"]["temporal"]["left_out"] == table["left_out"]
    assert set(table["left_out"]) == set(FAILURE_KINDS)
