"""Programs that win official metrics by degenerate behaviour lose the score that drives selection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from prismem_core.evaluation.score_table import summarise
from prismem_core.jobs.settings import build_job_settings
from prismem_core.jobs.workbench import Workbench
from prismem_core.program import library
from prismem_core.program.program import Program
from prismem_core.tasks.datasets import load

HONEST = library.source("bm25_rag_dates")
DECLINE = "If the memory does not hold the answer, reply: No information available."
RETRIEVE = "def retrieve(self, query: Query) -> str:\n"


def variant(old: str, new: str) -> str:
    assert HONEST.count(old) == 1, old
    return HONEST.replace(old, new)


def retrieving(body: str) -> str:
    return variant(RETRIEVE, f"{RETRIEVE}{body}")


PROGRAMS = {
    "honest": HONEST,
    "always-abstain": retrieving('        return ""\n'),
    "random-abstain": retrieving('        if sum(map(ord, query.query_text)) % 2:\n            return ""\n'),
    "never-abstain": variant(DECLINE, "Always answer."),
    "word-dump": retrieving(
        "        words = dict.fromkeys(w for line in self.lines for w in line.split())\n"
        '        return " ".join(words)[:OUT_CHAR_BUDGET]\n'
    ),
}


@pytest.fixture(scope="module")
def summaries() -> Mapping[str, dict[str, Any]]:
    dataset = load("sample")
    ids = [t.id for t in dataset.tasks if t.history_id in set(list(dataset.histories)[:3])]
    settings = build_job_settings({"embedder": "hashing", "reranker": False})
    with Workbench(dataset, settings) as bench:
        evaluations = {name: bench.evaluator.evaluate(Program(source), ids) for name, source in PROGRAMS.items()}
    assert {name: e.failure for name, e in evaluations.items()} == dict.fromkeys(PROGRAMS)
    return {name: summarise(e) for name, e in evaluations.items()}


def test_the_variants_do_what_their_names_say(summaries: Mapping[str, dict[str, Any]]) -> None:
    declined = {name: s["false_abstentions"] for name, s in summaries.items()}
    assert declined["always-abstain"] == 1.0
    assert declined["never-abstain"] == 0.0
    assert 0.3 < declined["random-abstain"] < 0.8
    assert declined["honest"] < 0.3


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "honest"])
def test_degenerate_programs_lose(summaries: Mapping[str, dict[str, Any]], name: str) -> None:
    assert summaries["honest"]["overall"] > summaries[name]["overall"] + 0.05
    assert summaries["honest"]["score"] > summaries[name]["score"] + 0.02


def test_the_official_metric_alone_would_be_fooled(summaries: Mapping[str, dict[str, Any]]) -> None:
    assert summaries["always-abstain"]["overall"] == 0.0
    assert summaries["always-abstain"]["official"] > 0.1
