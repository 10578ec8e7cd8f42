"""Calls of programs in flight: who computes, who waits in the engine, and the merged searches of interface "engine"."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from prismem_core.ops.screened import Measured, Screen
from prismem_core.program.collections.query import CollectionQuery, Hits
from prismem_core.program.collections.store import CollectionStore, Scope
from prismem_core.program.sandbox import CollectionLimits
from prismem_core.roles.protocols import Embedder

LINGER_SECONDS = 0.05
"""How long a search waits, at most, for the copies that still compute."""


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RecordsLaunches(Protocol):
    """Who is told of launches: the ledger."""

    def record_launches(self, calls: int, launches: Mapping[str, int]) -> None: ...


class Flights:
    """Calls of programs under way, from any thread: at most `computing` of them run program code at a time.

    A call that waits for the engine (`away`) gives its place to another, so more calls can be under way than compute;
    when none computes, nobody can come to join a search that waits.
    """

    def __init__(self, computing: int) -> None:
        self.changed = threading.Condition()
        self._places = computing
        self._engaged = 0

    @property
    def engaged(self) -> int:
        """Calls under way that do not wait for the engine; read it under `changed`."""
        return self._engaged

    @contextmanager
    def flight(self) -> Iterator[None]:
        """One call of a program."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Inside a flight: a wait for the engine."""
        self._leave()
        try:
            yield
        finally:
            self._enter()

    def _enter(self) -> None:
        with self.changed:
            self._engaged += 1
            while self._places == 0:
                self.changed.wait()
            self._places -= 1

    def _leave(self) -> None:
        with self.changed:
            self._engaged -= 1
            self._places += 1
            self.changed.notify_all()


class _Waiting:
    """A search that waits for its launch."""

    def __init__(self, query: CollectionQuery) -> None:
        self.query = query
        self.deadline = time.monotonic() + LINGER_SECONDS
        self.taken = False
        self.hits: list[Hits] | None = None
        self.error: BaseException | None = None


class SearchBroker:
    """Takes the searches of all copies in flight and sends those that wait at the same time to the store as one batch.

    The first thread that finds nobody computing, or its own patience at an end, runs the batch for all; meanwhile
    others gather for the next. What a search finds does not depend on the batch it went with.
    """

    def __init__(self, store: CollectionStore, flights: Flights, recorder: RecordsLaunches) -> None:
        self._store = store
        self._flights = flights
        self._recorder = recorder
        self._waiting: list[_Waiting] = []
        self._launching = False

    def find(self, query: CollectionQuery) -> list[Hits]:
        """Hits of each text; raises what the embedder raises for the batch."""
        mine = _Waiting(query)
        changed = self._flights.changed
        with self._flights.away():
            with changed:
                self._waiting.append(mine)
                batch = self._wait(mine)
            if batch:
                try:
                    self._launch(batch)
                finally:
                    with changed:
                        self._launching = False
                        changed.notify_all()
        if mine.error is not None:
            raise mine.error
        assert mine.hits is not None
        return mine.hits

    def _wait(self, mine: _Waiting) -> list[_Waiting]:
        """Until somebody has launched `mine` (nothing), or it falls to the caller to launch all that wait."""
        while True:
            if mine.hits is not None or mine.error is not None:
                return []
            now = time.monotonic()
            due = self._flights.engaged == 0 or now >= mine.deadline
            if due and not self._launching and not mine.taken:
                batch, self._waiting = self._waiting, []
                for waiting in batch:
                    waiting.taken = True
                self._launching = True
                return batch
            self._flights.changed.wait(None if due or mine.taken else mine.deadline - now)

    def _launch(self, batch: Sequence[_Waiting]) -> None:
        try:
            found, launched = self._store.find([waiting.query for waiting in batch])
            self._recorder.record_launches(len(batch), launched)
        except BaseException as error:
            for waiting in batch:
                waiting.error = error
            return
        for waiting, hits in zip(batch, found, strict=True):
            waiting.hits = hits


@dataclass(frozen=True)
class Held:
    """The collections of one memory, and its way to the launches that all memories of a pipeline share."""

    scope: Scope
    store: CollectionStore
    broker: SearchBroker
    limits: CollectionLimits

    @property
    def bytes(self) -> int:
        """Bytes of the rows that the collections lie in, those shared with other memories included."""
        return self.store.bytes_of(self.scope)

    def close(self) -> None:
        """Let go of the memory's collections."""
        self.store.close(self.scope)


class Holdings:
    """What interface "engine" adds to a pipeline: the collections of all memories."""

    def __init__(
        self,
        embedder: Embedder,
        flights: Flights,
        limits: CollectionLimits,
        recorder: RecordsLaunches,
        device: str = "cpu",
        measured: Measured = nullcontext,
    ) -> None:
        self._store = CollectionStore(embedder, screen=Screen(device, measured=measured))
        self._broker = SearchBroker(self._store, flights, recorder)
        self._limits = limits

    def memory(self) -> Held:
        """The part of a new memory, without collections yet."""
        return Held(Scope(), self._store, self._broker, self._limits)
