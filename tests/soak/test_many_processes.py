"""Many processes on one cache directory while some are killed: nothing wrong, nothing lost, nothing left behind."""

from __future__ import annotations

import fcntl
import os
import random
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import prismem_core
from prismem_core.cache import ExecutionCache

from .conftest import AMPLE_DISK, LONG, LONG_TIGHT, SHORT, SHORT_TIGHT, Crowd
from .worker import NOTES, ROW, SEGMENT_BYTES, fact, is_row, name_of, row, version_of

WORKER = Path(__file__).with_name("worker.py")


class Child:
    """One worker process and what it has said so far."""

    def __init__(self, slot: int, directory: Path, began: float, crowd: Crowd, stored: list[int]) -> None:
        path = str(Path(prismem_core.__file__).parent.parent)
        self.slot = slot
        self.rest = b""
        self.ready = False
        self.computing: int | None = None
        what = "keeps" if crowd.disk_bytes == AMPLE_DISK else "evicts"
        words = (directory, crowd.disk_bytes, what, slot, began, crowd.processes, *stored)
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])},
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout

    def said(self, data: bytes) -> list[list[str]]:
        """The words of the lines that are now whole."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.decode().split() for line in lines]


class Parent:
    """Starts the workers, hears them, kills some, and knows what must be in the cache."""

    def __init__(self, directory: Path, crowd: Crowd) -> None:
        self.directory, self.crowd = directory, crowd
        self.evicts = crowd.disk_bytes != AMPLE_DISK
        self.random = random.Random(23)
        # Where room is tight there are facts enough from the beginning to fill it many times.
        self.began = time.time() - (40.0 if self.evicts else 0.0)
        self.stored = Counter[int]()
        self.started = Counter[int]()
        self.finished = Counter[int]()
        self.cut_short = Counter[int]()
        self.there: set[int] = set()
        self.selector = selectors.DefaultSelector()
        self.children: list[Child] = []

    def open(self) -> ExecutionCache:
        return ExecutionCache(self.directory, segment_bytes=SEGMENT_BYTES, disk_bytes=self.crowd.disk_bytes)

    def start(self, slot: int) -> Child:
        own = [self.stored[slot * NOTES + i] for i in range(NOTES)]
        child = Child(slot, self.directory, self.began, self.crowd, own)
        self.selector.register(child.pipe, selectors.EVENT_READ, child)
        self.children.append(child)
        return child

    def hear(self, seconds: float) -> None:
        """Take in what the workers say for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for chosen, _ in self.selector.select(left):
                child: Child = chosen.data
                data = os.read(child.pipe.fileno(), 1 << 16)
                if not data:
                    self.gone(child)
                self.take(child, data)

    def take(self, child: Child, data: bytes) -> None:
        for word, *rest in child.said(data):
            assert word in ("ready", "start", "done", "seen", "note"), " ".join([word, *rest])
            numbers = list(map(int, rest))
            if word == "ready":
                child.ready = True
            elif word == "start":
                self.started[numbers[0]] += 1
                child.computing = numbers[0]
            elif word in ("done", "seen"):
                self.finished[numbers[0]] += word == "done"
                self.there.add(numbers[0])
                child.computing = None
            elif word == "note":
                for number, version in zip(numbers[::2], numbers[1::2], strict=True):
                    assert version == self.stored[number] + 1
                    self.stored[number] = version

    def gone(self, child: Child) -> None:
        """A worker that ended by itself has failed."""
        _, error = child.process.communicate()
        pytest.fail(f"worker {child.slot} ended with {child.process.returncode}: {error.decode()[-2000:]}")

    def end(self, child: Child, how: signal.Signals) -> None:
        """End a worker and hear the rest of what it said: that, too, was acknowledged."""
        child.process.send_signal(how)
        self.selector.unregister(child.pipe)
        self.children.remove(child)
        while data := os.read(child.pipe.fileno(), 1 << 16):
            self.take(child, data)
        _, error = child.process.communicate()
        assert child.process.returncode == (0 if how == signal.SIGTERM else -how), error.decode()[-2000:]
        if child.computing is not None:
            self.cut_short[child.computing] += 1

    def work(self) -> None:
        for slot in range(self.crowd.processes):
            self.start(slot)
        seconds = self.crowd.seconds
        moments = sorted(self.random.uniform(0.1 * seconds, seconds) for _ in range(self.crowd.kills))
        began = time.monotonic()
        with self.open() as cache:
            for moment in [*moments, seconds]:
                self.hear(max(0.0, began + moment - time.monotonic()))
                self.look(cache)
                if moment < seconds:
                    child = self.random.choice(self.children)
                    self.end(child, signal.SIGKILL)
                    self.start(child.slot)
            while not all(child.ready for child in self.children):
                self.hear(0.1)
            assert cache.damaged == 0
        for i, child in enumerate(list(self.children)):
            self.end(child, signal.SIGTERM if i % 2 else signal.SIGKILL)

    def look(self, cache: ExecutionCache) -> None:
        """This process sees at least what was acknowledged to it before it looked."""
        for number in self.random.sample(sorted(self.stored), min(20, len(self.stored))):
            value = cache.get("notes", name_of("note", number))
            assert value is not None or self.evicts
            assert value is None or version_of(number, value) >= self.stored[number]
        self.check_facts(cache, self.random.sample(sorted(self.there), min(20, len(self.there))))

    def check_facts(self, cache: ExecutionCache, numbers: list[int]) -> None:
        plain = [number for number in numbers if not is_row(number)]
        values = cache.get_many("facts", [name_of("fact", number) for number in plain])
        for n, value in zip(plain, values, strict=True):
            assert value == fact(n) or (value is None and self.evicts)
        rows = [number for number in numbers if is_row(number)]
        found, there = cache.get_rows("rows", [name_of("fact", number) for number in rows], ROW)
        assert there.all() or self.evicts
        assert [n for n, values in zip(rows, found, strict=True) if (values != row(n)).any() and values.any()] == []

    def check_all(self) -> None:
        """Everything acknowledged is there, every version whole, and every fact was computed by one that lived."""
        with self.open() as cache:
            self.check_facts(cache, sorted(self.there))
            for number, version in self.stored.items():
                value = cache.get("notes", name_of("note", number))
                assert value is not None or self.evicts
                # One more may have been stored by a worker that was killed before it could say so.
                assert value is None or version_of(number, value) in (version, version + 1)
            assert cache.damaged == 0
            report = cache.verify()
            assert report.clean, report
            assert report.entries >= len(self.there) + len(self.stored) or self.evicts
            gone = sum(
                np.count_nonzero(~cache.contains(stage, [name_of("fact", n) for n in self.there if is_row(n) == rows]))
                for stage, rows in (("facts", False), ("rows", True))
            )
        if self.evicts:
            assert gone > 0, "nothing was evicted"
            return
        assert {n for n, count in self.finished.items() if count > 1} == set()
        assert {n for n, count in self.started.items() if count > self.finished[n] + self.cut_short[n]} == set()


@pytest.mark.parametrize(
    "crowd",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(SHORT_TIGHT, id="short, little room"),
        pytest.param(LONG, id="long", marks=pytest.mark.soak),
        pytest.param(LONG_TIGHT, id="long, little room", marks=pytest.mark.soak),
    ],
)
def test_workers_that_are_killed_harm_nobody(tmp_path: Path, crowd: Crowd) -> None:
    directory = tmp_path / "cache"
    parent = Parent(directory, crowd)
    try:
        parent.work()
    finally:
        for child in parent.children:
            child.process.kill()
            child.process.communicate()
    assert len(parent.there) > crowd.seconds
    if parent.evicts:
        assert sum(path.stat().st_blocks * 512 for path in directory.iterdir() if path.is_file()) <= crowd.disk_bytes
    assert sum(parent.stored.values()) > 10 * crowd.processes
    assert sum(parent.cut_short.values()) <= crowd.kills + crowd.processes
    parent.check_all()
    nobody_holds_anything(directory, sorted(parent.there))


def nobody_holds_anything(directory: Path, facts: list[int]) -> None:
    """No lock and no lease is left: each can be had at once, by a process that waits for none."""
    for name in ("lock", "sessions"):
        with (directory / name).open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    taken: list[bool] = []

    def take() -> None:
        with ExecutionCache(directory) as cache:
            for stage in ("facts", "rows"):
                with cache.lease(stage, [name_of("fact", number) for number in facts]) as lease:
                    taken.append(len(lease.held) == len(facts) and not lease.waited)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(60)
    assert taken == [True, True]
