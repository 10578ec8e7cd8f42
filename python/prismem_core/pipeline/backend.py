"""The engine's side of a program's backend, one for each call of a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prismem_core.pipeline.flights import Flights, Held
from prismem_core.pipeline.structured import CompletesWithSalt
from prismem_core.pipeline.trace import StageUsage
from prismem_core.program.collections.query import CollectionQuery, Hits
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest


class EmbedsWithSalt(Protocol):
    """An embedder behind the cache."""

    identity: str

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str], salt: str = "") -> NDArray[np.float32]: ...


class EngineBackend:
    """The engine's side of a program's backend: calls meet the cached roles and are counted.

    A program that waits for one gives its place in `flights` to another.
    """

    def __init__(
        self,
        chat: CompletesWithSalt,
        embedder: EmbedsWithSalt,
        stage: str,
        max_tokens: int,
        salt: str,
        flights: Flights,
    ) -> None:
        self.usage = StageUsage()
        self._chat = chat
        self._embedder = embedder
        self._stage = stage
        self._max_tokens = max_tokens
        self._salt = salt
        self._flights = flights

    @property
    def dimension(self) -> int:
        """Size of a row."""
        return self._embedder.dimension

    def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
        """One free call of the task model."""
        inputs = {"prompt": prompt, "system_prompt": system_prompt, "json_object": json_object}
        system, text = render("ask", **inputs)
        schema = {"type": "object"} if json_object else None
        request = ChatRequest("ask", system, text, inputs, schema, self._max_tokens)
        with self._flights.away():
            (reply,) = self._chat.complete([request], salt=self._salt)
        self.usage.add(self._stage, 1, reply.input_tokens, reply.output_tokens)
        return reply.text

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Rows (n, d) float32 of length 1."""
        self._count_embedded(texts)
        with self._flights.away():
            return self._embedder.embed(texts, salt=self._salt)

    def _count_embedded(self, texts: Sequence[str]) -> None:
        self.usage.embed(len(texts), sum(-(-len(text) // 4) for text in texts))


class HoldingBackend(EngineBackend):
    """The backend of interface "engine": collections too."""

    def __init__(
        self,
        chat: CompletesWithSalt,
        embedder: EmbedsWithSalt,
        stage: str,
        max_tokens: int,
        salt: str,
        flights: Flights,
        held: Held,
    ) -> None:
        super().__init__(chat, embedder, stage, max_tokens, salt, flights)
        self._held = held

    def add_texts(self, handle: str, texts: list[str]) -> str:
        """The handle of the collection `handle` with `texts` behind its own."""
        self.usage.collection(len(texts))
        self._count_embedded(texts)
        with self._flights.away():
            return self._held.store.add(self._held.scope, handle, texts)

    def find(self, query: CollectionQuery) -> list[Hits]:
        """Hits of each text, from a launch that may serve other queries as well."""
        self.usage.collection()
        if query.dense:
            self._count_embedded(query.texts)
        return self._held.broker.find(query)
