"""Stage 5: the retrieved text of a query, read-only and independent of earlier queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.pipeline.backend import EngineBackend
from prismem_core.pipeline.costs import Stopwatch
from prismem_core.pipeline.index import BuiltMemory


@dataclass(frozen=True)
class Retrieval:
    """The retrieved text and the logical cost of the calls `retrieve` made."""

    text: str
    usage: Mapping[str, Any]


def retrieve(
    memory: BuiltMemory,
    query: Mapping[str, Any],
    retrieve_digest: str,
    cache: ExecutionCache,
    make_backend: Callable[[], EngineBackend],
) -> Retrieval:
    """The text `Memory.retrieve` returns, from the cache when the same code met the same memory and query before."""
    key = digest("retrieve", memory.key, dict(query), retrieve_digest)
    found = cache.get_json("retrieve", key)
    if found is not None:
        return Retrieval(found["text"], found["usage"])
    watch = Stopwatch()
    backend = make_backend()
    worker = memory.worker()
    with memory.flight():
        text, _ = worker.retrieve(dict(query), backend)
    usage = backend.usage.to_dict()
    cache.put_json("retrieve", key, {"text": text, "usage": usage}, cost=watch.tokens())
    return Retrieval(text, usage)
