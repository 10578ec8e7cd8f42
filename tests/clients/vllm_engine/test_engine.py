"""One engine that several threads feed, with a stand-in for vLLM: order, windows, failures, ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.clients.vllm_engine.played import PlayedLLM

import prismem_core.clients.vllm_engine.engine as engine_module
from prismem_core.clients.vllm_engine.engine import Call, Engine
from prismem_core.errors import BudgetError, RoleError


def nothing(*arguments: Any) -> None:
    return None


def calls(lengths: list[int]) -> list[Call]:
    return [Call(i, [i] * length, None) for i, length in enumerate(lengths)]


@pytest.fixture
def opened() -> Iterator[Callable[..., tuple[Engine, list[PlayedLLM]]]]:
    engines: list[Engine] = []

    def opener(window: int = 4, fail: Any = nothing) -> tuple[Engine, list[PlayedLLM]]:
        made: list[PlayedLLM] = []

        def make() -> PlayedLLM:
            made.append(PlayedLLM(fail))
            return made[-1]

        engines.append(Engine("played", make, window))
        return engines[-1], made

    yield opener
    for engine in engines:
        engine.close()


def test_outputs_come_as_they_are_finished(opened: Any) -> None:
    engine, made = opened()
    assert made == []
    positions = [position for position, _ in engine.run(calls([5, 1, 3]), nothing, nothing, nothing)]
    assert positions == [1, 2, 0]
    assert len(made) == 1


def test_no_more_calls_than_a_window_are_under_way_and_read_ahead(opened: Any) -> None:
    engine, made = opened(window=4)
    taken: list[int] = []

    def coming() -> Iterator[Call]:
        for call in calls([2] * 40):
            taken.append(call.position)
            yield call

    run = engine.run(coming(), nothing, nothing, nothing)
    next(run)
    assert len(taken) <= 4 + 4 + 4
    assert [position for position, _ in run] and made[0].llm_engine.largest == 4
    assert len(taken) == 40


def test_each_call_is_admitted_begun_and_ended_once_and_settled_before_the_next(opened: Any) -> None:
    engine, _ = opened(window=1)
    told: list[str] = []
    outputs = list(
        engine.run(
            calls([1, 2, 1]),
            lambda: told.append("admit"),
            lambda: told.append("begun"),
            lambda output: told.append(f"ended {len(output.prompt_token_ids)}"),
        )
    )
    assert len(outputs) == 3
    assert told == ["admit", "begun", "ended 1", "admit", "begun", "ended 2", "admit", "begun", "ended 1"]


def test_a_spent_budget_gives_what_is_under_way_and_then_raises(opened: Any) -> None:
    engine, made = opened(window=3)
    admitted: list[int] = []

    def admit() -> None:
        if len(admitted) == 5:
            raise BudgetError("the budget is spent")
        admitted.append(1)

    got = []
    with pytest.raises(BudgetError):
        for position, _ in engine.run(calls([3, 1, 1, 1, 4, 1, 1, 1]), admit, nothing, nothing):
            got.append(position)
    assert sorted(got) == [0, 1, 2, 3, 4]
    assert len(made[0].llm_engine.added) == 5


def test_a_failure_of_the_caller_s_own_calls_comes_after_those_under_way(opened: Any) -> None:
    engine, _ = opened()
    begun = threading.Semaphore(0)

    def coming() -> Iterator[Call]:
        yield from calls([2, 2])
        begun.acquire()
        begun.acquire()
        raise RoleError("a prompt is too long")

    got = []
    with pytest.raises(RoleError, match="too long"):
        for position, _ in engine.run(coming(), nothing, begun.release, nothing):
            got.append(position)
    assert sorted(got) == [0, 1]


def test_a_call_that_vllm_refuses_is_a_role_error(opened: Any) -> None:
    engine, _ = opened()
    with pytest.raises(RoleError, match="vLLM refuses a call of played: no such parameter"):
        list(engine.run([Call(0, [1], "refused")], nothing, nothing, nothing))
    assert len(list(engine.run(calls([1]), nothing, nothing, nothing))) == 1


def test_an_engine_that_ends_fails_all_callers_and_is_started_anew(opened: Any) -> None:
    def fail(step: int) -> None:
        if step == 3:
            raise RuntimeError("out of memory")

    engine, made = opened(window=8, fail=fail)
    errors: list[str] = []

    def ask(lengths: list[int]) -> None:
        try:
            list(engine.run(calls(lengths), nothing, nothing, nothing))
        except RoleError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask, args=([9, 9],)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 2 and all("played" in error and "out of memory" in error for error in errors[:1])
    assert made[0].llm_engine.shut_down.is_set()
    assert len(list(engine.run(calls([1, 1]), nothing, nothing, nothing))) == 2
    assert len(made) >= 2


def test_a_caller_that_stops_reading_ends_its_calls(opened: Any) -> None:
    engine, made = opened(window=4)
    ended: list[Any] = []
    run = engine.run(calls([1, 50_000, 50_000]), nothing, nothing, ended.append)
    assert next(run)[0] == 0
    run.close()
    # Another caller makes the engine look around; by its end those of the first are gone.
    list(engine.run(calls([1]), nothing, nothing, nothing))
    assert len(made[0].llm_engine.aborted) == 2
    assert [output is None for output in ended] == [False, True, True]


def test_threads_get_their_own_outputs(opened: Any) -> None:
    engine, _ = opened(window=5)
    got: dict[int, list[tuple[int, int]]] = {}

    def ask(number: int) -> None:
        run = engine.run([Call(i, [number] * (1 + i % 3), None) for i in range(30)], nothing, nothing, nothing)
        got[number] = sorted((position, output.prompt_token_ids[0]) for position, output in run)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == {number: [(i, number) for i in range(30)] for number in range(4)}


def test_closing_fails_the_calls_under_way_and_those_that_follow(opened: Any) -> None:
    engine, made = opened()
    run = engine.run(calls([1, 1_000_000]), nothing, nothing, nothing)
    next(run)
    engine.close()
    with pytest.raises(RoleError, match="closed"):
        next(run)
    with pytest.raises(RoleError, match="closed"):
        list(engine.run(calls([1]), nothing, nothing, nothing))
    assert made[0].llm_engine.shut_down.is_set()


def test_a_model_that_does_not_start_is_told_to_every_caller() -> None:
    def make() -> Any:
        raise RoleError("vLLM could not start m: no memory")

    engine = Engine("m", make, 4)
    for _ in range(2):
        with pytest.raises(RoleError, match="no memory"):
            list(engine.run(calls([1]), nothing, nothing, nothing))
    engine.close()


def test_the_time_of_the_steps_is_shared_out_and_times_its_gpus(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(float(n) for n in range(10_000))
    monkeypatch.setattr(engine_module, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    engine, _ = opened(window=4)
    llm = engine.started().llm_engine
    llm.vllm_config = SimpleNamespace(
        device_config=SimpleNamespace(device_type="cuda"),
        parallel_config=SimpleNamespace(world_size=2, data_parallel_size=1),
    )
    assert engine_module._gpus(llm) == 2
    assert engine_module._gpus(SimpleNamespace()) == 1
    llm.vllm_config.device_config.device_type = "cpu"
    assert engine_module._gpus(llm) == 0
    # This engine has begun as one of a single GPU: each of its steps takes a second of the clock above.
    spent: dict[str, float] = {"a": 0.0, "b": 0.0}

    def use(name: str, lengths: list[int]) -> None:
        def computed(gpu_seconds: float) -> None:
            spent[name] += gpu_seconds

        for _ in engine.run(calls(lengths), nothing, nothing, nothing, computed=computed):
            pass

    threads = [threading.Thread(target=use, args=pair) for pair in (("a", [4, 4, 4]), ("b", [4]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent["a"] + spent["b"] == pytest.approx(llm._steps)
    assert spent["b"] > 0 and spent["a"] > 0
