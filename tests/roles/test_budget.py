"""Caps on calls, tokens, money and time: what is admitted, and what the refusal says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.errors import BudgetError, RoleError
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Allowance, Budget, Price
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.ledger import Ledger, Usage
from prismem_core.roles.protocols import ChatReply, ChatRequest


class Plain:
    """A chat without an account of its own, two requests at a time, ten tokens a call."""

    identity = "plain"
    batch = 2

    def __init__(self) -> None:
        self.calls = 0

    def complete(self, requests: list[ChatRequest]) -> list[ChatReply]:
        self.calls += len(requests)
        return [ChatReply(request.prompt, 7, 3) for request in requests]


def requests(count: int) -> list[ChatRequest]:
    return [ChatRequest("ask", "", str(i)) for i in range(count)]


def test_nothing_is_capped_unless_it_is_said() -> None:
    budget = Budget()
    for _ in range(100):
        budget.admit("chat")
        budget.settle("chat", 10**9, 10**9)
    assert budget.spent()["chat"] == Usage(100, 100 * 10**9, 100 * 10**9)


@pytest.mark.parametrize(
    ("cap", "shown"),
    [
        (Allowance(calls=2), "budget of calls for all models is spent: 2 of 2"),
        (Allowance(tokens=2_500), "budget of tokens for all models is spent: 3,000 of 2,500"),
        (Allowance(money=0.004), "budget of money for all models is spent: 0.006 of 0.004"),
    ],
)
def test_a_cap_is_reached_and_says_so(cap: Allowance, shown: str) -> None:
    budget = Budget(cap, prices={"chat": Price(2.0, 2.0)})
    for _ in range(2):
        budget.admit("chat")
        budget.settle("chat", 1_000, 500)
    with pytest.raises(BudgetError, match=shown):
        budget.admit("judge")


def test_a_cap_of_a_role_binds_that_role_alone() -> None:
    budget = Budget(by_role={"judge": Allowance(calls=1)})
    budget.settle("judge", 1, 1)
    budget.admit("chat")
    with pytest.raises(BudgetError, match="the judge model is spent: 1 of 1"):
        budget.admit("judge")


def test_seconds_run_from_the_start_and_zero_admits_nothing() -> None:
    now = [5.0]
    budget = Budget(Allowance(seconds=10.0), clock=lambda: now[0])
    now[0] = 14.0
    budget.admit("chat")
    now[0] = 15.0
    with pytest.raises(BudgetError, match="seconds for all models is spent: 10 of 10"):
        budget.admit("chat")
    with pytest.raises(BudgetError, match="calls"):
        Budget(Allowance(calls=0)).admit("chat")


def test_what_earlier_sessions_used_counts() -> None:
    budget = Budget(Allowance(tokens=100), spent={"chat": Usage(3, 60, 40)})
    with pytest.raises(BudgetError, match="100 of 100"):
        budget.admit("chat")


def test_a_model_without_an_account_is_admitted_by_the_sub_batch() -> None:
    chat, budget, ledger = Plain(), Budget(Allowance(tokens=30)), Ledger()
    cached = CachedChat(chat, ExecutionCache(), ledger, budget=budget)
    with pytest.raises(BudgetError):
        cached.complete(requests(10))
    # After two sub-batches 40 tokens are gone: the cap is passed by the calls under way and no more.
    assert chat.calls == 4
    assert ledger.totals()["chat", "ask"] == Usage(4, 28, 12)
    assert budget.spent()["chat"] == Usage(4, 28, 12)
    assert [reply.cached for reply in cached.complete(requests(4))] == [True] * 4


def test_an_embedder_is_capped_too() -> None:
    class Rows:
        identity = "rows"
        dimension = 2
        chunk = 4

        def embed(self, texts: list[str]) -> np.ndarray:
            return np.ones((len(texts), 2), np.float32)

        def embed_counted(self, texts: list[str]) -> tuple[np.ndarray, list[int]]:
            return self.embed(texts), [5] * len(texts)

    ledger = Ledger()
    embedder = CachedEmbedder(Rows(), ExecutionCache(), ledger, budget=Budget(Allowance(tokens=20)))
    with pytest.raises(BudgetError, match="20 of 20"):
        embedder.embed([str(i) for i in range(9)])
    assert ledger.totals()["embedder", "embed"] == Usage(4, 20, 0)


class HandsOver:
    """Hands replies over one by one, then fails; keeps its own account."""

    identity = "hands-over"

    def __init__(self) -> None:
        self.account = Account("none")

    def complete(self, requests: list[ChatRequest]) -> list[ChatReply]:
        return [reply for _, reply in self.complete_each(requests)]

    def complete_each(self, requests: list[ChatRequest]):  # type: ignore[no-untyped-def]
        for position in reversed(range(len(requests))):
            if position == 0:
                raise RoleError("the provider is down")
            self.account.admit()
            self.account.settle(1, 1)
            yield position, ChatReply(requests[position].prompt, 1, 1)


def test_what_was_handed_over_before_a_failure_is_kept(tmp_path: Path) -> None:
    chat, cache, budget = HandsOver(), ExecutionCache(), Budget()
    ledger = Ledger(tmp_path / "calls.jsonl")
    cached = CachedChat(chat, cache, ledger, role="judge", budget=budget)
    with pytest.raises(RoleError, match="down"):
        cached.complete(requests(4))
    ledger.close()
    assert Ledger(tmp_path / "calls.jsonl").totals() == {("judge", "ask"): Usage(3, 3, 3)}
    assert budget.spent() == {"judge": Usage(3, 3, 3)}
    assert [reply.text for reply in cached.complete(requests(4)[1:])] == ["1", "2", "3"]
    assert chat.account.role == "judge"


def test_a_call_that_answers_no_request_is_in_the_ledger_and_the_budget() -> None:
    ledger, budget = Ledger(), Budget()
    Account("chat", ledger, budget).overhead("probe", 30, 4)
    assert ledger.totals() == {("chat", "probe"): Usage(1, 30, 4)}
    assert budget.spent() == {"chat": Usage(1, 30, 4)}


def test_a_stopped_chat_begins_no_further_call() -> None:
    chat = Plain()
    cached = CachedChat(chat, ExecutionCache(), Ledger())
    cached.complete(requests(1))
    cached.stop()
    with pytest.raises(RoleError, match="stopped"):
        cached.complete(requests(3))
    assert chat.calls == 1
    assert cached.complete(requests(1))[0].text == "0"


def test_rows_of_another_size_than_those_stored_are_named() -> None:
    class Sized:
        identity = "sized"

        def __init__(self, dimension: int) -> None:
            self.account = Account("none")
            self.dimension = dimension

        def embed(self, texts: list[str]) -> np.ndarray:
            return np.ones((len(texts), self.dimension), np.float32)

    cache = ExecutionCache()
    assert CachedEmbedder(Sized(4), cache, Ledger()).embed(["a"]).shape == (1, 4)
    with pytest.raises(RoleError, match="rows of 3 values, but its rows here have 4"):
        CachedEmbedder(Sized(3), cache, Ledger()).embed(["b"])


def test_gpu_seconds_are_capped_over_all_roles_and_for_each() -> None:
    budget = Budget(Allowance(gpu_seconds=10.0), {"judge": Allowance(gpu_seconds=2.0)}, gpu_spent={"chat": 5.0})
    budget.compute("judge", 2.5)
    with pytest.raises(BudgetError, match=r"GPU seconds for the judge model is spent: 2\.5 of 2"):
        budget.admit("judge")
    budget.admit("chat")
    budget.admit_on_gpu("engine")
    budget.compute("engine", 2.5)
    with pytest.raises(BudgetError, match=r"GPU seconds for all models is spent: 10 of 10"):
        budget.admit("chat")
    with pytest.raises(BudgetError, match=r"GPU seconds for all models and searches"):
        budget.admit_on_gpu("engine")
    assert budget.spent() == {}


def test_searches_on_a_gpu_do_not_mind_a_cap_on_calls() -> None:
    budget = Budget(Allowance(calls=0, tokens=0, money=0.0, seconds=0.0))
    with Account("engine", Ledger(), budget).on_gpu():
        pass


def test_an_account_counts_and_records_time_on_gpus() -> None:
    ledger, budget = Ledger(), Budget(Allowance(gpu_seconds=1.0))
    account = Account("chat", ledger, budget)
    account.compute(0.75)
    account.compute(0.5)
    assert ledger.gpu_seconds() == {"chat": 1.25}
    with pytest.raises(BudgetError, match=r"1\.25 of 1"):
        account.admit()


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_survives_in_the_ledger_from_session_to_session(tmp_path: Path) -> None:
    path, clock = tmp_path / "calls.jsonl", Clock()
    first = Ledger(path, clock=clock)
    first.record_gpu("chat", 3.5)
    clock.now += 30.0
    first.record("chat", "answer", "k1", 10, 2)
    clock.now += 2.0
    first.record_gpu("engine", 0.25)
    # Killed here: what was noted with the call is in the file, the two seconds since are lost.
    second = Ledger(path, clock=clock)
    assert second.seconds() == 30.0
    assert second.gpu_seconds() == {"chat": 3.5}
    clock.now += 4.0
    assert second.seconds() == 34.0
    second.close()
    assert second.seconds() == 34.0
    clock.now += 1000.0
    assert second.seconds() == 34.0
    third = Ledger(path, read_only=True, clock=clock)
    assert (third.seconds(), third.totals()) == (34.0, {("chat", "answer"): Usage(1, 10, 2)})


def test_seconds_of_earlier_sessions_count() -> None:
    clock = Clock()
    budget = Budget(Allowance(seconds=100.0), clock=clock, seconds=95.0)
    clock.now += 4.0
    budget.admit("chat")
    clock.now += 1.0
    with pytest.raises(BudgetError, match="100 of 100"):
        budget.admit("chat")


def test_texts_that_are_embedded_in_one_call_are_counted_as_the_ledger_counts_them() -> None:
    ledger, budget = Ledger(), Budget()

    class Rows:
        identity = "rows"
        dimension = 2
        chunk = 4

        def __init__(self) -> None:
            self.account = Account("none")

        def embed(self, texts: list[str]) -> np.ndarray:
            return self.embed_counted(texts)[0]

        def embed_counted(self, texts: list[str]) -> tuple[np.ndarray, list[int]]:
            self.account.admit()
            self.account.settle(5 * len(texts), 0, len(texts))
            return np.ones((len(texts), 2), np.float32), [5] * len(texts)

    CachedEmbedder(Rows(), ExecutionCache(), ledger, budget=budget).embed([str(i) for i in range(9)])
    assert budget.spent() == {"embedder": Usage(9, 45, 0)} == {"embedder": ledger.totals()["embedder", "embed"]}
