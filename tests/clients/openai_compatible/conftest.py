"""Clients of the scripted server that wait little between tries and are closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from tests.scripted_server.fixture import own_server, scripted_server, server_process  # noqa: F401

from prismem_core.clients.model_settings import ModelSettings, parse_model
from prismem_core.clients.openai_compatible import OpenAIChat, OpenAIEmbedder


class Make(Protocol):
    """Makes clients for a URL or a server."""

    def chat(self, server: Any, *, model: str = ..., max_tokens: int | None = ..., **settings: Any) -> OpenAIChat: ...

    def embedder(self, server: Any, *, model: str = ..., **settings: Any) -> OpenAIEmbedder: ...


class _Maker:
    def __init__(self) -> None:
        self.made: list[OpenAIChat | OpenAIEmbedder] = []

    def chat(
        self, server: Any, *, model: str = "scripted", max_tokens: int | None = None, **settings: Any
    ) -> OpenAIChat:
        client = OpenAIChat(parse_model(_spec(server, model)), ModelSettings(**settings), max_tokens=max_tokens)
        self.made.append(client)
        return client

    def embedder(self, server: Any, *, model: str = "scripted", **settings: Any) -> OpenAIEmbedder:
        client = OpenAIEmbedder(parse_model(_spec(server, model)), ModelSettings(**settings))
        self.made.append(client)
        return client


def _spec(server: Any, model: str) -> str:
    return f"openai:{model}@{server if isinstance(server, str) else server.url}"


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    pytest.importorskip("openai")
    monkeypatch.setattr("prismem_core.clients.openai_compatible.attempts.FIRST_WAIT_SECONDS", 0.01)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    maker = _Maker()
    yield maker
    for client in maker.made:
        client.close()
