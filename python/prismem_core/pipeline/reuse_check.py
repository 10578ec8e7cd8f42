"""`verify_reuse`: a sample of the memories that were reused is built again, and what both give is compared."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

from prismem_core.digests import digest
from prismem_core.errors import CandidateError
from prismem_core.pipeline.index import BuiltMemory
from prismem_core.pipeline.retrieve import Retrieval

_LOGGER = logging.getLogger("prismem_core")


@dataclass(frozen=True)
class ReuseCounts:
    """Memories that were built again to compare, retrieved texts compared in them, and texts that differed."""

    memories: int = 0
    texts: int = 0
    differing: int = 0

    def to_dict(self) -> dict[str, int]:
        """JSON form."""
        return asdict(self)


class ReuseCheck:
    """Compares in a `share` of the reused memories, chosen by the digest of memory and program; thread-safe."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._lock = threading.Lock()
        self._memories: set[tuple[str, str]] = set()
        self._texts = 0
        self._differing = 0

    def counts(self) -> ReuseCounts:
        """What was compared so far."""
        with self._lock:
            return ReuseCounts(len(self._memories), self._texts, self._differing)

    def chosen(self, memory: BuiltMemory, program: str) -> bool:
        """Whether the texts that the program of this digest finds in the memory are compared."""
        return int(digest("verify", memory.key, program)[:8], 16) < self._share * 2**32

    def compare(
        self,
        memory: BuiltMemory,
        found: Retrieval,
        find: Callable[[BuiltMemory], Retrieval],
        *,
        program: str,
        question: str,
    ) -> Retrieval:
        """What a memory built for the purpose gives; a warning tells where that is not what was `found`.

        Raises CandidateError where the query fails in the new memory.
        """
        failure: CandidateError | None = None
        try:
            expected = find(memory.twin())
        except CandidateError as error:
            failure = error
        same = failure is None and expected.text == found.text
        with self._lock:
            self._memories.add((memory.key, program))
            self._texts += 1
            self._differing += not same
        if not same:
            memory.distrust()
            where = (
                f"failed: {failure}" if failure else f"differs from character {_first(found.text, expected.text)} on"
            )
            _LOGGER.warning(
                "a reused memory of program %s gave a text of its own for the question %r; that of a new memory, which "
                "counts, %s",
                program[:12],
                question,
                where,
            )
        if failure is not None:
            raise failure
        return expected


def _first(one: str, other: str) -> int:
    """The first position at which two texts differ."""
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))
