"""What to do about a lost worker: the same work again, in a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from prismem_core.errors import CandidateError, WorkerLost

Result = TypeVar("Result")

_ATTEMPTS = 3


def again_if_lost(work: Callable[[], Result]) -> Result:
    """What `work`, which opens its own workers, returns; done again, at most twice, when a worker was lost in it.

    A program whose process is killed every time is to blame for that, most often because it takes the machine's memory:
    CandidateError (`died`). Raises WorkerLost where the sandbox itself does not last.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return work()
        except WorkerLost as lost:
            if attempt == _ATTEMPTS:
                if lost.killed:
                    raise CandidateError("died", f"{lost} ({_ATTEMPTS} times)") from None
                raise
    raise AssertionError("unreachable")
