"""Score tables: what counts in which mean, and what is left out of it."""

from __future__ import annotations

from typing import Any

import pytest

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
    return plain | changes


def failed(primary: str) -> dict[str, Any]:
    failure = {"stage": "retrieve", "kind": "error", "message": "it broke"}
    return row(primary, None, None, retrieved_chars=0, failure=failure)


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
    assert (table["questions"], table["scored"], table["failed"]) == (3, 1, 2)
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
    assert (table["questions"], table["scored"], table["failed"], table["unscored"]) == (3, 1, 1, 1)
    assert table["score"] == table["overall"] == 1.0 and table["official"] == 0.5
    none = summarise_outcomes(rows[:1])
    assert none["score"] is None and none["overall"] is None and none["official_overall"] == 0.25
