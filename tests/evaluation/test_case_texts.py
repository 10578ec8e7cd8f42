"""The texts of a case as a prompt shows them: what bears on it, embedded in one call for all cases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.clients.offline.embedders import HashingEmbedder
from prismem_core.errors import RoleError
from prismem_core.evaluation.cases import Case, EvidenceView
from prismem_core.evaluation.compaction import MARK, CaseTexts, cues_of
from prismem_core.tasks.capability import Capability

TALK = [
    f"user: We spoke about the weather of day {i}, and it rained.\nassistant: It may rain again." for i in range(60)
]
PLACE = "user: I moved to Lisbon in May."
PET = "user: My parrot is called Quill."
SESSION = "[Session 3 | 2024-05-02]\n" + "\n".join([*TALK[:20], PLACE, *TALK[20:40], PET, *TALK[40:]])
UNITS = tuple(
    json.dumps({"memory_text": text})
    for text in [*(f"It rained on day {i}, which the user did not mind at all." for i in range(60)), "Moved to Lisbon."]
)


class Counting:
    """A hashing embedder that notes what it is asked for."""

    identity = "counting"

    def __init__(self) -> None:
        self.own = HashingEmbedder()
        self.calls: list[list[str]] = []

    @property
    def dimension(self) -> int:
        return self.own.dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        return self.own.embed(texts)


def case(task_id: str = "q1", **changes: object) -> Case:
    made = Case(
        task_id,
        Capability.TEMPORAL,
        (),
        "When did the user move?",
        "In May",
        "In June",
        0.0,
        None,
        {},
        "\n".join(TALK) + "\nI moved to Lisbon in May.",
        (
            EvidenceView("I moved to Lisbon in May.", SESSION, UNITS),
            EvidenceView("My parrot is called Quill.", SESSION, UNITS),
        ),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def test_what_bears_on_the_case_is_shown() -> None:
    texts = CaseTexts(HashingEmbedder(), [case()])
    for budget in (2400, 600, 200):
        for text in (SESSION, case().retrieved_text):
            shown = texts.excerpt(case(), text, budget)
            assert len(shown) <= budget
            assert "I moved to Lisbon in May." in shown and MARK in shown
        assert "My parrot is called Quill." in texts.excerpt(case(), SESSION, budget)
        assert texts.excerpt(case(), SESSION, budget).startswith(f"{MARK}\n[Session 3 | 2024-05-02]\n")
    assert texts.excerpt(case(), SESSION, len(SESSION)) == SESSION


def test_the_best_unit_of_each_snippet_is_shown_at_every_budget() -> None:
    texts = CaseTexts(HashingEmbedder(), [case()])
    for budget in (2400, 600, 200, 1):
        units = texts.units(case(), 0, budget)
        assert UNITS[-1] in units, "the one about Lisbon"
        assert units == texts.units(case(), 1, budget), "both snippets come from the same source"
        assert units == [unit for unit in UNITS if unit in units]
        assert sum(map(len, units)) + len(units) - 1 <= budget or len(units) <= 2
    assert CaseTexts(HashingEmbedder(), []).units(case(evidence=(EvidenceView("e", ""),)), 0, 100) == []


def test_all_cases_are_embedded_in_one_call() -> None:
    embedder = Counting()
    other = case("q2", question="What is the parrot called?", predicted=" ")
    texts = CaseTexts(embedder, [case(), other])
    assert embedder.calls == [], "nothing before it is needed"
    for own in (case(), other):
        texts.excerpt(own, SESSION, 2400)
        texts.excerpt(own, own.retrieved_text, 2400)
        texts.units(own, 0, 2400)
    [asked] = embedder.calls
    assert len(asked) == len(set(asked))
    assert {*cues_of(case()).texts, *cues_of(other).texts, *UNITS} <= set(asked)
    texts.excerpt(other, SESSION, 600)
    assert len(embedder.calls) == 1, "all were embedded"


def test_what_was_short_enough_before_costs_one_more_call() -> None:
    embedder = Counting()
    short = case(retrieved_text="user: It rained.\n" * 40, evidence=())
    texts = CaseTexts(embedder, [case(), short])
    texts.excerpt(case(), SESSION, 2400)
    for budget in (600, 300, 200):
        assert len(texts.excerpt(short, short.retrieved_text, budget)) <= budget
    assert len(embedder.calls) == 2
    assert "It rained." in embedder.calls[1] and not set(embedder.calls[0]) & set(embedder.calls[1])


def test_short_texts_without_units_cost_nothing() -> None:
    embedder = Counting()
    short = case(retrieved_text="It rained.", evidence=(EvidenceView("rained", "It rained."), EvidenceView("x", "")))
    texts = CaseTexts(embedder, [short])
    assert texts.excerpt(short, "It rained.", 2400) == "It rained."
    assert [texts.units(short, i, 2400) for i in (0, 1)] == [[], []]
    assert embedder.calls == []


def test_an_embedder_that_fails_is_not_passed_over() -> None:
    class Down(Counting):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            raise RoleError("the server is away")

    with pytest.raises(RoleError, match="away"):
        CaseTexts(Down(), [case()]).excerpt(case(), SESSION, 2400)
