"""A million small entries: the rate of filling, disk and memory, gets, and reopening after the writer was killed."""

from __future__ import annotations

import itertools
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..contest import AT_MOST, Competitor, Contest, Finding, Goal, Job, PeerMissing, Run, Work, require
from .child import answer, chosen_entries, numbered, start
from .stores import DISKCACHE, KINDS, LMDB, PLYVEL, PRISMEM, ROCKSDICT, SQLITE, Places, Store

_ASKED = 2000
"""Gets of the timed call."""

_KILLS = 5
_ACKNOWLEDGED = 300
"""Puts that a writer has acknowledged at least before it is killed."""


class _Filled:
    """One competitor: fills its store, measures what that takes, kills writers, and gets from what is left."""

    def __init__(self, name: str, places: Places, count: int, values: str, kills: int) -> None:
        self.name, self.path = name, places.path(name)
        self.costs: dict[str, float] = {}
        self.lost = self.wrong = 0
        require(KINDS[name].module, KINDS[name].library)
        looked_up = places.path(f"{name} looked up")
        looked_up.parent.mkdir(parents=True, exist_ok=True)
        filled = answer("fill", name, self.path, count, values, looked_up)
        read = answer("read", name, self.path, looked_up)
        self.wrong = int(read["wrong"])
        self.costs = {
            "put_seconds": filled["cpu"],
            "put_wall_seconds": filled["wall"],
            "disk_bytes": float(_disk_bytes(self.path)),
            "reader_resident_bytes": read["rss"],
            "reader_share_bytes": read["pss"],
            "writer_peak_bytes": filled["peak"],
        }
        self._kill_writers(kills)
        self._entries = chosen_entries(looked_up)
        keys = [key for key, _ in self._entries]
        self._turns = itertools.cycle([keys[at : at + _ASKED] for at in range(0, len(keys) // _ASKED * _ASKED, _ASKED)])
        self._store = places.store(name)

    def _kill_writers(self, kills: int) -> None:
        walls, cpus, first = [], [], 0
        for _ in range(kills):
            writer = start("put", self.name, self.path, first)
            assert writer.stdout is not None
            for line in writer.stdout:
                if int(line) >= first + _ACKNOWLEDGED:
                    break
            writer.send_signal(signal.SIGKILL)
            # The last line may be cut; what was said whole was acknowledged.
            said = writer.stdout.read().split(b"\n")
            writer.wait()
            last = int(said[-2]) if len(said) > 1 else int(line)
            key, value = numbered(last)
            wall, cpu = time.perf_counter(), time.process_time()
            store = KINDS[self.name].open(self.path)
            found = store.get(key)
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
            self.lost += found != value
            self.lost += sum(store.get(key) != value for key, value in map(numbered, range(last)))
            store.close()
            first = last + 1
        self.costs["reopen_seconds"] = statistics.median(walls)
        self.costs["reopen_cpu_seconds"] = statistics.median(cpus)

    def run(self) -> tuple[_Filled, Store]:
        """Get some entries, others each time."""
        get = self._store.get
        for key in next(self._turns):
            get(key)
        return self, self._store

    def found_wrong(self) -> int:
        """How many of these entries are not what was put."""
        return self.wrong + sum(1 for key, value in self._entries if self._store.get(key) != value)


def _disk_bytes(path: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


def _prepare(count: int, values: str, quick: bool) -> Contest:
    if quick:
        count = 20_000
    places = Places()

    def make(name: str) -> Run:
        return _Filled(name, places, count, values, 1 if quick else _KILLS).run

    def check(_: Competitor, found: Any) -> Finding:
        filled: _Filled = found[0]
        complaints = []
        if wrong := filled.found_wrong():
            complaints.append(f"{wrong} values are not what was put")
        if filled.lost:
            complaints.append(f"{filled.lost} acknowledged puts of killed writers are lost")
        return Finding("; ".join(complaints), costs=filled.costs)

    def left_out() -> Run:
        raise PeerMissing("a million puts take minutes")

    makers: dict[str, Callable[[], Run]] = {
        name: partial(make, name) for name in (PRISMEM, LMDB, PLYVEL, SQLITE, ROCKSDICT)
    }
    makers[DISKCACHE] = left_out
    return Contest(
        f"{'random values' if values == 'random' else 'the same value'} of 100 bytes under random keys of 32 bytes, "
        f"put 10,000 at a time by one process, then flushed; memory: what opening and {min(count, 20_000)} gets, or "
        "all puts, add to a process; reopening: by the wall, with one get, after kill -9 of a process that puts singly",
        {"entries": count, "value_bytes": 100, "asked": min(count, _ASKED)},
        [Competitor(name, KINDS[name].library, made) for name, made in makers.items()],
        check,
        Work(),
        places.finish,
    )


_GOALS = (
    Goal(PRISMEM, LMDB, 2.5, cost="put_seconds"),
    Goal(PRISMEM, LMDB, 1.0, cost="disk_bytes"),
    Goal(PRISMEM, LMDB, 1.0, cost="reader_resident_bytes"),
    Goal(PRISMEM, LMDB, 1.0, cost="reader_share_bytes"),
    Goal(PRISMEM, LMDB, 1.0, cost="writer_peak_bytes"),
    Goal(PRISMEM, AT_MOST, 1.5e-3, cost="reopen_seconds"),
    Goal(PRISMEM, LMDB, 2.5),
)

JOBS: Sequence[Job] = (
    Job(
        "cache/million",
        "2000 gets of a million entries of 100 random bytes",
        partial(_prepare, 1_000_000, "random"),
        _GOALS,
    ),
    Job(
        "cache/million-compressible",
        "the same with one value that compresses well",
        partial(_prepare, 1_000_000, "same"),
        _GOALS,
    ),
)
