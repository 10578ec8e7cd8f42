"""Built memories that outlive their use: stopped worker processes, by what decided them, while memory allows."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from prismem_core.errors import CandidateError, SandboxError
from prismem_core.pipeline.flights import Held
from prismem_core.program.grafting import Graft, plan_graft
from prismem_core.program.sandbox import MemoryWorker

MOST_PROCESSES = 64
"""Processes that are kept at most."""


def default_budget() -> int:
    """Bytes of frozen memories where nothing else is said: 1 GiB, or a quarter of the machine's memory if less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(1 << 30, machine // 4)


@dataclass(frozen=True)
class Making:
    """What building a memory took: its usage as JSON, its cost in tokens, and the keys of what it used of the cache."""

    usage: Mapping[str, Any]
    cost: float
    uses: Mapping[str, Set[bytes]] = field(default_factory=dict)


@dataclass(eq=False)
class _Frozen:
    """One memory in a worker; `root` is the one it is a copy of, which must live as long, None for one built itself."""

    key: str
    source: str
    worker: MemoryWorker
    held: Held | None
    making: Making
    root: _Frozen | None = None
    users: int = 0
    bytes: int = 0
    used: int = 0
    kept: bool = True
    copies: list[_Frozen] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        return self.users == 0 and all(copy.users == 0 for copy in self.copies)

    @property
    def alive(self) -> bool:
        # A process that ended has no memory left.
        return self.worker.private_bytes() > 0

    def end(self) -> None:
        for copy in self.copies:
            copy.end()
        self.worker.close()
        if self.root is None and self.held is not None:
            self.held.close()


class Lease:
    """A memory in use; it is neither stopped nor dropped until `release`.

    `reused` says that an earlier use left it, `attached` that it was built by another source than it runs.
    """

    def __init__(self, pool: FrozenMemories, frozen: _Frozen, *, reused: bool) -> None:
        self.worker = frozen.worker
        self.held = frozen.held
        self.making = frozen.making
        self.reused = reused
        self.attached = frozen.root is not None
        self._pool = pool
        self._frozen: _Frozen | None = frozen

    @property
    def alive(self) -> bool:
        """Whether the process that holds the memory is there."""
        return self._frozen is not None and self._frozen.alive

    def forsake(self) -> None:
        """Nobody else is to get the memory from now on; what this lease has under way in it may go on."""
        if self._frozen is not None:
            self._pool._forsake(self._frozen)

    def release(self) -> None:
        """The memory is not needed any more."""
        frozen, self._frozen = self._frozen, None
        if frozen is not None:
            self._pool._let_go(frozen)


class FrozenMemories:
    """Keeps memories after their use, the longest unused dropped first beyond a budget of private memory.

    A memory is found by its key and source as it is; for another source with the same key a copy takes that source in,
    where `plan_graft` allows it. Thread-safe. With a budget of 0 nothing is kept.
    """

    def __init__(self, budget_bytes: int, most_processes: int = MOST_PROCESSES) -> None:
        self._budget = budget_bytes
        self._most = most_processes
        self._lock = threading.Lock()
        self._all: list[_Frozen] = []
        self._clock = 0
        self._closed = False

    def take(self, key: str, source: str) -> Lease | None:
        """A memory with this key that runs `source`, or None: build one and `add` it."""
        for frozen in self._found(key):
            if frozen.source == source and self._hold(frozen):
                if frozen.alive:
                    return Lease(self, frozen, reused=True)
                self._forsake(frozen)
                self._let_go(frozen)
        for root in self._found(key):
            planned = plan_graft(root.source, source) if root.root is None else None
            if isinstance(planned, Graft) and self._hold(root):
                copy = self._attach(root, planned)
                if copy is None and not root.alive:
                    self._forsake(root)
                self._let_go(root)
                if copy is not None:
                    return Lease(self, copy, reused=True)
        return None

    def add(self, key: str, source: str, worker: MemoryWorker, held: Held | None, making: Making) -> Lease:
        """Take over a memory that was built just now, for the builder to use first."""
        frozen = _Frozen(key, source, worker, held, making, users=1)
        # Where workers cannot be copied, a worker holds nothing that a query could use.
        frozen.kept = worker.copies and not any(other.source == source for other in self._found(key))
        self._enter(frozen)
        return Lease(self, frozen, reused=False)

    def close(self) -> None:
        """End all that nobody uses; what is in use ends with its release."""
        with self._lock:
            self._closed = True
            dropped = self._over_budget()
        _end(dropped)

    def _found(self, key: str) -> list[_Frozen]:
        """What is kept for a key, last used first."""
        with self._lock:
            found = [frozen for frozen in self._all if frozen.key == key and frozen.kept]
            return sorted(found, key=lambda frozen: -frozen.used)

    def _hold(self, frozen: _Frozen) -> bool:
        """Count one more user, unless the memory has gone meanwhile."""
        with self._lock:
            if not frozen.kept or frozen not in self._all:
                return False
            frozen.users += 1
            if frozen.users == 1:
                frozen.worker.thaw()
            self._touch(frozen)
            return True

    def _attach(self, root: _Frozen, graft: Graft) -> _Frozen | None:
        try:
            worker = root.worker.attach(graft)
        except (CandidateError, SandboxError):
            return None
        copy = _Frozen(root.key, graft.source, worker, root.held, root.making, root, users=1)
        self._enter(copy)
        return copy

    def _enter(self, frozen: _Frozen) -> None:
        # Later its pages may be shared with a copy that is on its way out, and count as nobody's.
        frozen.bytes = frozen.worker.private_bytes()
        if frozen.root is None and frozen.held is not None:
            frozen.bytes += frozen.held.bytes
        with self._lock:
            self._all.append(frozen)
            if frozen.root is not None:
                frozen.root.copies.append(frozen)
            self._touch(frozen)

    def _touch(self, frozen: _Frozen) -> None:
        self._clock += 1
        frozen.used = self._clock
        if frozen.root is not None:
            frozen.root.used = self._clock

    def _forsake(self, frozen: _Frozen) -> None:
        with self._lock:
            frozen.kept = False

    def _let_go(self, frozen: _Frozen) -> None:
        with self._lock:
            frozen.users -= 1
            self._touch(frozen)
            if frozen.users == 0 and frozen.kept and not self._closed and self._budget > 0:
                frozen.worker.freeze()
            dropped = self._over_budget()
        _end(dropped)

    def _over_budget(self) -> list[_Frozen]:
        """Take out what must go: all that is not to be kept, then the longest unused."""
        dropped: list[_Frozen] = []
        while True:
            idle = sorted((frozen for frozen in self._all if frozen.idle), key=lambda frozen: frozen.used)
            nothing = self._closed or self._budget <= 0
            unwanted = [frozen for frozen in idle if nothing or not frozen.kept]
            total = sum(frozen.bytes for frozen in self._all)
            if not unwanted and (total > self._budget or len(self._all) > self._most):
                unwanted = idle[:1]
            if not unwanted:
                return dropped
            dropped.append(unwanted[0])
            self._take_out(unwanted[0])

    def _take_out(self, frozen: _Frozen) -> None:
        frozen.kept = False
        for gone in (frozen, *frozen.copies):
            if gone in self._all:
                self._all.remove(gone)
        if frozen.root is not None and frozen in frozen.root.copies:
            frozen.root.copies.remove(frozen)


def _end(dropped: Iterable[_Frozen]) -> None:
    for frozen in dropped:
        frozen.end()
