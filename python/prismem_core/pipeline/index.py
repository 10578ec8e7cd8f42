"""Stage 3: a memory built from the units of a history, in a worker process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.errors import CandidateError
from prismem_core.pipeline.backend import EngineBackend
from prismem_core.pipeline.costs import Stopwatch
from prismem_core.pipeline.flights import Held
from prismem_core.pipeline.segment import Group
from prismem_core.program.sandbox import Limits, MemoryWorker, Sandbox


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
        held: Held | None = None,
    ) -> None:
        self.key = recipe.key
        self.held = held
        self._building = threading.Lock()
        self._broken: CandidateError | None = None
        self._recipe = recipe
        self._sandbox = sandbox
        self._limits = limits
        self._backend = backend
        self._cache = cache
        self._worker: MemoryWorker | None = None

    def worker(self) -> MemoryWorker:
        """The worker that holds the built memory; raises CandidateError when construction or `index` fails.

        Built by the first thread that needs it; a program that fails is not tried again.
        """
        with self._building:
            if self._broken is not None:
                raise self._broken
            if self._worker is None:
                watch = Stopwatch()
                try:
                    with self.flight():
                        self._worker = self._build()
                except CandidateError as error:
                    self._broken = error
                    raise
                self._cache.put_json("index", self.key, self._backend.usage.to_dict(), cost=watch.tokens())
            return self._worker

    def _build(self) -> MemoryWorker:
        collections = None if self.held is None else self.held.limits
        worker = self._sandbox.open(self._recipe.source, self._backend, self._limits, collections)
        try:
            for units, raw_text in self._recipe.groups:
                worker.index([dict(unit) for unit in units], raw_text)
        except BaseException:
            worker.close()
            raise
        return worker

    def flight(self) -> AbstractContextManager[None]:
        """A call of the program among those of other memories."""
        return nullcontext() if self.held is None else self.held.flights.flight()

    @property
    def built(self) -> bool:
        """Whether the memory stands, so that what fails from now on is no fault of `index`."""
        return self._worker is not None

    def usage(self) -> Mapping[str, Any] | None:
        """What indexing costs, as recorded when this memory was first built; None before that."""
        record: Mapping[str, Any] | None = self._cache.get_json("index", self.key)
        return record

    def close(self) -> None:
        """End the worker and let go of its collections."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self.held is not None:
            self.held.close()
