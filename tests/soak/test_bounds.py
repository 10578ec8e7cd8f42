"""A long evolution in small: disk and memory stay within their bounds, and what goes is what is worth least."""

from __future__ import annotations

import contextlib
import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from prismem_core.cache import ExecutionCache

STAGES = ("extract", "index", "answer")


@dataclass
class Known:
    """What the test knows of an entry: its value, the cost a byte, and the iteration of its last use."""

    value: bytes
    cost: float
    used: int

    @property
    def worth(self) -> float:
        return self.cost / len(self.value)


class Evolution:
    """Each iteration asks for entries of those before it, the newer the more often, and makes new ones."""

    def __init__(self, cache: ExecutionCache) -> None:
        self.cache = cache
        self.random = random.Random(5)
        self.known: dict[str, Known] = {}
        self.order: list[str] = []
        self.computed = self.kept = 0

    def iteration(self, number: int) -> None:
        for _ in range(60):
            if self.order and self.random.random() < 0.6:
                # Zipf by recency: the entry made last is asked for most.
                back = min(int(self.random.paretovariate(0.6)), len(self.order))
                self.want(self.order[-back], number)
            else:
                self.make(number)

    def make(self, number: int) -> None:
        name = hashlib.sha256(f"{number} {len(self.order)}".encode()).hexdigest()
        size = int(self.random.paretovariate(0.7) * 400) % 60_000 + 50
        seconds = self.random.choice((0.01, 0.1, 1.0, 10.0)) * self.random.uniform(0.5, 2.0)
        self.known[name] = Known(self.random.randbytes(size), seconds, number)
        self.order.append(name)
        self.want(name, number)

    def want(self, name: str, number: int) -> None:
        entry = self.known[name]
        before = self.computed

        def compute() -> bytes:
            self.computed += 1
            return entry.value

        assert self.cache.get_or_compute(self.stage(name), name, compute, cost=entry.cost) == entry.value
        self.kept += self.computed == before
        entry.used = number

    def stage(self, name: str) -> str:
        return STAGES[int(name[0], 16) % 3]

    def present(self) -> dict[str, bool]:
        return present_in(self.cache, self)


def present_in(cache: ExecutionCache, evolution: Evolution) -> dict[str, bool]:
    """Whether each entry ever made is there now."""
    found = {}
    for stage in STAGES:
        names = [name for name in evolution.order if evolution.stage(name) == stage]
        found.update(zip(names, cache.contains(stage, names).tolist(), strict=True))
    return found


def disk_bytes(directory: Path) -> int:
    """What the files of a directory take on the disk; one that is cleaned away meanwhile takes nothing."""
    taken = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            taken += path.stat().st_blocks * 512 if path.is_file() else 0
    return taken


def resident_bytes() -> int:
    status = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(status[1]) * 4096


def inversions(evolution: Evolution, present: dict[str, bool], apart: int) -> tuple[int, int]:
    """Pairs in the wrong order, and pairs that have an order.

    Of two entries the one that is worth more a byte and was used no earlier must not go before the other. To be apart,
    they differ by a factor of two in worth and by so many iterations in use: at one moment, not at one instant, is when
    a store makes room.
    """
    there = np.array([present[name] for name in evolution.order])
    worth = np.array([evolution.known[name].worth for name in evolution.order])
    used = np.array([evolution.known[name].used for name in evolution.order])
    ordered = wrong = 0
    for own_worth, own_use in zip(worth[~there], used[~there], strict=True):
        wrong += np.count_nonzero((own_worth >= 2 * worth[there]) & (own_use >= used[there] + apart))
        ordered += np.count_nonzero((worth[there] >= 2 * own_worth) & (used[there] >= own_use + apart))
    return wrong, ordered


@pytest.mark.parametrize("iterations", [200, pytest.param(5000, marks=pytest.mark.soak)])
def test_an_evolution_stays_within_the_bounds_of_its_disk(tmp_path: Path, iterations: int) -> None:
    bound, segment = 6 << 20, 512 << 10
    before = resident_bytes()
    directory = tmp_path / "cache"
    with ExecutionCache(directory, disk_bytes=bound, memory_bytes=1 << 20, segment_bytes=segment) as cache:
        evolution = Evolution(cache)
        for number in range(iterations):
            evolution.iteration(number)
            assert disk_bytes(directory) <= bound, number
            own = sum(len(known.value) + 500 for known in evolution.known.values())
            assert resident_bytes() - before <= own + bound + (24 << 20), number
        put = sum(len(known.value) for known in evolution.known.values())
        assert put > 2 * bound, "the load is larger than the disk"
        # The cleaning in the background may still be at work; after this one nothing leaves any more.
        cache.compact()
        present = evolution.present()
        kept = sum(len(evolution.known[name].value) for name, there in present.items() if there)
        # Room is used, not only bounded.
        assert kept > bound * 2 // 5
        wrong, ordered = inversions(evolution, present, apart=3)
        assert ordered > 1000
        assert wrong <= ordered // 10_000
        evictions = sum(counted.evictions for counted in cache.counters().values())
        assert evictions >= sum(not there for there in present.values())
        for name, there in present.items():
            if there:
                assert cache.get(evolution.stage(name), name) == evolution.known[name].value
        assert cache.verify().clean
        assert evolution.kept > evolution.computed // 2
    with ExecutionCache(directory, disk_bytes=bound, segment_bytes=segment) as cache:
        assert disk_bytes(directory) <= bound
        again = present_in(cache, evolution)
        assert sum(again.values()) >= 0.9 * sum(present.values())
        assert not any(again[name] and not present[name] for name in again)


@pytest.mark.parametrize("iterations", [200, pytest.param(5000, marks=pytest.mark.soak)])
def test_an_evolution_stays_within_the_bounds_of_memory(iterations: int) -> None:
    bound = 3 << 20
    cache = ExecutionCache(memory_bytes=bound)
    evolution = Evolution(cache)
    for number in range(iterations):
        evolution.iteration(number)
        assert cache.stats().memory_bytes <= bound
    present = evolution.present()
    assert cache.stats().memory_bytes > bound // 2
    wrong, ordered = inversions(evolution, present, apart=3)
    assert ordered > 1000
    assert wrong <= ordered // 10_000
    assert any(present.values()) and not all(present.values())
