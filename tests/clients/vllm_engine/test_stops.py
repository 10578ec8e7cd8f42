"""Callers that are stopped from another thread: what is under way is given or broken off, others go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.clients.vllm_engine.played import PlayedLLM

from prismem_core.clients.vllm_engine.engine import Call, Engine
from prismem_core.errors import RoleError

_PATIENCE_SECONDS = 60.0


class Asking(threading.Thread):
    """A caller: the positions it got, and the error that ended it."""

    def __init__(self, engine: Engine, lengths: list[int]) -> None:
        super().__init__(daemon=True)
        self._engine, self._lengths = engine, lengths
        self.got: list[int] = []
        self.ended: list[Any] = []
        self.error: RoleError | None = None
        self.begun = threading.Semaphore(0)

    def run(self) -> None:
        own = [Call(i, [i] * length, None) for i, length in enumerate(self._lengths)]
        try:
            for position, _ in self._engine.run(own, lambda: None, self.begun.release, self.ended.append, self):
                self.got.append(position)
        except RoleError as error:
            self.error = error

    def finished(self) -> bool:
        self.join(_PATIENCE_SECONDS)
        return not self.is_alive()


@pytest.fixture
def llm() -> PlayedLLM:
    return PlayedLLM()


@pytest.fixture
def engine(llm: PlayedLLM) -> Iterator[Engine]:
    engine = Engine("played", lambda: llm, 2)
    yield engine
    llm.llm_engine.gate.set()
    engine.close()


def test_a_stopped_caller_gets_what_is_under_way_and_no_more(engine: Engine, llm: PlayedLLM) -> None:
    llm.llm_engine.gate.clear()
    caller = Asking(engine, [3] * 10)
    caller.start()
    assert all(caller.begun.acquire(timeout=_PATIENCE_SECONDS) for _ in range(2))
    engine.stop(object())
    engine.stop(caller)
    llm.llm_engine.gate.set()
    assert caller.finished()
    assert sorted(caller.got) == [0, 1] and len(llm.llm_engine.added) == 2
    assert "stopped" in str(caller.error) and None not in caller.ended


def test_a_caller_stopped_at_once_waits_for_nothing(engine: Engine, llm: PlayedLLM) -> None:
    llm.llm_engine.gate.clear()
    caller = Asking(engine, [3] * 10)
    caller.start()
    assert all(caller.begun.acquire(timeout=_PATIENCE_SECONDS) for _ in range(2))
    engine.stop(caller, at_once=True)
    # The engine is still in its step.
    assert caller.finished()
    assert caller.got == [] and "stopped" in str(caller.error)
    llm.llm_engine.gate.set()
    other = Asking(engine, [1])
    other.start()
    assert other.finished() and other.got == [0] and other.error is None
    assert sorted(llm.llm_engine.aborted) == ["0", "1"] and caller.ended == [None, None]


def test_a_caller_stopped_while_the_engine_starts_begins_nothing(llm: PlayedLLM) -> None:
    starting, go_on = threading.Event(), threading.Event()

    def make() -> PlayedLLM:
        starting.set()
        go_on.wait(_PATIENCE_SECONDS)
        return llm

    engine = Engine("played", make, 2)
    caller = Asking(engine, [1] * 4)
    caller.start()
    assert starting.wait(_PATIENCE_SECONDS)
    engine.stop(caller, at_once=True)
    go_on.set()
    assert caller.finished()
    assert "stopped" in str(caller.error) and llm.llm_engine.added == []
    engine.close()


def test_a_caller_stopped_at_once_does_not_wait_for_a_start(llm: PlayedLLM) -> None:
    starting, go_on = threading.Event(), threading.Event()

    def make() -> PlayedLLM:
        starting.set()
        go_on.wait(_PATIENCE_SECONDS)
        return llm

    engine = Engine("played", make, 2)
    caller = Asking(engine, [1])
    caller.start()
    assert starting.wait(_PATIENCE_SECONDS)
    engine.stop(caller, at_once=True)
    assert caller.finished() and "stopped" in str(caller.error)
    assert not go_on.is_set()
    go_on.set()
    engine.close()
    assert llm.llm_engine.shut_down.is_set()


def test_callers_that_wait_for_one_start_are_told_one_failure() -> None:
    starting, go_on = threading.Event(), threading.Event()
    starts: list[int] = []

    def make() -> PlayedLLM:
        starts.append(1)
        starting.set()
        go_on.wait(_PATIENCE_SECONDS)
        raise RoleError("no memory")

    engine = Engine("played", make, 2)
    callers = [Asking(engine, [1]), Asking(engine, [1])]
    for caller in callers:
        caller.start()
    assert starting.wait(_PATIENCE_SECONDS)
    go_on.set()
    assert all(caller.finished() and "no memory" in str(caller.error) for caller in callers)
    assert 1 <= len(starts) <= 2
    engine.close()
