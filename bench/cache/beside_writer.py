"""Gets in one process while another puts into the same store."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..contest import Competitor, Contest, Finding, Goal, Job, PeerMissing, Run, Work, require
from .child import numbered, start
from .stores import DISKCACHE, KINDS, LMDB, PLYVEL, PRISMEM, ROCKSDICT, SQLITE, Places, Store

_SIZE = 4096
_PATIENCE_SECONDS = 20


class _Watched:
    """A store with a writer in another process, which is stopped while others are measured."""

    def __init__(self, name: str, places: Places, count: int, writers: list[subprocess.Popen[bytes]]) -> None:
        require(KINDS[name].module, KINDS[name].library)
        self._keys = [numbered(number)[0] for number in range(count)]
        store = KINDS[name].open(places.path(name))
        store.put_many(self._keys, [bytes(8) + key * (_SIZE // 32) for key in self._keys])
        store.close()
        self._writer = start("overwrite", name, places.path(name), count, _SIZE)
        writers.append(self._writer)
        assert self._writer.stdout is not None
        if self._writer.stdout.readline() != b"ready\n":
            raise RuntimeError("the process that should write cannot open the store")
        try:
            self._store: Store = places.store(name)
        except Exception as error:
            words = str(error).replace(str(places.path(name)), "its directory")
            raise PeerMissing(f"it refuses a second process: {' '.join(words.split())[:80]}") from error
        self._writer.send_signal(signal.SIGSTOP)

    def run(self) -> _Watched:
        """Get every entry once while the other process puts."""
        get = self._store.get
        self._writer.send_signal(signal.SIGCONT)
        for key in self._keys:
            get(key)
        self._writer.send_signal(signal.SIGSTOP)
        return self

    def torn(self) -> int:
        """How many entries are of no single put; the writer goes on meanwhile."""
        self._writer.send_signal(signal.SIGCONT)
        torn = newest = 0
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while newest == 0 and time.monotonic() < deadline:
            for key in self._keys:
                value = self._store.get(key)
                torn += value is None or value[8:] != key * (_SIZE // 32)
                newest = max(newest, int.from_bytes(value[:8], "little") if value else 0)
        self._writer.send_signal(signal.SIGSTOP)
        if newest == 0:
            raise RuntimeError(f"in {_PATIENCE_SECONDS} s the reader saw nothing of what the writer put")
        return torn


def _watched(name: str, places: Places, count: int, writers: list[subprocess.Popen[bytes]]) -> Run:
    return _Watched(name, places, count, writers).run


def _prepare(count: int, quick: bool) -> Contest:
    count = 200 if quick else count
    places, writers = Places(), list[subprocess.Popen[bytes]]()

    def check(_: Competitor, watched: Any) -> Finding:
        torn = watched.torn()
        return Finding(f"{torn} of {count} values are of no single put" if torn else "")

    def finish() -> None:
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.communicate()
        places.finish()

    return Contest(
        f"values of {_SIZE} bytes, each put anew in turn by another process without pause",
        {"entries": count, "value_bytes": _SIZE},
        [
            Competitor(name, KINDS[name].library, partial(_watched, name, places, count, writers))
            for name in (PRISMEM, LMDB, SQLITE, DISKCACHE, PLYVEL, ROCKSDICT)
        ],
        check,
        Work(),
        finish,
    )


JOBS: Sequence[Job] = (
    Job(
        "cache/beside-writer-4k",
        "2000 gets of 4 KiB while another process puts",
        partial(_prepare, 2000),
        (Goal(PRISMEM, LMDB, 1.0),),
        threads=2,
    ),
)
