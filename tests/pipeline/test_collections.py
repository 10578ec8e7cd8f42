"""Programs with collections in the pipeline: the same hits, shared by content, whatever goes together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.clients.offline.embedders import HashingEmbedder
from prismem_core.digests import digest
from prismem_core.errors import RoleError
from prismem_core.pipeline.pipeline import Pipeline, PipelineResult, PipelineSettings
from prismem_core.program.program import Program
from prismem_core.program.sandbox import CollectionLimits, Limits
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.tasks.history import History, Session, Turn

from .conftest import World
from .test_reuse import DENSE, edited

HELD = edited(
    """        rows = self.backend.embed(new)
        self.rows = rows if self.rows is None else np.concatenate([self.rows, rows])
        self.texts.extend(new)
""",
    """        self.rows = self.rows or self.backend.collection()
        self.rows.add(new)
        self.texts.extend(new)
""",
    edited(
        """        scores = self.rows @ self.backend.embed([query.query_text])[0]
        order = np.argsort(-scores, kind="stable")[:TOP]
        return self._join([self.texts[i] for i in order])[:OUT_CHAR_BUDGET]
""",
        """        hits = self.rows.search(query.query_text, TOP)
        return self._join([self.texts[i] for i, _ in hits])[:OUT_CHAR_BUDGET]
""",
    ),
)


def run(world: World, source: str = HELD, **settings: object) -> PipelineResult:
    pipeline = world.pipeline(interface="engine", **settings)
    return pipeline.run(Program(source), world.histories, world.questions)


def test_the_same_search_finds_the_same(world: World) -> None:
    found = run(world)
    arrays = world.pipeline().run(Program(DENSE), world.histories, world.questions)
    assert found.traces == arrays.traces
    assert all(trace.retrieved for trace in found.traces)
    logical = found.usage.to_dict()
    assert logical.pop("collections") == {"calls": 6, "texts": 12}
    assert logical == arrays.usage.to_dict()


def test_neither_workers_nor_copies_change_a_result(world: World, many: list[tuple[str, str]]) -> None:
    world.questions = many
    alone = run(world, workers=1, copies=1)
    launches = world.ledger.launches()
    assert launches.batches == len(many)
    other = World(world.sandbox)
    other.questions = many
    together = run(other, workers=3, copies=16)
    assert (together.traces, together.usage) == (alone.traces, alone.usage)
    assert other.ledger.launches().calls == len(many)
    assert other.ledger.launches().batches < len(many)
    assert other.ledger.totals() == world.ledger.totals()


@pytest.fixture
def many(world: World) -> list[tuple[str, str]]:
    return [(("one", "two")[n % 2], f"{question} {n}") for n in range(8) for _, question in world.questions]


def test_a_revision_of_retrieve_shares_what_was_indexed(world: World) -> None:
    pipeline = world.pipeline(interface="engine")
    pipeline.run(Program(HELD), world.histories, world.questions)
    assert world.calls()["embed"] == 13
    revised = edited("TOP = 3", "TOP = 2", HELD)
    result = pipeline.run(Program(revised), world.histories, world.questions)
    assert all(len(trace.retrieved.split("\n")) == 2 for trace in result.traces)
    assert "embed" not in world.calls()


def test_after_a_restart_the_handle_works_again_and_nothing_is_paid_twice(world: World) -> None:
    run(world)
    world.calls()
    asked = world.questions
    world.questions = [("one", "What about the harbour?")]
    result = run(world)
    assert result.traces[0].retrieved
    assert world.calls() == {"plan": 1, "answer": 1, "embed": 1}
    world.questions = asked
    assert run(world).traces == run(World(world.sandbox)).traces
    assert world.calls() == {}


def test_what_a_memory_finds_is_its_own(world: World) -> None:
    def told(place: str) -> History:
        turns = (Turn("1", "Ann", f"I live in {place}."), Turn("2", "Bob", "The same as ever here."))
        return History(place, (Session("1", "8 May 2023", turns),))

    world.histories = {place: told(place) for place in ("Oslo", "Lima")}
    world.questions = [("Oslo", "Where does Ann live?"), ("Lima", "Where does Ann live?"), ("Oslo", "Who is Bob?")]
    texts = [trace.retrieved for trace in run(world, copies=8).traces]
    assert ["Oslo" in text for text in texts] == [True, False, True]
    assert ["Lima" in text for text in texts] == [False, True, False]


def test_two_programs_with_equal_collections_embed_once(world: World) -> None:
    pipeline = world.pipeline(interface="engine")
    pipeline.run(Program(HELD), world.histories, world.questions)
    world.calls()
    other = edited("self.texts = []", "self.texts = list()", HELD)
    other = edited("Extract the key information", "Extract all key information", other)
    result = pipeline.run(Program(other), world.histories, world.questions)
    assert all(trace.failure is None for trace in result.traces)
    assert "embed" not in world.calls()


@pytest.mark.parametrize("copies", [1, 8])
def test_a_failure_counts_from_the_first_question_it_touches_on(world: World, copies: int) -> None:
    world.questions = [("one", f"What did Ann paint on {n}?") for n in range(5)]
    broken = edited(
        "hits = self.rows.search(", "assert ' 2' not in query.query_text\n        hits = self.rows.search(", HELD
    )
    result = run(world, broken, copies=copies)
    assert [trace.failure is not None for trace in result.traces] == [False, False, True, True, True]
    assert result.traces[3].failure == result.traces[2].failure
    assert "AssertionError" in str(result.traces[4].failure)
    assert result.usage.collection_calls == 2 + 2, "what came after the failure does not count"


def test_a_program_that_cannot_be_built_fails_each_question_once(world: World) -> None:
    broken = edited("self.rows.add(new)", "self.rows.add(texts=new, k=1)", HELD)
    failures = [trace.failure for trace in run(world, broken).traces]
    assert all(f is not None and f.stage == "index" and "TypeError" in f.message and f.line for f in failures)


class DownEmbedder(HashingEmbedder):
    """Embeds what is indexed and is away when a question comes."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any("Ann paint" in text for text in texts):
            raise RoleError("the embedder is away")
        return super().embed(texts)


def test_an_embedder_that_fails_in_a_search_is_no_fault_of_the_program(world: World) -> None:
    pipeline = Pipeline(
        CachedChat(world.chat, world.cache, world.ledger),
        CachedEmbedder(DownEmbedder(), world.cache, world.ledger),
        world.cache,
        world.sandbox,
        PipelineSettings(interface="engine"),
    )
    with pytest.raises(RoleError, match="the embedder is away"):
        pipeline.run(Program(HELD), world.histories, world.questions)
    assert all(trace.failure is None for trace in run(world).traces)


def test_the_interface_and_its_limits_are_part_of_the_keys() -> None:
    paper = PipelineSettings().digest
    assert paper == digest("settings", 8192, repr(Limits())), "keys of interface paper stay as they were"
    engine = PipelineSettings(interface="engine").digest
    narrow = PipelineSettings(interface="engine", collections=CollectionLimits(pool=100)).digest
    assert len({paper, engine, narrow}) == 3
    assert PipelineSettings(interface="engine", copies=1, workers=9).digest == engine
    assert PipelineSettings(collections=CollectionLimits(pool=100)).digest == paper


def test_a_program_without_collections_runs_the_same_under_both(world: World) -> None:
    paper = world.pipeline().run(Program(DENSE), world.histories, world.questions)
    engine = run(world, DENSE)
    assert (engine.traces, engine.usage) == (paper.traces, paper.usage)
    assert "collections" not in engine.usage.to_dict()
    assert world.ledger.launches().calls == 0
