"""Two streams that record instead of run: which work is known to be done when other work begins.

An operation is ordered behind all that came before it in its stream and behind the events that the stream waited for.
Two operations on one buffer, of which one writes, must be ordered: what is not is a race on a device, even where the
order in which a program asks for them looks right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Operation:
    """A copy into a buffer, or a search that reads one."""

    stream: str
    buffer: int
    writes: bool
    behind: frozenset[int]


@dataclass
class Recorder:
    """Streams as `device_stream` takes them. `deaf_to`: events of this kind that are not waited for."""

    deaf_to: str = ""
    operations: list[Operation] = field(default_factory=list)
    settled: int = 0
    _done: dict[str, set[int]] = field(default_factory=lambda: {"copies": set(), "searches": set()})

    def _run(self, stream: str, buffer: int, writes: bool) -> None:
        self.operations.append(Operation(stream, buffer, writes, frozenset(self._done[stream])))
        self._done[stream].add(len(self.operations) - 1)

    def copy(self, target: Any, source: Any) -> None:
        self._run("copies", target.untyped_storage().data_ptr(), True)
        target.copy_(source)

    def search(self, rows: Any) -> None:
        """To be called by the kernel that stands in."""
        self._run("searches", rows.untyped_storage().data_ptr(), False)

    def copied(self) -> Any:
        return frozenset(self._done["copies"])

    def searched(self) -> Any:
        return frozenset(self._done["searches"])

    def copy_after(self, event: Any) -> None:
        if self.deaf_to != "searches":
            self._done["copies"] |= event

    def search_after(self, event: Any) -> None:
        if self.deaf_to != "copies":
            self._done["searches"] |= event

    def settle(self) -> None:
        self.settled += 1
        everything = set(range(len(self.operations)))
        self._done = {"copies": set(everything), "searches": set(everything)}

    def finished(self) -> None:
        """A search has read its outcome: its stream is done."""
        self._done["copies"] |= self._done["searches"]
        self._done["searches"] |= self._done["copies"]

    def races(self) -> list[tuple[int, int]]:
        """Pairs of operations on one buffer that nothing orders."""
        return [
            (earlier, later)
            for later, one in enumerate(self.operations)
            for earlier, other in enumerate(self.operations[:later])
            if one.buffer == other.buffer and (one.writes or other.writes) and earlier not in one.behind
        ]

    def overlaps(self) -> list[tuple[int, int]]:
        """Copies and searches of other buffers that may run at the same time."""
        return [
            (earlier, later)
            for later, one in enumerate(self.operations)
            for earlier, other in enumerate(self.operations[:later])
            if one.stream != other.stream and one.buffer != other.buffer and earlier not in one.behind
        ]
