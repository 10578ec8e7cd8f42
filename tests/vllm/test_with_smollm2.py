"""A real instruct model, SmolLM2-135M, under a real vLLM: plans and extractions held by a grammar, streams, tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.pipeline.answer import answer
from prismem_core.pipeline.extract import extract
from prismem_core.pipeline.plan import plan
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Budget
from prismem_core.roles.cached import CachedChat
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatRequest
from tests.vllm.conftest import ENGINE, Place, make_chat
from tests.vllm.server import VLLMServer
from tests.vllm.test_with_chat import INTERFACE, QUESTIONS, SEGMENTS

POSITIONS = 2048


@pytest.fixture(scope="module", params=["server", "in-process"])
def place(request: pytest.FixtureRequest, smollm2: Path) -> Iterator[Place]:
    """SmolLM2 behind a server, then in this process."""
    if request.param == "server":
        server = VLLMServer(smollm2, "smollm2", max_model_len=POSITIONS)
        yield Place("server", server.model, server=server)
        server.stop()
    else:
        yield Place("in-process", f"vllm:{smollm2}", {"engine": {**ENGINE, "max_model_len": POSITIONS}})


@pytest.fixture(scope="module")
def chat(place: Place) -> Iterator[Any]:
    client = make_chat(place)
    yield client
    client.close()


def test_it_extracts_plans_and_answers(chat: Any) -> None:
    cached = CachedChat(chat, ExecutionCache(None), Ledger())
    extractions = extract(cached, INTERFACE, SEGMENTS[:3], retries=2, max_tokens=600)
    assert any(not extraction.problem for extraction in extractions)
    plans = plan(cached, INTERFACE, QUESTIONS[:3], retries=2, max_tokens=200)
    assert all(one.value is not None for one in plans)
    replies = answer(cached, INTERFACE, QUESTIONS[:3], ["Ana rowed 3 miles."] * 3, max_tokens=30)
    assert all(reply.text for reply in replies)


def test_a_whole_reply_and_a_streamed_one_say_and_cost_the_same(chat: Any, place: Place) -> None:
    if place.server is None:
        pytest.skip("an engine in this process hands over whole replies")
    streamed = make_chat(place, stream=True)
    request = ChatRequest("answer", "Reply briefly.", "Name a colour of the rainbow.", {}, None, 20)
    before, budget = place.server.tokens(), Budget()
    try:
        chat.account = streamed.account = Account("task", budget=budget)
        assert chat.complete([request]) == streamed.complete([request])
    finally:
        streamed.close()
    after, spent = place.server.tokens(), budget.spent()["task"]
    assert (spent.input_tokens, spent.output_tokens) == (after[0] - before[0], after[1] - before[1])
