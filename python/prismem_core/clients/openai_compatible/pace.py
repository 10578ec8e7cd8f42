"""The pace of calls to a server that limits their rate: slower after each refusal, faster again while none comes."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_SPACING_SECONDS = 0.02
LONGEST_SPACING_SECONDS = 20.0
_SLOWER, _FASTER = 1.5, 0.98
# Refusals that come together are one piece of news.
_NEWS_SECONDS = 0.25


class Pace:
    """Seconds between the beginnings of calls, zero until a server refuses one for its rate.

    Many slots that all try again after the same wait would use up their tries on each other; at a pace that the server
    bears, hardly any is refused.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.spacing = 0.0
        self._clock = clock
        self._next = 0.0
        self._heard_until = 0.0

    def turn(self) -> float:
        """Seconds until the next call may begin; takes that turn."""
        now = self._clock()
        begin = max(now, self._next)
        self._next = begin + self.spacing
        return begin - now

    def refused(self, begun: float) -> None:
        """A call that began at `begun` was refused for the rate; one that began before the last change, or soon after,
        tells nothing new.
        """
        if begun >= self._heard_until:
            self.spacing = min(LONGEST_SPACING_SECONDS, max(FIRST_SPACING_SECONDS, _SLOWER * self.spacing))
            self._heard_until = self._clock() + max(_NEWS_SECONDS, 2 * self.spacing)

    def answered(self) -> None:
        """A call was answered."""
        self.spacing *= _FASTER
        if self.spacing < FIRST_SPACING_SECONDS / 10:
            self.spacing = 0.0
