"""How many calls of a model are under way, over time: the occupancy of its slots."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """A moment of a meter: seconds on its clock, slot-seconds taken so far and seconds with a call under way."""

    at: float
    slot_seconds: float
    busy_seconds: float
    calls: int

    def since(self, earlier: Reading) -> Reading:
        """What has passed between the two moments."""
        return Reading(
            self.at - earlier.at,
            self.slot_seconds - earlier.slot_seconds,
            self.busy_seconds - earlier.busy_seconds,
            self.calls - earlier.calls,
        )


class Meter:
    """Counts the calls under way on `slots` slots; thread-safe.

    A call that waits for a slot is not under way. Whoever is added to `followers` counts the same calls, so that one
    meter can follow several.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._lock = threading.Lock()
        self._under_way = 0
        self._started = self._changed = time.monotonic()
        self._slot_seconds = 0.0
        self._busy_seconds = 0.0
        self._calls = 0
        self.followers: list[Meter] = []

    def enter(self, calls: int = 1) -> None:
        """That many calls begin."""
        with self._lock:
            self._advance()
            self._under_way += calls
            self._calls += calls
        for follower in self.followers:
            follower.enter(calls)

    def leave(self, calls: int = 1) -> None:
        """That many calls have ended, well or not."""
        with self._lock:
            self._advance()
            self._under_way -= calls
        for follower in self.followers:
            follower.leave(calls)

    @property
    def under_way(self) -> int:
        """Calls under way now."""
        with self._lock:
            return self._under_way

    def read(self) -> Reading:
        """This moment."""
        with self._lock:
            self._advance()
            return Reading(self._changed - self._started, self._slot_seconds, self._busy_seconds, self._calls)

    def _advance(self) -> None:
        now = time.monotonic()
        passed = now - self._changed
        self._slot_seconds += passed * self._under_way
        self._busy_seconds += passed if self._under_way else 0.0
        self._changed = now
