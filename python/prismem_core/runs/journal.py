"""The journal of a run: one event a line, append-only, the only truth of the run directory.

A line is the canonical JSON of an event with its `index` and the `time` it was written; `time` is the one field that
differs between two runs with the same seed. A line goes to the file in one write(2), so a kill leaves at most one torn
last line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from prismem_core.digests import canonical_json
from prismem_core.errors import RunError
from prismem_core.runs.events import Event, event_from_json


def utc_now() -> str:
    """The present time, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_journal(path: Path) -> tuple[list[Event], list[int]]:
    """The events of a journal and the byte offset after each of them; the file is left as it is.

    A damaged last line is a torn write and is left out; a damaged line before it raises RunError.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"{path.parent} has no {path.name}; it is not a run directory") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; mend its rights or the disk, then try again") from error
    events: list[Event] = []
    ends: list[int] = []
    offset = 0
    while offset < len(data):
        end = data.find(b"\n", offset) + 1
        if end == 0:
            break
        try:
            events.append(_parse(data[offset:end], len(events)))
        except (RunError, ValueError, RecursionError) as error:
            if end == len(data):
                break
            raise RunError(
                f"{path}, line {len(events) + 1}: {error}; the journal was damaged or edited, so the run cannot go on: "
                f"restore it from a copy, or keep its first {len(events)} lines, which are whole, and resume"
            ) from None
        ends.append(end)
        offset = end
    return events, ends


def _parse(line: bytes, index: int) -> Event:
    value = json.loads(line.decode("utf-8", "surrogatepass"))
    if not isinstance(value, dict):
        raise RunError("not an event")
    if value.get("index") != index:
        raise RunError(f"expected event number {index}, found {value.get('index')!r}")
    return event_from_json(value)


class Journal:
    """A journal open for appending; the caller holds the lock of the run directory.

    Opening cuts a torn last line. After a failed write the file ends at its last whole line.
    """

    def __init__(self, path: Path, *, clock: Callable[[], str] = utc_now) -> None:
        self.path = path
        self._clock = clock
        self._events, self._ends = read_journal(path) if path.exists() else ([], [])
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        try:
            self._file = os.open(path, flags, 0o644)
            os.ftruncate(self._file, self._size)
        except OSError as error:
            raise RunError(
                f"cannot write {path}: {error.strerror}; mend its rights or free some space, then resume the run"
            ) from error

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, oldest first."""
        return tuple(self._events)

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def append(self, event: Event) -> None:
        """Write one event; it is in the file when this returns, and nothing of it is there when this raises.

        A full disk raises RunError. Checkpoints are also forced to the disk.
        """
        line = canonical_json({**event.to_json(), "index": len(self._events), "time": self._clock()}) + b"\n"
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            if event.checkpoint:
                os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise RunError(
                f"cannot write {self.path}: {error.strerror}; the run is whole up to its last event, "
                "resume it once there is room"
            ) from error
        except BaseException:
            os.ftruncate(self._file, self._size)
            raise
        self._events.append(event)
        self._ends.append(self._size + len(line))

    def cut(self, count: int) -> list[Event]:
        """Keep the first `count` events and return the others, which leave the file."""
        removed = self._events[count:]
        if removed:
            os.ftruncate(self._file, self._ends[count - 1] if count else 0)
            del self._events[count:], self._ends[count:]
        return removed

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
