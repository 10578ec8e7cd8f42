"""Official metrics against the golden vectors, and the lexical judge's rules by metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prismem_core.evaluation.judge import LexicalJudge
from prismem_core.evaluation.metrics import (
    bleu1,
    evidence_recall,
    f1_multi,
    f1_multi_symmetric,
    f1_set,
    is_abstention,
    official_f1,
    plain_coverage,
    rubric_coverage,
)
from prismem_core.roles.protocols import Judge
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.task import Task


def task(metric: str, reference: str = "", rubric: tuple[str, ...] = (), question: str = "What is it?") -> Task:
    return Task("t", "h", question, reference, (), "native", Capability.FACTUAL_RETRIEVAL, metric=metric, rubric=rubric)


@pytest.mark.parametrize(("name", "metric"), [("f1", official_f1), ("f1_multi", f1_multi), ("bleu1", bleu1)])
def test_golden_metrics(golden: Callable[[str], Any], name: str, metric: Callable[[str, str], float]) -> None:
    vectors = golden("trimem")[name]
    assert vectors
    for vector in vectors:
        assert metric(vector["prediction"], vector["reference"]) == pytest.approx(vector["expect"], abs=1e-9), vector


def test_f1_set_keeps_articles_and_does_not_stem() -> None:
    assert f1_set("the cats", "the cat") == pytest.approx(0.5)
    assert f1_set('"A, b"', "a b") == 1.0
    assert f1_set("", "a") == 0.0


def test_symmetric_multi_hop_charges_for_parts_that_match_nothing() -> None:
    reference = "pottery, camping"
    honest, dump = "pottery, camping", "pottery, camping, one, two, three, four, five, six"
    assert f1_multi(dump, reference) == f1_multi(honest, reference) == 1.0
    assert f1_multi_symmetric(honest, reference) == 1.0
    assert f1_multi_symmetric(dump, reference) == pytest.approx(2 * 0.25 / 1.25)
    assert f1_multi_symmetric("x", "y") == 0.0


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("No information available", True),
        ("That is NOT MENTIONED in the conversation.", True),
        ("There is no information", False),
        ("", False),
    ],
)
def test_abstention_is_one_of_two_phrases(reply: str, expected: bool) -> None:
    assert is_abstention(reply) is expected


def test_judge_scores_by_metric() -> None:
    judge = LexicalJudge()
    assert isinstance(judge, Judge)
    assert judge.score(task("f1", "7 May 2023"), "May 7, 2023").score == 1.0
    assert judge.score(task("f1_first", "yes; because he said so"), "Yes").score == 1.0
    assert judge.score(task("abstention"), "Not mentioned").score == 1.0
    assert judge.score(task("abstention"), "a cat").score == 0.0
    multi = judge.score(task("f1_multi", "a cat, dogs"), "dog")
    assert multi.score == 0.5
    assert multi.parts["f1_multi_symmetric"] == pytest.approx(2 / 3)
    assert judge.score(task("f1", "x"), "not mentioned").parts["abstained"] == 1.0


def test_judge_counts_only_what_the_question_does_not_say() -> None:
    rubric = ("LLM response should state: the sprint ends on March 29",)
    asked = task("rubric", "March 29", rubric, "When does my first sprint end?")
    echo, told = LexicalJudge().score(asked, asked.question), LexicalJudge().score(asked, "On March 29.")
    assert echo.score == 0.0
    assert echo.parts["coverage_plain"] == pytest.approx(0.5)
    assert told.score == 1.0


def test_coverage_cuts_the_reply_and_drops_boilerplate() -> None:
    rubric = (
        "LLM response should mention: there is contradictory information",
        "LLM response should state: blue boats",
    )
    assert plain_coverage("contradictory information", rubric) == pytest.approx(0.5)
    shared = frozenset({"there is contradictory information"})
    assert rubric_coverage("contradictory information", rubric, "", shared) == 0.0
    assert rubric_coverage("blue boats", rubric, "", shared) == 1.0
    assert rubric_coverage("filler " * 80 + "blue boats", rubric, "", shared) == 0.0
    assert rubric_coverage("blue boats", rubric, "blue boats contradictory information") == pytest.approx(0.5)
    assert rubric_coverage("anything", (), "") == 0.0


def test_boilerplate_is_part_of_the_identity() -> None:
    assert LexicalJudge().identity != LexicalJudge(frozenset({"x"})).identity


def test_evidence_recall_wants_whole_snippets_in_normal_form() -> None:
    assert evidence_recall(["A  Red\nKayak", "a red kayak", "tea"], "Ana: a red KAYAK today") == 0.5
    assert evidence_recall(["a red kayak"], "a red") == 0.0
    assert evidence_recall(["  "], "a red") is None
