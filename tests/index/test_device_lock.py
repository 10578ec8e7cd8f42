"""SharedLock: many readers or one writer, nobody starves, no use in a forked child."""

from __future__ import annotations

import os
import threading
import time

import pytest

from prismem_core.errors import VectorIndexError
from prismem_core.index.device_lock import SharedLock


def test_readers_are_together_and_writers_alone() -> None:
    lock, inside = SharedLock(), {"readers": 0, "writers": 0}
    counting, seen, failures = threading.Lock(), set(), []

    def work(writes: bool) -> None:
        kind = "writers" if writes else "readers"
        for _ in range(200):
            with lock.writing() if writes else lock.reading():
                with counting:
                    inside[kind] += 1
                    seen.add((inside["readers"], inside["writers"]))
                time.sleep(0)
                with counting:
                    inside[kind] -= 1

    def guarded(writes: bool) -> None:
        try:
            work(writes)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number % 3 == 0,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    assert all(writers == 0 or (readers, writers) == (0, 1) for readers, writers in seen)
    assert (0, 1) in seen


def test_who_waits_to_write_keeps_later_readers_behind() -> None:
    lock, order = SharedLock(), []
    reading, wrote = threading.Event(), threading.Event()

    def read_first() -> None:
        with lock.reading():
            reading.set()
            wrote.wait(0.2)  # the writer cannot come in; it waits at the gate by now
            order.append("first reader")

    def write() -> None:
        reading.wait(10)
        with lock.writing():
            order.append("writer")
        wrote.set()

    def read_late() -> None:
        reading.wait(10)
        time.sleep(0.1)
        with lock.reading():
            order.append("late reader")

    threads = [threading.Thread(target=target) for target in (read_first, write, read_late)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert order == ["first reader", "writer", "late reader"]


def test_a_failed_change_lets_the_next_one_in() -> None:
    lock = SharedLock()
    with pytest.raises(ValueError), lock.writing():
        raise ValueError
    with pytest.raises(ValueError), lock.reading():
        raise ValueError
    with lock.writing():
        pass


def test_a_forked_child_is_told() -> None:
    lock = SharedLock()
    child = os.fork()
    if child == 0:
        for entering in (lock.reading, lock.writing):
            try:
                with entering():
                    os._exit(1)
            except VectorIndexError as error:
                if "a forked child cannot use" not in str(error):
                    os._exit(2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
