"""Stage 3: a memory built from the units of a history, in a worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.pipeline.segment import Group
from prismem_core.pipeline.structured import CompletesWithSalt
from prismem_core.pipeline.trace import StageUsage
from prismem_core.program.sandbox import Limits, MemoryWorker, Sandbox
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest, Embedder


class EngineBackend:
    """The engine's side of `backend.ask` and `backend.embed`: calls meet the cached roles and are counted."""

    def __init__(self, chat: CompletesWithSalt, embedder: Embedder, stage: str, max_tokens: int, salt: str) -> None:
        self.usage = StageUsage()
        self._chat = chat
        self._embedder = embedder
        self._stage = stage
        self._max_tokens = max_tokens
        self._salt = salt

    def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
        """One free call of the task model."""
        inputs = {"prompt": prompt, "system_prompt": system_prompt, "json_object": json_object}
        system, text = render("ask", **inputs)
        schema = {"type": "object"} if json_object else None
        (reply,) = self._chat.complete(
            [ChatRequest("ask", system, text, inputs, schema, self._max_tokens)], salt=self._salt
        )
        self.usage.add(self._stage, 1, reply.input_tokens, reply.output_tokens)
        return reply.text

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Rows (n, d) float32 of length 1."""
        self.usage.embed(len(texts), sum(-(-len(text) // 4) for text in texts))
        return self._embedder.embed(texts)


@dataclass(frozen=True)
class IndexRecipe:
    """All that decides a built memory: the code's digest, and units and raw text of each group."""

    source: str
    code_digest: str
    groups: tuple[tuple[tuple[Mapping[str, Any], ...], str], ...]
    roles_identity: str
    settings: str

    @property
    def key(self) -> str:
        """Content key of the built memory."""
        groups = [[digest("units", [dict(u) for u in units]), digest("raw", raw)] for units, raw in self.groups]
        return digest("index", self.code_digest, groups, self.roles_identity, self.settings)


def index_recipe(
    source: str,
    code_digest: str,
    groups: Sequence[Group],
    units_of: Mapping[str, Sequence[Mapping[str, Any]]],
    roles_identity: str,
    settings: str,
) -> IndexRecipe:
    """The recipe for a history: `units_of` maps a segment's text to its units."""
    return IndexRecipe(
        source,
        code_digest,
        tuple((tuple(u for s in group.segments for u in units_of[s.text]), group.raw_text) for group in groups),
        roles_identity,
        settings,
    )


class BuiltMemory:
    """A memory that is built when first needed and holds a worker process until closed."""

    def __init__(
        self,
        recipe: IndexRecipe,
        sandbox: Sandbox,
        limits: Limits,
        backend: EngineBackend,
        cache: ExecutionCache,
    ) -> None:
        self.key = recipe.key
        self._recipe = recipe
        self._sandbox = sandbox
        self._limits = limits
        self._backend = backend
        self._cache = cache
        self._worker: MemoryWorker | None = None

    def worker(self) -> MemoryWorker:
        """The worker that holds the built memory; raises CandidateError when construction or `index` fails."""
        if self._worker is None:
            worker = self._sandbox.open(self._recipe.source, self._backend, self._limits)
            try:
                for units, raw_text in self._recipe.groups:
                    worker.index([dict(unit) for unit in units], raw_text)
            except BaseException:
                worker.close()
                raise
            self._worker = worker
            self._cache.put_json("index", self.key, self._backend.usage.to_dict())
        return self._worker

    @property
    def built(self) -> bool:
        """Whether the memory stands, so that what fails from now on is no fault of `index`."""
        return self._worker is not None

    def usage(self) -> Mapping[str, Any] | None:
        """What indexing costs, as recorded when this memory was first built; None before that."""
        record: Mapping[str, Any] | None = self._cache.get_json("index", self.key)
        return record

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
