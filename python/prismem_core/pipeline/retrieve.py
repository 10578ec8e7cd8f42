"""Stage 5: the retrieved text of a query, read-only and independent of earlier queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.errors import CandidateError, SandboxError, WorkerLost
from prismem_core.pipeline.costs import Stopwatch
from prismem_core.pipeline.index import BuiltMemory, MakeBackend
from prismem_core.program.sandbox.recovery import again_if_lost


@dataclass(frozen=True)
class Retrieval:
    """The retrieved text and the logical cost of the calls `retrieve` made."""

    text: str
    usage: Mapping[str, Any]


Check = Callable[[BuiltMemory, Retrieval, Callable[[BuiltMemory], Retrieval]], Retrieval]
"""Compares what a reused memory gave with what the given function finds in another; returns what counts."""


def retrieve(
    memory: BuiltMemory,
    query: Mapping[str, Any],
    retrieve_digest: str,
    cache: ExecutionCache,
    make_backend: MakeBackend,
    check: Check | None = None,
) -> Retrieval:
    """The text `Memory.retrieve` returns, from the cache when the same code met the same memory and query before.

    `check` is asked about texts that come from a reused memory.
    """
    key = digest("retrieve", memory.key, dict(query), retrieve_digest)
    found = cache.get_json("retrieve", key)
    if found is not None:
        return Retrieval(found["text"], found["usage"])
    watch = Stopwatch()
    retrieval, reused = _ask(memory, query, make_backend)
    if reused and check is not None:
        retrieval = check(memory, retrieval, lambda other: _ask(other, query, make_backend)[0])
    cache.put_json("retrieve", key, {"text": retrieval.text, "usage": retrieval.usage}, cost=watch.tokens())
    return retrieval


def _ask(memory: BuiltMemory, query: Mapping[str, Any], make_backend: MakeBackend) -> tuple[Retrieval, bool]:
    """What a query gives, and whether a reused memory gave it; raises CandidateError."""
    deaths = 0

    def once() -> tuple[Retrieval, bool] | None:
        """None where it is to be asked again."""
        nonlocal deaths
        try:
            lease = memory.lease()
        except WorkerLost as lost:
            raise SandboxError(str(lost)) from None
        backend = make_backend(lease.held)
        try:
            with memory.flights.flight():
                text, _ = lease.worker.retrieve(dict(query), backend)
        except WorkerLost:
            memory.renew(lease)
            raise
        except CandidateError as error:
            if lease.attached:
                # A failure is told by a memory of the program's own alone.
                memory.renew(lease)
                return None
            if error.kind != "died":
                raise
            # The copy may have been killed from outside; what dies twice died of itself.
            deaths += 1
            if deaths > 1:
                raise
            if not lease.alive:
                memory.renew(lease)
            return None
        return Retrieval(text, backend.usage.to_dict()), lease.reused

    while (answer := again_if_lost(once)) is None:
        pass
    return answer
