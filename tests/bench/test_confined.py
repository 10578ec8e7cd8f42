"""Processor time of processes that the engine did not start itself."""

from __future__ import annotations

import time

import numpy as np
import pytest

from prismem_core.bench.contest import Competitor, Contest, Finding, Job, Work
from prismem_core.bench.run import Settings, measured
from prismem_core.bench.sandbox.child import Child
from prismem_core.bench.sandbox.confined import LIMITS, ClockedSandbox, Clocks, clock
from prismem_core.bench.sandbox.programs import ECHO, Vectors

_BUSY = """
import socket, time
with socket.socket(fileno=descriptor) as end:
    while seconds := end.recv(100):
        stop = time.process_time() + float(seconds)
        while time.process_time() < stop:
            pass
        end.sendall(b"done")
"""


def test_seconds_of_a_watched_process_count_from_then_on_and_stay_when_it_ends() -> None:
    child, clocks = Child(_BUSY), Clocks()
    try:
        child.socket.sendall(b"0.05")
        child.socket.recv(4)
        clocks.watch(child.pid)
        assert clocks.seconds() < 0.05
        child.socket.sendall(b"0.1")
        child.socket.recv(4)
        assert 0.1 <= clocks.seconds() <= clock(child.pid) - 0.05
        clocks.add(1.0)
        clocks.unwatch(child.pid)
        before = clocks.seconds()
        assert before >= 1.1
    finally:
        child.close()
    assert clocks.seconds() == before


def test_other_seconds_count_in_times_of_one_thread_only() -> None:
    passed = {"seconds": 0.0}

    def run() -> int:
        passed["seconds"] += 5.0
        return 1

    def prepare(quick: bool) -> Contest:
        competitors = [Competitor("ours", "prismem-core", lambda: run)]
        return Contest("", {}, competitors, lambda c, r: Finding(), Work(), other_seconds=lambda: passed["seconds"])

    for threads, least, most in ((1, 5.0, 6.0), (2, 0.0, 1.0)):
        (record,) = measured(
            [Job("invented/job", "", prepare, threads=threads)], Settings(rounds=3, quick=True), lambda _: None
        )
        (result,) = record["results"]
        assert least <= result["seconds"]["median"] < most
        assert result["seconds"]["wall"] < 1.0


def test_a_worker_counts_from_birth_to_its_end_and_leaves_nothing() -> None:
    sandbox = ClockedSandbox()
    try:
        sandbox.started()
        before = sandbox.clocks.seconds()
        with sandbox.worker(ECHO, Vectors(8), LIMITS) as worker:
            pid = worker.pid
            worker.index([{"memory_text": "a"}], "")
            assert sandbox.clocks.seconds() - before >= clock(pid)
            alive = clock(pid)
        assert sandbox.clocks.seconds() - before > alive
        with pytest.raises(OSError):
            clock(pid)
    finally:
        sandbox.close()


def test_vectors_are_the_same_for_a_text_and_tell_their_own_time() -> None:
    vectors = Vectors(4096)
    started = time.process_time()
    first, second = vectors.embed(["a", "b"]), vectors.embed(["b"])
    assert 0 < vectors.seconds <= time.process_time() - started
    np.testing.assert_array_equal(first[1], second[0])
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, rtol=1e-6)
