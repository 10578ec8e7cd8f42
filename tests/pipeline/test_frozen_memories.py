"""Memories that outlive their use: who gets them, which are stopped, and which are dropped."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

from prismem_core.errors import CandidateError
from prismem_core.pipeline.frozen_memories import FrozenMemories, Lease, Making, default_budget
from prismem_core.program.grafting import Graft

from .test_reuse import DENSE, edited

MIB = 1 << 20
SOURCES = [edited("TOP = 3", f"TOP = {top}") for top in (3, 4, 5, 6)]
OTHER = edited('" ".join(text.split())', "text.strip().lower()")


class FakeWorker:
    """What a pool sees of a worker: whether it is stopped, ended, and how much memory it has."""

    copies = True

    def __init__(self, megabytes: int = 1) -> None:
        self.size = megabytes * MIB
        self.frozen = False
        self.ended = False
        self.attached: list[FakeWorker] = []
        self.refuses = False

    def private_bytes(self) -> int:
        return 0 if self.ended else self.size

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False

    def close(self) -> None:
        self.ended = True

    def attach(self, graft: Graft) -> FakeWorker:
        assert not self.frozen
        assert not self.ended
        if self.refuses:
            raise CandidateError("error", "NameError")
        self.attached.append(FakeWorker())
        return self.attached[-1]


def add(pool: FrozenMemories, key: str, source: str = DENSE, megabytes: int = 1) -> tuple[Lease, FakeWorker]:
    worker = FakeWorker(megabytes)
    return pool.add(key, source, worker, None, Making({}, 1.0)), worker  # type: ignore[arg-type]


def taken(pool: FrozenMemories, key: str, source: str = DENSE) -> bool:
    lease = pool.take(key, source)
    if lease is not None:
        lease.release()
    return lease is not None


def test_a_memory_waits_frozen_and_works_thawed() -> None:
    pool = FrozenMemories(10 * MIB)
    lease, worker = add(pool, "a")
    assert not worker.frozen
    lease.release()
    assert worker.frozen
    again = pool.take("a", DENSE)
    assert again is not None
    assert again.worker is worker
    assert (again.reused, again.attached) == (True, False)
    assert not worker.frozen
    assert pool.take("b", DENSE) is None


def test_two_users_share_it_and_it_is_stopped_after_the_last() -> None:
    pool = FrozenMemories(10 * MIB)
    first, worker = add(pool, "a")
    second = pool.take("a", DENSE)
    assert second is not None
    first.release()
    assert not worker.frozen
    second.release()
    assert worker.frozen


def test_another_source_with_the_same_key_is_attached_to_a_copy() -> None:
    pool = FrozenMemories(10 * MIB)
    lease, root = add(pool, "a", SOURCES[0])
    lease.release()
    other = pool.take("a", SOURCES[1])
    assert other is not None
    assert (other.reused, other.attached) == (True, True)
    assert root.attached == [other.worker]
    assert root.frozen
    other.release()
    same = pool.take("a", SOURCES[1])
    assert same is not None
    assert same.worker is other.worker
    assert same.attached


def test_what_cannot_be_grafted_or_fails_to_be_is_to_be_built() -> None:
    pool = FrozenMemories(10 * MIB)
    lease, root = add(pool, "a", SOURCES[0])
    lease.release()
    assert pool.take("a", OTHER) is None
    root.refuses = True
    assert pool.take("a", SOURCES[1]) is None
    assert root.frozen
    assert taken(pool, "a", SOURCES[0])


def test_the_longest_unused_go_first_and_none_in_use() -> None:
    pool = FrozenMemories(3 * MIB)
    workers = {}
    leases = {}
    for key in "abcd":
        leases[key], workers[key] = add(pool, key)
    for key in "bacd":
        leases[key].release()
    assert workers["b"].ended
    assert taken(pool, "a")
    lease, _ = add(pool, "e")
    kept = pool.take("c", DENSE)
    assert kept is not None
    lease.release()
    assert workers["d"].ended
    assert not workers["c"].ended
    assert not workers["a"].ended


def test_one_that_is_larger_than_the_budget_is_not_kept() -> None:
    pool = FrozenMemories(3 * MIB)
    lease, worker = add(pool, "a", megabytes=4)
    assert not worker.ended
    lease.release()
    assert worker.ended
    assert pool.take("a", DENSE) is None


def test_a_memory_lives_as_long_as_its_copies_are_used_and_takes_them_along() -> None:
    pool = FrozenMemories(3 * MIB)
    lease, root = add(pool, "a", SOURCES[0])
    lease.release()
    copy = pool.take("a", SOURCES[1])
    assert copy is not None
    large, _ = add(pool, "b", megabytes=3)
    large.release()
    assert not root.ended
    copy.release()
    wanted, other = add(pool, "c", megabytes=3)
    wanted.release()
    assert root.ended
    assert root.attached[0].ended
    assert not other.ended


def test_at_most_so_many_processes_are_kept() -> None:
    pool = FrozenMemories(100 * MIB, most_processes=3)
    workers = []
    for key in "abcde":
        lease, worker = add(pool, key)
        lease.release()
        workers.append(worker)
    assert [worker.ended for worker in workers] == [True, True, False, False, False]


def test_one_that_died_meanwhile_is_dropped_unnoticed() -> None:
    pool = FrozenMemories(10 * MIB)
    lease, worker = add(pool, "a")
    lease.release()
    worker.size = 0
    assert pool.take("a", DENSE) is None
    assert worker.ended
    lease, worker = add(pool, "b", SOURCES[0])
    lease.release()
    worker.size = 0
    worker.refuses = True
    assert pool.take("b", SOURCES[1]) is None
    assert worker.ended


def test_one_that_is_not_to_be_kept_is_not() -> None:
    pool = FrozenMemories(10 * MIB)
    lease, worker = add(pool, "a")
    lease.forsake()
    assert not worker.ended
    assert pool.take("a", DENSE) is None
    other, successor = add(pool, "a")
    other.release()
    lease.release()
    assert worker.ended
    assert not successor.ended
    assert taken(pool, "a")


def test_a_second_one_built_for_the_same_is_not_kept() -> None:
    pool = FrozenMemories(10 * MIB)
    first, one = add(pool, "a")
    second, other = add(pool, "a")
    first.release()
    second.release()
    assert (one.ended, other.ended) == (False, True)


def test_a_budget_of_nothing_keeps_nothing() -> None:
    pool = FrozenMemories(0)
    lease, worker = add(pool, "a")
    lease.release()
    assert worker.ended
    assert not worker.frozen


def test_closing_ends_all_but_what_is_in_use() -> None:
    pool = FrozenMemories(10 * MIB)
    idle, one = add(pool, "a")
    busy, other = add(pool, "b")
    idle.release()
    pool.close()
    assert (one.ended, other.ended) == (True, False)
    assert pool.take("a", DENSE) is None
    busy.release()
    assert other.ended


def test_many_threads_never_hold_what_is_stopped_or_ended() -> None:
    pool = FrozenMemories(6 * MIB, most_processes=9)
    broken: list[str] = []
    made: list[FakeWorker] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        held: list[Lease] = []
        for _ in range(300):
            for lease in held:
                worker: Any = lease.worker
                if worker.frozen or worker.ended:
                    broken.append(f"frozen {worker.frozen}, ended {worker.ended}")
            if held and rng.random() < 0.5:
                lease = held.pop(rng.randrange(len(held)))
                if rng.random() < 0.1:
                    lease.forsake()
                lease.release()
            key, source = rng.choice("abcd"), rng.choice(SOURCES)
            taken = pool.take(key, source)
            if taken is None:
                taken, worker = add(pool, key, source, rng.randrange(1, 4))
                made.append(worker)
            held.append(taken)
            while len(held) > 2:
                held.pop(0).release()
        for lease in held:
            lease.release()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not broken
    everyone = [*made, *(copy for worker in made for copy in worker.attached)]
    living = [worker for worker in everyone if not worker.ended]
    assert sum(worker.size for worker in living) <= 6 * MIB
    assert all(worker.frozen for worker in living)
    pool.close()
    assert all(worker.ended for worker in everyone)


def test_the_default_budget_leaves_the_machine_its_memory() -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < default_budget() <= min(1 << 30, machine // 4)
