"""Any sequence of verbs on two caches of one directory leaves what a dict would hold."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prismem_core.cache import ExecutionCache, encode_array

from .conftest import key

NAMES = st.tuples(st.sampled_from(["s", "t", "stage with a longer name"]), st.integers(0, 25).map(key))
VALUES = st.one_of(st.binary(max_size=40), st.integers(0, 3000).map(lambda size: b"%d." % size * (size // 5)))
WHICH = st.integers(0, 1)


class TwoCaches(RuleBasedStateMachine):
    """Two open caches take turns; each is closed and opened anew now and then, and the index is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="prismem-cache-test-"))
        self.path = self.root / "cache"
        self.caches = [self.opened(), self.opened()]
        self.held: dict[tuple[str, str], bytes] = {}
        self.exports = 0

    def opened(self) -> ExecutionCache:
        return ExecutionCache(self.path, segment_bytes=4096)

    @rule(which=WHICH, name=NAMES, value=VALUES, cost=st.floats(0, 1e6))
    def put(self, which: int, name: tuple[str, str], value: bytes, cost: float) -> None:
        self.caches[which].put(*name, value, cost=cost)
        self.held[name] = value

    @rule(which=WHICH, names=st.lists(NAMES, max_size=12), value=VALUES)
    def put_many(self, which: int, names: list[tuple[str, str]], value: bytes) -> None:
        for stage in {stage for stage, _ in names}:
            keys = [own for other, own in names if other == stage]
            values = [value + b"%d" % i for i in range(len(keys))]
            self.caches[which].put_many(stage, keys, values, cost=1)
            self.held.update(zip([(stage, own) for own in keys], values, strict=True))

    @rule(which=WHICH, numbers=st.lists(st.integers(0, 25), max_size=8), dimension=st.integers(1, 70))
    def put_rows(self, which: int, numbers: list[int], dimension: int) -> None:
        rows = np.arange(len(numbers) * dimension, dtype=np.float32).reshape(len(numbers), dimension)
        self.caches[which].put_rows("rows", [key(n) for n in numbers], rows)
        self.held.update((("rows", key(n)), encode_array(row)) for n, row in zip(numbers, rows, strict=True))

    @rule(which=WHICH, names=st.lists(NAMES, max_size=6, unique=True))
    def remove(self, which: int, names: list[tuple[str, str]]) -> None:
        for stage, own in names:
            assert self.caches[which].remove(stage, [own]) == (self.held.pop((stage, own), None) is not None)

    @rule(which=WHICH, name=NAMES, value=VALUES)
    def compute(self, which: int, name: tuple[str, str], value: bytes) -> None:
        assert self.caches[which].get_or_compute(*name, lambda: value) == self.held.setdefault(name, value)

    @rule(which=WHICH, names=st.lists(NAMES, max_size=6))
    def look(self, which: int, names: list[tuple[str, str]]) -> None:
        for stage in {stage for stage, _ in names}:
            keys = [own for other, own in names if other == stage]
            expected = [self.held.get((stage, own)) for own in keys]
            assert self.caches[which].get_many(stage, keys) == expected
            assert self.caches[which].contains(stage, keys).tolist() == [value is not None for value in expected]

    @rule(which=WHICH)
    def reopen(self, which: int) -> None:
        self.caches[which].close()
        self.caches[which] = self.opened()

    @rule()
    def lose_the_index(self) -> None:
        for cache in self.caches:
            cache.close()
        (self.path / "index").unlink()
        self.caches = [self.opened(), self.opened()]

    @rule(which=WHICH)
    def compact(self, which: int) -> None:
        self.caches[which].compact()
        stats = self.caches[which].stats()
        # Every segment may end with room for less than a record, and has a header.
        assert stats.disk_bytes <= stats.live_bytes + 64 * stats.segments

    @rule(which=WHICH)
    def clear(self, which: int) -> None:
        self.caches[which].clear()
        self.held.clear()

    @precondition(lambda self: self.exports < 3)
    @rule(which=WHICH)
    def export(self, which: int) -> None:
        self.exports += 1
        assert self.caches[which].export(self.root / f"export{self.exports}") == len(self.held)
        with ExecutionCache(self.root / f"export{self.exports}", read_only=True) as other:
            assert {(e.stage, e.key): other.get(e.stage, e.key) for e in other.entries()} == self.held

    @invariant()
    def both_hold_the_same(self) -> None:
        for cache in self.caches:
            assert {(e.stage, e.key): cache.get(e.stage, e.key) for e in cache.entries()} == self.held
            assert cache.stats().entries == len(self.held)
            assert cache.damaged == 0

    def teardown(self) -> None:
        report = self.caches[0].verify()
        assert (report.entries, report.clean) == (len(self.held), True)
        for cache in self.caches:
            cache.close()
        shutil.rmtree(self.root)


TestTwoCaches = TwoCaches.TestCase
TestTwoCaches.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
