"""An index on a device and one of the C++ core through the same changes and searches: identical, errors too.

Products and sums of these rows are exact in float32, so that no order of additions can tell one from the other.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from prismem_core import VectorIndex
from prismem_core.errors import PrismemError
from prismem_core.index.device_store import DeviceStore
from tests.kernels.index.stand_ins import TINY, index_on_device, launchers_with_codes

SEEDS = st.integers(0, 2**32 - 1)


class PairMachine(RuleBasedStateMachine):
    """The same calls to both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="prismem-device-model-"))

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        dim=st.integers(4, 20),
        dtype=st.sampled_from(("float32", "float16", "bfloat16")),
        metric=st.sampled_from(("inner_product", "cosine")),
        memory_bytes=st.sampled_from((None, 0, 1000, 4000)),
        codes=st.sampled_from(("never", "int8")),
    )
    def begin(self, dim: int, dtype: str, metric: str, memory_bytes: int | None, codes: str) -> None:
        self.dim, self.dtype, self.metric, self.memory_bytes = dim, dtype, metric, memory_bytes
        self.options: dict[str, Any] = {"sizes": TINY, "launchers": launchers_with_codes(), "codes": codes}
        self.native = VectorIndex(dim, dtype=dtype, metric=metric, codes="never")
        self.device = index_on_device(dim, dtype=dtype, metric=metric, memory_bytes=memory_bytes, **self.options)
        self.ids: list[int] = []

    def values(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Small whole numbers, among which ties are common; under cosine rows whose lengths are powers of two."""
        if self.metric == "inner_product":
            return rng.integers(-2, 3, (count, self.dim)).astype(np.float32)
        rows = np.zeros((count, self.dim), np.float32)
        for row in rows:
            if rng.random() < 0.9:
                row[rng.permutation(self.dim)[:4]] = rng.choice([-1.0, 1.0], 4) * 2.0 ** rng.integers(-3, 4)
        return rows

    def both(self, call: Callable[[VectorIndex], Any]) -> Any:
        """The same outcome, which is returned: a value or an error with its text."""
        outcomes = []
        for index in (self.native, self.device):
            try:
                outcomes.append(call(index))
            except PrismemError as error:
                outcomes.append((type(error), str(error)))
        native, device = outcomes
        if isinstance(native, tuple) and len(native) == 3:
            assert len(device) == 3, device
            for one, other in zip(native, device, strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
        elif isinstance(native, np.ndarray):
            np.testing.assert_array_equal(native, device)
        else:
            assert native == device
        return native

    @rule(seed=SEEDS, count=st.sampled_from([0, 1, 3, 17, 300]), automatic=st.booleans())
    def add(self, seed: int, count: int, automatic: bool) -> None:
        rng = np.random.default_rng(seed)
        ids = None
        if not automatic:
            fresh = dict.fromkeys(rng.integers(-2000, 2000, count).tolist())
            ids = [id for id in fresh if id not in set(self.ids)]
            count = len(ids)
        rows = self.values(rng, count)
        self.ids += self.both(lambda index: index.add(rows, ids)).tolist()

    @precondition(lambda self: self.ids)
    @rule(seed=SEEDS, share=st.sampled_from([0.0, 0.01, 0.3, 0.7, 1.0]))
    def remove(self, seed: int, share: float) -> None:
        rng = np.random.default_rng(seed)
        gone = rng.permutation(self.ids)[: int(np.ceil(share * len(self.ids)))]
        self.both(lambda index: index.remove(gone))
        left = set(gone.tolist())
        self.ids = [id for id in self.ids if id not in left]

    @precondition(lambda self: self.ids)
    @rule(seed=SEEDS, count=st.integers(1, 20))
    def update(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(self.ids)[:count]
        rows = self.values(rng, len(chosen))
        self.both(lambda index: index.update(chosen, rows))

    @precondition(lambda self: self.ids)
    @rule(seed=SEEDS)
    def refuse(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        held, free = int(rng.choice(self.ids)), 10**6
        rows = self.values(rng, 3)
        broken = np.where(np.arange(3)[:, None] == 1, np.float32(np.inf), rows)
        large = np.where(np.arange(3)[:, None] == 2, np.float32(3.4e38), rows)
        for change in (
            lambda index: index.add(rows, [free, held, 8]),
            lambda index: index.add(rows, [free, free + 1, free]),
            lambda index: index.add(rows, [free, free + 1]),
            lambda index: index.update([held, free, 5], rows),
            lambda index: index.update([held, held, held], rows),
            lambda index: index.remove([held, free]),
            lambda index: index.remove([held, held]),
            lambda index: index.get([held, free]),
            lambda index: index.add(broken),
            lambda index: index.update([held], broken[1:2]),
            lambda index: index.add(rows[:, :-1]),
            lambda index: index.add(rows.astype(np.float64)),
            lambda index: index.search(broken, 2),
            lambda index: index.search(rows, 2, filter=np.zeros(len(self.ids) + 1, np.bool_)),
            lambda index: index.search(rows, 2, filter=np.zeros((2, len(self.ids)), np.bool_)),
            lambda index: index.search(rows[:, :-1], 2),
        ):
            kind, _ = self.both(change)
            assert issubclass(kind, PrismemError)
        if self.dtype == "float16":
            kind, text = self.both(lambda index: index.add(large))
            assert "too large for float16" in text

    @rule(
        seed=SEEDS,
        k=st.sampled_from([0, 1, 5, 50, 10**6]),
        kind=st.integers(0, 6),
        prepared=st.booleans(),
        queries=st.sampled_from([0, 1, 4]),
    )
    def search(self, seed: int, k: int, kind: int, prepared: bool, queries: int) -> None:
        rng = np.random.default_rng(seed)
        rows, n = self.values(rng, queries), len(self.ids)
        min_score = float(rng.choice([-1.0, 0.0, 1.0])) if kind % 2 else None
        filter: Any = None
        if kind >= 3:
            share = float(rng.choice([0.0, 0.02, 0.5]))
            filter = rng.random((queries, n) if kind == 6 and queries else n) < share
        if kind in (4, 5):
            filter = [*rng.permutation(np.array(self.ids, np.int64)[filter]).tolist(), 10**6]

        def found(index: VectorIndex) -> Any:
            allowed = index.prepare(filter) if filter is not None and prepared else filter
            result = index.search(rows, k, filter=allowed, min_score=min_score)
            # How many columns no query has depends on gaps that have not been closed.
            return tuple(result) if queries else result.counts

        self.both(found)

    @rule(seed=SEEDS, k=st.sampled_from([1, 4]), weight=st.sampled_from([0.0, 0.5, 1.0]), pool=st.sampled_from([4, 64]))
    def mmr(self, seed: int, k: int, weight: float, pool: int) -> None:
        rng = np.random.default_rng(seed)
        rows, mask = self.values(rng, 2), rng.random(len(self.ids)) < 0.3
        self.both(
            lambda index: tuple(index.mmr(rows, k, relevance_weight=weight, pool=pool, filter=mask, min_relevance=-1.0))
        )

    @rule(way=st.sampled_from(["device to core", "core to device", "opened"]))
    def save(self, way: str) -> None:
        paths = [self.folder / "core", self.folder / "device"]
        self.native.save(paths[0])
        self.device.save(paths[1])
        assert paths[0].read_bytes() == paths[1].read_bytes()
        if way == "device to core":
            self.native = VectorIndex.load(paths[1], codes="never")
        elif way == "core to device":
            store = DeviceStore.read(paths[0], "cpu", self.memory_bytes, verify=True, fixed=False, **self.options)
            self.device = VectorIndex._around(store)
        else:
            store = DeviceStore.read(paths[0], "cpu", self.memory_bytes, verify=False, fixed=True, **self.options)
            opened = VectorIndex._around(store)
            assert opened.read_only
            assert opened.ids.tolist() == self.ids
            np.testing.assert_array_equal(opened.get(self.ids), self.native.get(self.ids))

    @invariant()
    def they_hold_the_same(self) -> None:
        assert len(self.native) == len(self.device) == len(self.ids)
        assert self.native.ids.tolist() == self.device.ids.tolist() == self.ids
        np.testing.assert_array_equal(self.native.get(self.ids), self.device.get(self.ids))
        for id in (*self.ids[:1], 10**6):
            assert (id in self.native) == (id in self.device)
        one, other = self.native.stats(), self.device.stats()
        assert one.count == other.count
        assert other.removed <= max(256, (other.count + other.removed) // 4)
        if self.memory_bytes is not None:
            assert other.row_bytes - other.streamed_bytes + other.code_bytes <= self.memory_bytes


PairMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestPair = PairMachine.TestCase
