"""Stage 3: a memory built from the units of a history, in a worker process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.errors import CandidateError
from prismem_core.pipeline.backend import EngineBackend
from prismem_core.pipeline.costs import Stopwatch
from prismem_core.pipeline.flights import Flights, Held, Holdings
from prismem_core.pipeline.frozen_memories import FrozenMemories, Lease, Making
from prismem_core.pipeline.segment import Group
from prismem_core.pipeline.trace import StageUsage
from prismem_core.program.sandbox import Limits, MemoryWorker, Sandbox
from prismem_core.program.sandbox.recovery import again_if_lost

MakeBackend = Callable[[Held | None], EngineBackend]
"""A backend of fresh usage for the collections of one memory, if it may have any."""


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


class MemoryBuilder:
    """Builds memories in workers, or finds them among those that earlier uses left."""

    def __init__(
        self,
        sandbox: Sandbox,
        cache: ExecutionCache,
        flights: Flights,
        pool: FrozenMemories,
        holdings: Holdings | None = None,
    ) -> None:
        self.cache = cache
        self.flights = flights
        self.pool = pool
        self._sandbox = sandbox
        self._holdings = holdings

    def build(self, recipe: IndexRecipe, limits: Limits, make_backend: MakeBackend) -> Lease:
        """A memory from the recipe; raises CandidateError when construction or `index` fails.

        Where the process was lost, all is done again: the usage of half a memory counts for nothing.
        """
        watch = Stopwatch()
        with self.cache.collecting() as uses:
            worker, held, usage = again_if_lost(lambda: self._build(recipe, limits, make_backend))
        return self.pool.add(recipe.key, recipe.source, worker, held, Making(usage.to_dict(), watch.tokens(), uses))

    def _build(
        self, recipe: IndexRecipe, limits: Limits, make_backend: MakeBackend
    ) -> tuple[MemoryWorker, Held | None, StageUsage]:
        held = None if self._holdings is None else self._holdings.memory()
        backend = make_backend(held)
        worker = None
        try:
            with self.flights.flight():
                collections = None if held is None else held.limits
                worker = self._sandbox.open(recipe.source, backend, limits, collections)
                for units, raw_text in recipe.groups:
                    worker.index([dict(unit) for unit in units], raw_text)
        except BaseException:
            if worker is not None:
                worker.close()
            if held is not None:
                held.close()
            raise
        return worker, held, backend.usage


class BuiltMemory:
    """A memory that is found or built when first needed, and given back when closed; its methods may run in any thread.

    With `own` it is never one that another use left.
    """

    def __init__(
        self,
        recipe: IndexRecipe,
        limits: Limits,
        builder: MemoryBuilder,
        make_backend: MakeBackend,
        *,
        own: bool = False,
    ) -> None:
        self.key = recipe.key
        self.flights = builder.flights
        self.broken: CandidateError | None = None
        """Why it cannot be built, so that what fails is the fault of `index`."""
        self._recipe = recipe
        self._limits = limits
        self._builder = builder
        self._make_backend = make_backend
        self._own = own
        self._building = threading.Lock()
        self._lease: Lease | None = None
        self._retired: list[Lease] = []
        self._twin: BuiltMemory | None = None

    def lease(self) -> Lease:
        """The memory; raises CandidateError when construction or `index` fails.

        Built by the first thread that needs it; a program that fails is not tried again.
        """
        with self._building:
            if self.broken is not None:
                raise self.broken
            if self._lease is None:
                self._lease = self._find()
            return self._lease

    def renew(self, lease: Lease) -> None:
        """`lease` is lost or not to be believed: who asks from now on gets a memory built for them."""
        with self._building:
            if self._lease is lease:
                self._own = True
                self._lease = None
                lease.forsake()
                # Others may have queries under way in it.
                self._retired.append(lease)

    def twin(self) -> BuiltMemory:
        """The same memory once more, built by itself to compare with."""
        with self._building:
            if self._twin is None:
                self._twin = BuiltMemory(self._recipe, self._limits, self._builder, self._make_backend, own=True)
            return self._twin

    def distrust(self) -> None:
        """Nobody else is to get this memory again."""
        with self._building:
            if self._lease is not None:
                self._lease.forsake()

    def usage(self) -> Mapping[str, Any] | None:
        """What indexing costs, as recorded when this memory was first built; None before that."""
        record: Mapping[str, Any] | None = self._builder.cache.get_json("index", self.key)
        return record

    def close(self) -> None:
        """Give the memory back."""
        if self._twin is not None:
            self._twin.close()
        for lease in self._retired:
            lease.release()
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _find(self) -> Lease:
        cache = self._builder.cache
        if not self._own:
            lease = self._builder.pool.take(self.key, self._recipe.source)
            if lease is not None:
                # The record may have left the cache since the memory was built.
                if cache.get_json("index", self.key) is None:
                    cache.put_json("index", self.key, lease.making.usage, cost=lease.making.cost)
                cache.note(lease.making.uses)
                return lease
        try:
            lease = self._builder.build(self._recipe, self._limits, self._make_backend)
        except CandidateError as error:
            self.broken = error
            raise
        cache.put_json("index", self.key, lease.making.usage, cost=lease.making.cost)
        return lease
