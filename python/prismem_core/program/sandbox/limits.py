"""Budgets of a worker, what one call used of them, and the engine calls a program may make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from prismem_core.program.collections.query import CollectionQuery, Hits


class BackendHandler(Protocol):
    """Serves `backend.ask` and `backend.embed` of a program; runs in the engine, in the thread that made the call.

    What it raises ends the worker and reaches the caller unchanged: a failing model is never the program's fault.
    """

    def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str: ...

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Vectors of the texts, shape (n, d), one row a text; (0, d) for no text."""
        ...


@runtime_checkable
class CollectionBackend(BackendHandler, Protocol):
    """A handler that serves collections too; handles and positions it is given were checked."""

    @property
    def dimension(self) -> int:
        """Columns of the rows, for the limit of memory."""
        ...

    def add_texts(self, handle: str, texts: list[str]) -> str:
        """The handle of the collection with `texts` behind those of `handle`."""
        ...

    def find(self, query: CollectionQuery) -> list[Hits]:
        """Hits of each of the query's texts."""
        ...


@dataclass(frozen=True)
class Budget:
    """What one call may use: processor and wall seconds of the program itself, model calls and the characters of their
    prompts, embedded texts and their characters, calls of collections and texts looked for in them.
    """

    cpu_seconds: float
    wall_seconds: float
    ask_calls: int
    embed_texts: int
    ask_chars: int = 0
    embed_chars: int = 0
    collection_calls: int = 0
    collection_queries: int = 0


@dataclass(frozen=True)
class Limits:
    """Limits of one worker; `index_*` also bind loading the program and `Memory.__init__`.

    Time spent in the backend handler counts against neither processor nor wall time: what bounds that are calls, texts
    and characters. `embed_texts` also bounds the number of `embed` calls. Memory is the address space of the worker, interpreter and libraries included.
    """

    index_cpu_seconds: float = 20.0
    index_wall_seconds: float = 60.0
    retrieve_cpu_seconds: float = 5.0
    retrieve_wall_seconds: float = 15.0
    memory_bytes: int = 2 << 30
    index_ask_calls: int = 8
    retrieve_ask_calls: int = 4
    index_ask_chars: int = 400_000
    retrieve_ask_chars: int = 100_000
    index_embed_texts: int = 20_000
    retrieve_embed_texts: int = 64
    index_embed_chars: int = 4_000_000
    retrieve_embed_chars: int = 100_000

    @property
    def index(self) -> Budget:
        """What loading the program, `__init__` and each call of `index` may use."""
        return Budget(
            self.index_cpu_seconds,
            self.index_wall_seconds,
            self.index_ask_calls,
            self.index_embed_texts,
            self.index_ask_chars,
            self.index_embed_chars,
        )

    @property
    def retrieve(self) -> Budget:
        """What each call of `retrieve` may use."""
        return Budget(
            self.retrieve_cpu_seconds,
            self.retrieve_wall_seconds,
            self.retrieve_ask_calls,
            self.retrieve_embed_texts,
            self.retrieve_ask_chars,
            self.retrieve_embed_chars,
        )


@dataclass(frozen=True)
class CollectionLimits:
    """What a program may do with collections; they are part of the keys of what it makes.

    Texts that are added or looked for count as embedded texts too. `texts`, `chars` and `row_bytes` bound all
    collections that a memory made, `hits` those that one call asks for, `pool` the candidates of `mmr` and of each
    ranking of `hybrid`.
    """

    index_calls: int = 64
    retrieve_calls: int = 64
    index_queries: int = 1_000
    retrieve_queries: int = 64
    texts: int = 100_000
    chars: int = 50_000_000
    row_bytes: int = 1 << 30
    hits: int = 200_000
    pool: int = 2_000

    def of_index(self, budget: Budget) -> Budget:
        """The budget of a call that builds the memory."""
        return replace(budget, collection_calls=self.index_calls, collection_queries=self.index_queries)

    def of_retrieve(self, budget: Budget) -> Budget:
        """The budget of a call of `retrieve`."""
        return replace(budget, collection_calls=self.retrieve_calls, collection_queries=self.retrieve_queries)


@dataclass(frozen=True)
class CallReport:
    """What one call used, measured and counted by the engine; seconds leave out the backend handler's own time.

    `memory_bytes` are resident in the process at the end of the call, pages shared with other processes included, 0 if
    it ended meanwhile; bytes are those that crossed the channel.
    """

    ask_calls: int
    embed_calls: int
    embed_texts: int
    collection_calls: int
    cpu_seconds: float
    wall_seconds: float
    memory_bytes: int
    bytes_to_program: int
    bytes_from_program: int
