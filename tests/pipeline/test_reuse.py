"""What a revision re-executes: nothing but what it changed."""

from __future__ import annotations

import random

import pytest

from prismem_core.pipeline.pipeline import PipelineResult
from prismem_core.program.program import Program

from .conftest import World

DENSE = """
from dataclasses import dataclass, field
import numpy as np

MemoryExtractionInstruction = "Extract the key information from the text into several memory units."
QueryPlanningInstruction = "Given the following question, generate a query to retrieve relevant memory."
AnswerInstruction = (
    "Based on the retrieved memory and the original question, provide a short answer without explanation."
)
TOP = 3


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": "One piece of information worth remembering from the text"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "A query for retrieving information relevant to the question"})


def clean(text):
    return " ".join(text.split())


class Memory:
    def __init__(self, backend):
        self.backend = backend
        self.texts = []
        self.rows = None

    def index(self, units, raw_text):
        new = [clean(unit.memory_text) for unit in units]
        if not new:
            return
        rows = self.backend.embed(new)
        self.rows = rows if self.rows is None else np.concatenate([self.rows, rows])
        self.texts.extend(new)

    def _join(self, texts):
        return "\\n".join(texts)

    def retrieve(self, query):
        if self.rows is None:
            return ""
        scores = self.rows @ self.backend.embed([query.query_text])[0]
        order = np.argsort(-scores, kind="stable")[:TOP]
        return self._join([self.texts[i] for i in order])[:OUT_CHAR_BUDGET]
"""


def run(world: World, source: str, reuse: str = "content") -> PipelineResult:
    return world.pipeline(reuse).run(Program(source), world.histories, world.questions)


def edited(old: str, new: str, source: str = DENSE) -> str:
    assert source.count(old) == 1
    return source.replace(old, new)


def test_the_first_run_pays_for_every_stage(world: World) -> None:
    result = run(world, DENSE)
    assert [t.failure for t in result.traces] == [None] * 3
    assert all(t.retrieved and t.answer for t in result.traces)
    assert world.calls() == {
        "extract": 3,
        "plan": 3,
        "answer": 3,
        "embed": 13,
    }  # 12 units and 3 queries, two units repeat


@pytest.mark.parametrize("reuse", ["content", "paper", "off"])
def test_running_again_pays_for_nothing(world: World, reuse: str) -> None:
    first = run(world, DENSE, reuse)
    world.calls()
    again = run(world, DENSE, reuse)
    assert world.calls() == {}
    assert again.traces == first.traces
    assert again.usage == first.usage


@pytest.mark.parametrize("reuse", ["content", "paper"])
def test_a_comment_costs_nothing(world: World, reuse: str) -> None:
    run(world, DENSE, reuse)
    world.calls()
    run(world, edited("TOP = 3", "# how many\nTOP = 3  # lines"), reuse)
    assert world.calls() == {}


@pytest.mark.parametrize("reuse", ["content", "paper"])
def test_a_retrieval_edit_leaves_extraction_and_indexing_alone(world: World, reuse: str) -> None:
    run(world, DENSE, reuse)
    world.calls()
    result = run(world, edited('return ""', 'return "nothing"'), reuse)
    paid = world.calls()
    assert "extract" not in paid
    assert "embed" not in paid
    assert paid == ({} if reuse == "content" else {"plan": 3, "answer": 3})
    assert [t.failure for t in result.traces] == [None] * 3


def test_a_retrieval_edit_with_an_effect_pays_for_answers_only(world: World) -> None:
    before = run(world, DENSE)
    world.calls()
    after = run(world, edited("np.argsort(-scores", "np.argsort(scores"))
    assert world.calls() == {"answer": 3}
    assert all(a.retrieved != b.retrieved for a, b in zip(after.traces, before.traces, strict=True))


@pytest.mark.parametrize("reuse", ["content", "paper"])
def test_an_answer_edit_pays_for_answers_only(world: World, reuse: str) -> None:
    before = run(world, DENSE, reuse)
    world.calls()
    after = run(world, edited("provide a short answer", "say when it happened, with a date, in a short answer"), reuse)
    assert world.calls() == {"answer": 3}
    assert [t.retrieved for t in after.traces] == [t.retrieved for t in before.traces]


def test_a_helper_that_only_retrieval_uses_does_not_restart_indexing(world: World) -> None:
    run(world, DENSE)
    world.calls()
    run(world, edited('"\\n".join(texts)', '" \\n".join(texts)'))
    assert world.calls() == {"answer": 3}


def test_without_reuse_every_model_call_is_repeated(world: World) -> None:
    run(world, DENSE, "off")
    world.calls()
    run(world, edited("TOP = 3", "TOP = 2"), "off")
    assert world.calls() == {"extract": 3, "plan": 3, "answer": 3, "embed": 13}


def test_a_new_unit_field_starts_at_extraction(world: World) -> None:
    run(world, DENSE)
    world.calls()
    field = '    date: str = field(default="", metadata={"description": "Date of the session"})\n'
    changed = edited("\n\n@dataclass\nclass Query", f"\n{field}\n\n@dataclass\nclass Query")
    result = run(world, changed)
    paid = world.calls()
    assert paid["extract"] == 3
    assert "plan" not in paid
    assert result.histories["one"].units[0]["date"] == "8 May 2023"


EDITS = [
    ("TOP = 3", "TOP = 2"),
    ("TOP = 3", "TOP = 5"),
    ("np.argsort(-scores", "np.argsort(scores"),
    ('" ".join(text.split())', '" ".join(text.split()).lower()'),
    ('"\\n".join(texts)', '"\\n".join(reversed(texts))'),
    ("self.texts.extend(new)", 'self.texts.extend("> " + t for t in new)'),
    ("generate a query to retrieve", "write a query to find"),
    ("provide a short answer", "say when, with a date, in a short answer"),
    ("worth remembering", "worth knowing"),
]


def test_cached_runs_of_random_edits_equal_cold_ones(world: World) -> None:
    rng = random.Random(7)
    for _ in range(8):
        source = DENSE
        for old, new in rng.sample(EDITS, 3):
            source = source.replace(old, new)
        warm = run(world, source)
        cold = run(World(world.sandbox), source)
        assert warm.traces == cold.traces
        assert warm.usage == cold.usage


def test_the_number_of_workers_changes_nothing(world: World) -> None:
    one = World(world.sandbox)
    results = [w.pipeline(workers=n).run(Program(DENSE), w.histories, w.questions) for w, n in ((world, 2), (one, 1))]
    assert results[0].traces == results[1].traces
    assert results[0].usage == results[1].usage


def test_a_failing_program_is_a_failure_of_each_question_it_touches(world: World) -> None:
    result = run(world, edited("order = np", "order = None if 'Dan' in query.query_text else np"))
    kinds = [t.failure.kind if t.failure else None for t in result.traces]
    assert kinds == [None, "error", None]
    failure = result.traces[1].failure
    assert failure is not None
    assert failure.line is not None
    assert "line" in failure.message or "TypeError" in failure.message


def test_failures_are_not_stored(world: World) -> None:
    broken = edited("return self._join(", 'raise ValueError("no")\n        return self._join(')
    assert all(t.failure for t in run(world, broken).traces)
    assert world.cache.counters()["retrieve"].stores == 0
