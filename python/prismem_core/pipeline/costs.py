"""What the stages of the pipeline tell the cache about the cost of their outputs: tokens, as calls of models do."""

from __future__ import annotations

import time

TOKENS_PER_SECOND = 1000.0
"""A second of a program's own work, in tokens: about what a hosted model reads and writes in that time."""


class Stopwatch:
    """The cost of the work since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def tokens(self) -> float:
        """Seconds so far as tokens."""
        return TOKENS_PER_SECOND * (time.perf_counter() - self._began)
