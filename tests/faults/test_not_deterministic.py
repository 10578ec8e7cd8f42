"""A server that is not deterministic: the log says so, once, whichever way it shows."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatReply, ChatRequest
from tests.faults.conftest import Chats
from tests.scripted_server.fixture import ScriptedServer

SAID = "it is not deterministic"


class Moody:
    """Answers every call otherwise."""

    identity = "moody"
    dimension = 2

    def __init__(self) -> None:
        self.calls = 0

    def complete(self, requests: list[ChatRequest]) -> list[ChatReply]:
        self.calls += 1
        return [ChatReply(f"{request.prompt} {self.calls}", 1, 1) for request in requests]

    def embed(self, texts: list[str]) -> np.ndarray:
        self.calls += 1
        return np.full((len(texts), 2), self.calls, np.float32)


class Steady(Moody):
    """Answers alike."""

    def complete(self, requests: list[ChatRequest]) -> list[ChatReply]:
        return [ChatReply(request.prompt, 1, 1) for request in requests]

    def embed(self, texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 2), np.float32)


def told(caplog: pytest.LogCaptureFixture, text: str = SAID) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("chat", "temperature", "of_requests", "times"),
    [(Moody, None, 0.0, 1), (Steady, None, 0.0, 0), (Moody, None, 0.6, 0), (Moody, 0.7, 0.0, 0), (Moody, 0.0, 0.6, 1)],
)
def test_equal_requests_with_other_replies_are_told_once(
    caplog: pytest.LogCaptureFixture,
    chat: type[Moody],
    temperature: float | None,
    of_requests: float,
    times: int,
) -> None:
    cached = CachedChat(chat(), ExecutionCache(), Ledger(), temperature=temperature)
    requests = [ChatRequest("ask", "", f"prompt {i}", temperature=of_requests) for i in range(3)]
    first = cached.complete(requests)
    assert cached.complete(requests) == first and told(caplog) == 0
    for salt in ("another program", "a third one"):
        cached.complete(requests, salt=salt)
    assert told(caplog) == times
    assert not any("prompt 1" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("embedder", "times"), [(Moody, 1), (Steady, 0)])
def test_equal_texts_with_other_rows_are_told_once(
    caplog: pytest.LogCaptureFixture, embedder: type[Moody], times: int
) -> None:
    cached = CachedEmbedder(embedder(), ExecutionCache(), Ledger())
    for salt in ("", "another program", "a third one"):
        cached.embed(["a", "b"], salt=salt)
    assert told(caplog) == times


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_server_that_reports_changing_fingerprints_is_told_once(
    chats: Chats, scripted_server: ScriptedServer, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    scripted_server.play({"every": 2, "do": {"fingerprint": "fp_b"}}, default={"fingerprint": "fp_a"})
    chat = chats.client(stream=stream)
    with caplog.at_level(logging.WARNING):
        for i in range(6):
            chat.complete([ChatRequest("ask", "You are brief.", f"Say {i}.", max_tokens=50)])
    assert told(caplog, "system_fingerprint (such as fp_") == 1


def test_a_server_with_one_fingerprint_or_none_is_left_in_peace(
    chats: Chats, scripted_server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_server.play({"every": 2, "do": {"fingerprint": "fp_a"}})
    chat = chats.client()
    with caplog.at_level(logging.WARNING):
        for i in range(4):
            chat.complete([ChatRequest("ask", "You are brief.", f"Say {i}.", max_tokens=50)])
    assert told(caplog, "system_fingerprint") == 0
