"""Memories that a pipeline keeps: nobody can tell but by the clock, whatever is kept, dropped or killed."""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from prismem_core.pipeline.pipeline import Pipeline
from prismem_core.program import grafting
from prismem_core.program.program import Program
from prismem_core.program.sandbox import BackendHandler, CollectionLimits, Limits, MemoryWorker, Sandbox
from prismem_core.roles.protocols import ChatReply, ChatRequest

from .conftest import CountingChat, World
from .test_collections import HELD
from .test_reuse import DENSE, edited

SOURCES = [edited("TOP = 3", f"TOP = {top}") for top in (3, 4, 5, 6)]
OTHER = edited('" ".join(text.split())', "text.strip().lower()")


class BuildingSandbox(Sandbox):
    """Notes the workers that were opened for programs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.opened: list[MemoryWorker] = []

    def open(
        self,
        source: str,
        backend: BackendHandler,
        limits: Limits | None = None,
        collections: CollectionLimits | None = None,
    ) -> MemoryWorker:
        self.opened.append(super().open(source, backend, limits, collections))
        return self.opened[-1]

    def built(self) -> int:
        """Memories built since the last look."""
        count = len(self.opened) - self._seen
        self._seen = len(self.opened)
        return count

    _seen = 0


@pytest.fixture(scope="module")
def counting_sandbox() -> Iterator[BuildingSandbox]:
    with BuildingSandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(counting_sandbox: BuildingSandbox) -> BuildingSandbox:
    counting_sandbox.built()
    return counting_sandbox


FAILING = edited(
    "scores = self.rows @",
    "assert 'live' not in query.query_text.lower(), query.query_text\n        scores = self.rows @",
)
HELD_REVISIONS = [edited("TOP = 3", f"TOP = {top}", HELD) for top in (3, 2, 1)]
PROGRAMS = [*SOURCES, FAILING, SOURCES[0], OTHER, edited("TOP = 3", "TOP = 1", OTHER), FAILING]


def told(world: World, pipeline: Pipeline, sources: Sequence[str]) -> list[Any]:
    """All that runs leave behind: traces, usage, the ledger, the keys in the cache."""
    results = [pipeline.run(Program(source), world.histories, world.questions) for source in sources]
    found: list[Any] = [(result.traces, result.usage.to_dict()) for result in results]
    return [*found, world.ledger.totals(), world.cache.known, world.calls()]


@pytest.mark.parametrize(("interface", "sources"), [("paper", PROGRAMS), ("engine", HELD_REVISIONS)])
def test_keeping_dropping_and_building_anew_leave_the_same_behind(
    sandbox: BuildingSandbox, interface: str, sources: list[str]
) -> None:
    built = {}
    outcomes = {}
    world = World(sandbox)
    pipeline = world.pipeline(interface=interface)
    pipeline.run(Program(sources[0]), world.histories, world.questions)
    room_for_one = int(1.5 * min(worker.private_bytes() for worker in sandbox.opened[-2:]))
    sandbox.built()
    for name, budget in {"off": 0, "on": 1 << 30, "evicted": room_for_one}.items():
        world = World(sandbox)
        with_pool = world.pipeline(frozen_bytes=budget, interface=interface)
        outcomes[name] = told(world, with_pool, sources)
        with_pool.close()
        built[name] = sandbox.built()
    assert outcomes["on"] == outcomes["off"]
    assert outcomes["evicted"] == outcomes["off"]
    assert built["on"] < built["evicted"] <= built["off"]


def test_the_cache_notes_what_a_reused_memory_was_built_of(sandbox: BuildingSandbox) -> None:
    noted = []
    for budget in (0, 1 << 30):
        world = World(sandbox)
        pipeline = world.pipeline(frozen_bytes=budget)
        with world.cache.tagged(run="run"):
            for source in SOURCES[:2]:
                pipeline.run(Program(source), world.histories, world.questions)
        programs = [Program(source).digest for source in SOURCES[:2]]
        noted.append([{(e.stage, e.key) for e in world.cache.entries(program=program)} for program in programs])
    assert noted[0] == noted[1]
    assert len({key for stage, key in noted[1][1] if stage == "embed"}) > 10


def test_a_revision_of_retrieve_builds_nothing(sandbox: BuildingSandbox) -> None:
    world = World(sandbox)
    pipeline = world.pipeline()
    pipeline.run(Program(SOURCES[0]), world.histories, world.questions)
    assert sandbox.built() == 2
    for source in SOURCES[1:]:
        pipeline.run(Program(source), world.histories, world.questions)
    world.questions = [(history, question + " Why?") for history, question in world.questions]
    pipeline.run(Program(SOURCES[2]), world.histories, world.questions)
    assert sandbox.built() == 0
    pipeline.run(Program(OTHER), world.histories, world.questions)
    assert sandbox.built() == 2


@pytest.mark.parametrize("reuse", ["paper", "off"])
def test_other_modes_keep_what_their_keys_share(sandbox: BuildingSandbox, reuse: str) -> None:
    world = World(sandbox)
    pipeline = world.pipeline(reuse)
    pipeline.run(Program(SOURCES[0]), world.histories, world.questions)
    sandbox.built()
    revised = edited("self.rows is None:", "self.rows is None or not self.texts:")
    pipeline.run(Program(revised), world.histories, world.questions)
    assert sandbox.built() == (0 if reuse == "paper" else 2)
    world.questions = [*world.questions[:1], ("two", "Who is Cleo?")]
    pipeline.run(Program(revised), world.histories, world.questions)
    assert sandbox.built() == 0


def test_where_workers_cannot_be_copied_memories_are_built_again(sandbox: BuildingSandbox) -> None:
    world = World(sandbox)
    expected = told(world, world.pipeline(), [*SOURCES[:2], FAILING])
    with BuildingSandbox(without=("copies",)) as lacking:
        world = World(lacking)
        assert told(world, world.pipeline(), [*SOURCES[:2], FAILING]) == expected
        assert lacking.built() == 6


def test_a_failure_is_told_by_a_memory_of_the_programs_own(sandbox: BuildingSandbox) -> None:
    world, cold = World(sandbox), World(sandbox)
    pipeline = world.pipeline()
    pipeline.run(Program(SOURCES[0]), world.histories, world.questions)
    sandbox.built()
    moved = "# more\n" + FAILING
    found = pipeline.run(Program(moved), world.histories, world.questions).traces
    assert sandbox.built() == 1
    assert found == cold.pipeline().run(Program(moved), cold.histories, cold.questions).traces
    assert [trace.failure is not None for trace in found] == [False, True, False]


def test_a_pipeline_that_is_closed_or_forgotten_leaves_no_process(sandbox: BuildingSandbox) -> None:
    world = World(sandbox)
    pipeline = world.pipeline()
    pipeline.run(Program(DENSE), world.histories, world.questions)
    workers = sandbox.opened[-2:]
    assert all(worker.private_bytes() > 0 for worker in workers)
    pipeline.close()
    assert all(worker.private_bytes() == 0 for worker in workers)
    pipeline.run(Program(SOURCES[1]), world.histories, world.questions)
    assert all(worker.private_bytes() == 0 for worker in sandbox.opened[-2:])
    pipeline = world.pipeline()
    pipeline.run(Program(SOURCES[2]), world.histories, world.questions)
    del pipeline
    assert all(worker.private_bytes() == 0 for worker in sandbox.opened[-2:])


def kill(worker: MemoryWorker, pid: int | None = None) -> None:
    """Kill the worker, or the process `pid` that it dies with; returns when its copies have been sent their end too."""
    ended = os.pidfd_open(worker.pid)
    os.kill(pid or worker.pid, signal.SIGKILL)
    assert select.select([ended], [], [], 30)[0]
    os.close(ended)


def kill_zygote(sandbox: BuildingSandbox) -> None:
    assert sandbox.zygote_pid is not None
    kill(sandbox.opened[-1], sandbox.zygote_pid)


@pytest.mark.parametrize("victim", ["workers", "zygote"])
def test_frozen_memories_that_were_killed_are_built_again(sandbox: BuildingSandbox, victim: str) -> None:
    world = World(sandbox)
    pipeline = world.pipeline()
    pipeline.run(Program(SOURCES[0]), world.histories, world.questions)
    assert sandbox.built() == 2
    if victim == "zygote":
        kill_zygote(sandbox)
    else:
        for worker in sandbox.opened[-2:]:
            kill(worker)
    result = pipeline.run(Program(SOURCES[1]), world.histories, world.questions)
    assert sandbox.built() == 2
    cold = World(sandbox)
    expected = cold.pipeline().run(Program(SOURCES[1]), cold.histories, cold.questions)
    assert (result.traces, result.usage) == (expected.traces, expected.usage)


class Killing(CountingChat):
    """Kills the newest worker, or the zygote, when it is asked something for the first `times` times."""

    def __init__(self, sandbox: BuildingSandbox, times: int, *, zygote: bool = False) -> None:
        super().__init__()
        self.sandbox = sandbox
        self.left = times
        self.zygote = zygote

    def complete(self, requests: Sequence[ChatRequest]) -> Sequence[ChatReply]:
        if requests[0].purpose == "ask" and self.left:
            self.left -= 1
            if self.zygote:
                kill_zygote(self.sandbox)
            else:
                kill(self.sandbox.opened[-1])
            # What is cut short is not stored, so that it is asked again.
            return [replace(reply, finish_reason="length") for reply in super().complete(requests)]
        return super().complete(requests)


ASKING = edited(
    "        if self.rows is None:",
    '        self.backend.ask(query.query_text + " again")\n        if self.rows is None:',
)


@pytest.mark.parametrize("victim", ["worker", "zygote"])
@pytest.mark.parametrize("copies", [1, 3])
def test_a_memory_that_is_killed_under_a_query_is_built_again(
    sandbox: BuildingSandbox, copies: int, victim: str
) -> None:
    cold, world = World(sandbox), World(sandbox)
    questions = [("one", f"What did Ann paint on {n}?") for n in range(4)]
    cold.questions = world.questions = questions
    expected = cold.pipeline().run(Program(ASKING), cold.histories, questions)
    world.chat = Killing(sandbox, 1, zygote=victim == "zygote")
    sandbox.built()
    found = world.pipeline(copies=copies).run(Program(ASKING), world.histories, questions)
    assert all(trace.failure is None for trace in found.traces)
    assert (found.traces, found.usage) == (expected.traces, expected.usage)
    assert sandbox.built() == 2


def test_what_dies_every_time_died_of_itself(sandbox: BuildingSandbox) -> None:
    world = World(sandbox)
    world.questions = world.questions[:1]
    world.chat = Killing(sandbox, 99)
    (trace,) = world.pipeline().run(Program(ASKING), world.histories, world.questions).traces
    assert trace.failure is not None
    assert (trace.failure.stage, trace.failure.kind) == ("retrieve", "died")


COPYING = edited("        self.texts.extend(new)", "        self.texts.extend(new)\n        SEEN.extend(new)")
COPYING = edited("TOP = 3", "TOP = 3\nSEEN = []", COPYING)
WRONG = edited("SEEN = []", "SEEN = []\nFIRST = [len(SEEN)]", COPYING)
WRONG = edited("return self._join([", "return str(FIRST[0]) + self._join([", WRONG)


def test_a_check_finds_what_a_wrong_graft_would_give(
    sandbox: BuildingSandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cold = World(sandbox)
    expected = cold.pipeline().run(Program(WRONG), cold.histories, cold.questions)
    monkeypatch.setattr(grafting._Plan, "_unsettled", lambda *arguments: None)
    outcomes = {}
    for share in (0.0, 1.0):
        grafting.plan_graft.cache_clear()
        world = World(sandbox)
        pipeline = world.pipeline(verify_reuse=share)
        pipeline.run(Program(COPYING), world.histories, world.questions)
        with caplog.at_level(logging.WARNING, "prismem_core"):
            outcomes[share] = pipeline.run(Program(WRONG), world.histories, world.questions)
        counts = pipeline.reuse_counts.to_dict()
        assert counts == ({"memories": 2, "texts": 3, "differing": 3} if share else dict.fromkeys(counts, 0))
    grafting.plan_graft.cache_clear()
    assert outcomes[0.0].traces != expected.traces
    assert (outcomes[1.0].traces, outcomes[1.0].usage) == (expected.traces, expected.usage)
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 3
    assert all(Program(WRONG).digest[:12] in text and "differs from character 0 on" in text for text in warned)
    assert {question for _, question in world.questions} == {
        question for _, question in world.questions if any(repr(question) in text for text in warned)
    }


def test_a_check_of_what_is_right_finds_nothing_and_changes_nothing(sandbox: BuildingSandbox) -> None:
    outcomes = []
    for share in (0.0, 1.0):
        world = World(sandbox)
        pipeline = world.pipeline(verify_reuse=share)
        outcomes.append(told(world, pipeline, SOURCES))
        sandbox.built()
    assert outcomes[0] == outcomes[1]
    assert pipeline.reuse_counts.to_dict() == {"memories": 6, "texts": 9, "differing": 0}


def test_a_part_is_checked_and_always_the_same_part(sandbox: BuildingSandbox) -> None:
    counts = []
    for _ in range(2):
        world = World(sandbox)
        pipeline = world.pipeline(verify_reuse=0.5)
        for top in range(1, 9):
            pipeline.run(Program(edited("TOP = 3", f"TOP = {top}")), world.histories, world.questions)
        counts.append(pipeline.reuse_counts)
    assert counts[0] == counts[1]
    assert 0 < counts[0].memories < 14
