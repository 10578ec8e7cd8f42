"""The embedded task model as a role: purposes, replies, independence of requests."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from prismem_core.clients.offline.chat import OfflineChat
from prismem_core.errors import RoleError
from prismem_core.roles.protocols import Chat, ChatRequest

FIELDS = [{"name": "memory_text", "type": "str", "description": ""}]
QUERY = [{"name": "query_text", "type": "str", "description": ""}]


def request(purpose: str, schema: dict[str, Any] | None = None, **inputs: Any) -> ChatRequest:
    return ChatRequest(purpose, "system", "prompt", inputs, schema)


REQUESTS = [
    request("extract", instruction="Extract.", fields=FIELDS, text="[Session 1]\nAna: I row.\nBen: Nice"),
    request("plan", instruction="Plan.", fields=QUERY, question="What does Ana do?"),
    request("answer", instruction="Answer.", retrieved="Ana: I row boats.", question="What does Ana do?"),
    request("ask", prompt="Ana rows boats.\nBen sings.\nWho sings?"),
    request("ask", {"type": "object"}, prompt="Ana rows boats.\nBen sings.\nWho sings?"),
]


def test_replies_by_purpose() -> None:
    chat = OfflineChat()
    assert isinstance(chat, Chat)
    extracted, planned, answered, asked, asked_json = (reply.text for reply in chat.complete(REQUESTS))
    assert json.loads(extracted) == {"memory_units": [{"memory_text": "Ana: I row."}, {"memory_text": "Ben: Nice"}]}
    assert json.loads(planned) == {"query_text": "What does Ana do?"}
    assert "row" in answered
    assert "Ben sings." in asked
    assert "Ben sings." in json.loads(asked_json)["answer"]


def test_a_reply_depends_on_its_request_alone() -> None:
    chat = OfflineChat()
    together = chat.complete(REQUESTS)
    alone = [OfflineChat().complete([r])[0] for r in reversed(REQUESTS)][::-1]
    assert together == alone
    with ThreadPoolExecutor(4) as pool:
        threaded = list(pool.map(lambda r: chat.complete([r])[0], REQUESTS * 8))
    assert threaded == list(together) * 8


def test_tokens_are_quarters_of_the_characters() -> None:
    (reply,) = OfflineChat().complete(
        [ChatRequest("ask", "12345", "Ana rows.\nWho rows?", {"prompt": "Ana rows.\nWho rows?"})]
    )
    assert reply.input_tokens == 6  # 5 + 19 characters
    assert reply.output_tokens == -(-len(reply.text) // 4)
    assert reply.finish_reason == "stop"


def test_other_purposes_are_refused() -> None:
    with pytest.raises(RoleError, match="'judge'"):
        OfflineChat().complete([request("judge")])


def test_the_identity_names_the_cross_encoder() -> None:
    class Scorer:
        identity = "some-model"

        def score(self, question: str, texts: list[str]) -> list[float]:
            return [0.0 for _ in texts]

    assert OfflineChat().identity.endswith("none")
    assert "some-model" in OfflineChat(Scorer()).identity  # type: ignore[arg-type]
