"""The ledger of calls that were really made: one JSON line each, written before the caller sees the reply."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismem_core.errors import RunError

ENGINE = "engine"
"""The role of records that stand for no call of a model: launches of the engine's own ops."""
TIME = "time"
"""The role of records of time: wall seconds of the run, or GPU seconds of the role in `of`."""
TIME_EVERY_SECONDS = 5.0
"""Time is written with the first call after so many seconds, and at the end: a kill loses no more of what was noted."""


@dataclass
class Usage:
    """Calls and tokens."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: Usage) -> None:
        """Add `other` to this one."""
        self.calls += other.calls
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens

    def to_dict(self) -> dict[str, int]:
        """The three counts by name."""
        return {"calls": self.calls, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}


@dataclass
class Launches:
    """Searches of collections (`calls`), the batches they went in, the calls that shared one, launches by kind."""

    calls: int = 0
    batches: int = 0
    merged: int = 0
    launches: dict[str, int] = field(default_factory=dict)

    def add(self, calls: int, launches: Mapping[str, int]) -> None:
        """Count one batch of `calls`."""
        self.calls += calls
        self.batches += 1
        self.merged += calls if calls > 1 else 0
        for kind, count in launches.items():
            self.launches[kind] = self.launches.get(kind, 0) + count

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        launches = dict(sorted(self.launches.items()))
        return {"calls": self.calls, "batches": self.batches, "merged": self.merged, "launches": launches}


class Ledger:
    """Records calls by role and stage in memory and, with a path, in an append-only file that a later process
    continues.

    Thread-safe. Each record is one write(2), so a killed process leaves at most one torn last line, which is cut on
    opening. It also keeps the time: wall seconds from opening to closing, over all processes that opened the file, and
    GPU seconds by role (`ENGINE` for searches).
    """

    def __init__(
        self, path: Path | None = None, *, read_only: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = threading.Lock()
        self._totals: dict[tuple[str, str], Usage] = {}
        self._purposes: dict[tuple[str, str, str], Usage] = {}
        self._iterations: dict[tuple[int | None, str, str], Usage] = {}
        self._launches = Launches()
        self._scope: dict[str, Any] = {}
        self._iteration: int | None = None
        self._descriptor: int | None = None
        self._path = path
        self._clock = None if read_only else clock
        self._opened = self._noted = clock()
        self._earlier = 0.0
        self._gpu: dict[str, float] = {}
        self._unwritten: dict[str, float] = {}
        if path is not None:
            self._load(path, read_only)
            if read_only:
                return
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def _load(self, path: Path, read_only: bool) -> None:
        if not path.exists():
            return
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data) and not read_only:
            os.truncate(path, whole)
        for line in data[:whole].splitlines():
            try:
                record = json.loads(line)
                if record["role"] == ENGINE:
                    self._launches.add(int(record["calls"]), dict(record["launches"]))
                    continue
                if record["role"] == TIME:
                    self._add_time(record)
                    continue
                usage = Usage(1, int(record["input_tokens"]), int(record["output_tokens"]))
                self._count(record, usage)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise RunError(
                    f"{path} is damaged: a line is not a call record ({error}); delete the file to lose only the counts"
                ) from error

    def _add_time(self, record: Mapping[str, Any]) -> None:
        if "of" in record:
            role = str(record["of"])
            self._gpu[role] = self._gpu.get(role, 0.0) + float(record["gpu_seconds"])
        else:
            self._earlier += float(record["seconds"])

    def _count(self, record: Mapping[str, Any], usage: Usage) -> None:
        program, stage, purpose = str(record.get("program", "")), str(record["stage"]), str(record.get("purpose", ""))
        self._totals.setdefault((str(record["role"]), stage), Usage()).add(usage)
        self._purposes.setdefault((program, stage, purpose), Usage()).add(usage)
        iteration = record.get("iteration")
        self._iterations.setdefault((None if iteration is None else int(iteration), stage, purpose), Usage()).add(usage)

    @contextmanager
    def scope(self, **fields: Any) -> Iterator[None]:
        """Mark every record made inside with these fields (`program` and `purpose`)."""
        with self._lock:
            before, self._scope = self._scope, {**self._scope, **fields}
        try:
            yield
        finally:
            with self._lock:
                self._scope = before

    def begin_iteration(self, iteration: int) -> None:
        """Mark every record from now on as made in that iteration of a run."""
        with self._lock:
            self._iteration = iteration

    def record(self, role: str, stage: str, key: str, input_tokens: int, output_tokens: int) -> None:
        """Count one call that was made; raises RunError if the file cannot take it."""
        with self._lock:
            line = {
                **self._fields(),
                "role": role,
                "stage": stage,
                "key": key,
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
            }
            self._count(line, Usage(1, input_tokens, output_tokens))
            self._write(line)
            if self._clock is not None and self._clock() - self._noted >= TIME_EVERY_SECONDS:
                self._write_time()

    def record_gpu(self, role: str, seconds: float) -> None:
        """Count GPU seconds of a role; they reach the file with the next record of time."""
        with self._lock:
            self._gpu[role] = self._gpu.get(role, 0.0) + seconds
            self._unwritten[role] = self._unwritten.get(role, 0.0) + seconds

    def gpu_seconds(self) -> dict[str, float]:
        """GPU seconds by role so far, in sorted order."""
        with self._lock:
            return dict(sorted(self._gpu.items()))

    def seconds(self) -> float:
        """Wall seconds so far: those of earlier processes and those since this one opened the ledger."""
        with self._lock:
            return self._earlier + (0.0 if self._clock is None else self._clock() - self._opened)

    def _write_time(self) -> None:
        if self._clock is None:
            return
        now = self._clock()
        self._write({"role": TIME, "seconds": round(now - self._noted, 3)})
        self._noted = now
        for role, seconds in sorted(self._unwritten.items()):
            self._write({"role": TIME, "of": role, "gpu_seconds": round(seconds, 3)})
        self._unwritten.clear()

    def record_launches(self, calls: int, launches: Mapping[str, int]) -> None:
        """Count searches of collections that were answered together, and what was launched for them."""
        with self._lock:
            self._launches.add(calls, launches)
            self._write({**self._fields(), "role": ENGINE, "calls": calls, "launches": dict(launches)})

    def _fields(self) -> dict[str, Any]:
        return self._scope if self._iteration is None else {**self._scope, "iteration": self._iteration}

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._descriptor is None:
            return
        data = (json.dumps(line, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n").encode()
        before = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                raise OSError("the disk is full")
        except OSError as error:
            os.ftruncate(self._descriptor, before)
            raise RunError(f"cannot write {self._path}: {error}; free some space and resume the run") from error

    def launches(self) -> Launches:
        """Searches of collections so far and what was launched for them; how they were merged depends on timing."""
        with self._lock:
            return Launches(**{**vars(self._launches), "launches": dict(self._launches.launches)})

    def totals(self) -> dict[tuple[str, str], Usage]:
        """Usage by (role, stage), in sorted order."""
        with self._lock:
            return {key: Usage(**self._totals[key].to_dict()) for key in sorted(self._totals)}

    def by_purpose(self) -> dict[tuple[str, str, str], Usage]:
        """Usage by (program, stage, purpose), in sorted order."""
        with self._lock:
            return {key: Usage(**self._purposes[key].to_dict()) for key in sorted(self._purposes)}

    def by_iteration(self) -> dict[tuple[int | None, str, str], Usage]:
        """Usage by (iteration, stage, purpose); None for what was recorded outside the iterations of a run."""
        with self._lock:
            return {key: Usage(**usage.to_dict()) for key, usage in self._iterations.items()}

    def for_purpose(self, purpose: str) -> Usage:
        """All usage recorded inside a scope of that purpose."""
        total = Usage()
        for (_, _, own), usage in self.by_purpose().items():
            if own == purpose:
                total.add(usage)
        return total

    def close(self) -> None:
        """Close the file; counts stay readable."""
        with self._lock:
            if self._descriptor is not None:
                try:
                    self._write_time()
                finally:
                    os.close(self._descriptor)
                    self._descriptor = None
                    self._earlier += 0.0 if self._clock is None else self._clock() - self._opened
                    self._clock = None
