"""VectorIndex against a plain list of rows: any order of changes, searches, saves; equal to the bit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from prismem_core import VectorIndex, ops
from prismem_core.errors import ArgumentError
from tests.index.conftest import DTYPES, METRICS, kept

SEEDS = st.integers(0, 2**32 - 1)


class IndexMachine(RuleBasedStateMachine):
    """The model: ids and rows in the order of adding."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="prismem-index-model-"))

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        dim=st.integers(1, 20),
        dtype=st.sampled_from(DTYPES),
        metric=st.sampled_from(METRICS),
        whole=st.booleans(),
        coded=st.booleans(),
    )
    def begin(self, dim: int, dtype: str, metric: str, whole: bool, coded: bool) -> None:
        self.dim, self.dtype, self.metric, self.whole = dim, dtype, metric, whole
        self.codes = "always" if coded else "never"
        self.index = VectorIndex(dim, dtype=dtype, metric=metric, codes=self.codes)
        self.ids: list[int] = []
        self.rows = np.zeros((0, dim), np.float32)
        self.next_id = 0

    def values(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Small whole numbers, among which ties are common, or any."""
        if self.whole:
            return rng.integers(-2, 3, (count, self.dim)).astype(np.float32)
        return rng.standard_normal((count, self.dim)).astype(np.float32)

    @rule(seed=SEEDS, count=st.sampled_from([0, 1, 3, 17, 1300]), automatic=st.booleans())
    def add(self, seed: int, count: int, automatic: bool) -> None:
        rng = np.random.default_rng(seed)
        rows = self.values(rng, count)
        if automatic:
            expected = list(range(self.next_id, self.next_id + count))
            assert self.index.add(rows).tolist() == expected
        else:
            fresh = dict.fromkeys(rng.integers(-2000, 2000, count).tolist())
            expected = [id for id in fresh if id not in self.ids]
            rows = rows[: len(expected)]
            assert self.index.add(rows, expected).tolist() == expected
        self.ids += expected
        self.rows = np.concatenate([self.rows, rows])
        self.next_id = max([self.next_id, *(id + 1 for id in expected)])

    @precondition(lambda self: self.ids)
    @rule(seed=SEEDS, share=st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    def remove(self, seed: int, share: float) -> None:
        rng = np.random.default_rng(seed)
        gone = rng.permutation(len(self.ids))[: int(np.ceil(share * len(self.ids)))]
        self.index.remove([self.ids[place] for place in gone])
        left = np.setdiff1d(np.arange(len(self.ids)), gone)
        self.ids, self.rows = [self.ids[place] for place in left], self.rows[left]

    @precondition(lambda self: self.ids)
    @rule(seed=SEEDS, count=st.integers(1, 20))
    def update(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        places = rng.permutation(len(self.ids))[:count]
        rows = self.values(rng, len(places))
        self.index.update([self.ids[place] for place in places], rows)
        self.rows[places] = rows

    @precondition(lambda self: self.ids)
    @rule(seed=SEEDS)
    def refuse(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        held, free = int(rng.choice(self.ids)), 10**6
        rows = self.values(rng, 2)
        for change in (
            lambda: self.index.add(rows, [free, held]),
            lambda: self.index.update([held, free], rows),
            lambda: self.index.remove([held, free]),
            lambda: self.index.get([held, free]),
            lambda: self.index.add(np.where(np.arange(2)[:, None] == 1, np.nan, rows)),
        ):
            try:
                change()
            except ArgumentError:
                continue
            raise AssertionError("it was not refused")

    @rule(seed=SEEDS, k=st.sampled_from([0, 1, 5, 50, 10**6]), kind=st.integers(0, 6), prepared=st.booleans())
    def search(self, seed: int, k: int, kind: int, prepared: bool) -> None:
        rng = np.random.default_rng(seed)
        queries, n = self.values(rng, 3), len(self.ids)
        min_score = float(rng.choice([-1.0, 0.0, 1.0])) if kind % 2 else None
        mask: Any = None
        if kind >= 3:
            share = float(rng.choice([0.0, 0.02, 0.5]))
            mask = rng.random((3, n) if kind == 6 else n) < share
        filter = mask
        if kind in (4, 5):
            filter = [self.ids[place] for place in rng.permutation(np.flatnonzero(mask))] + [10**6]
        if filter is not None and prepared:
            filter = self.index.prepare(filter)
        found = self.index.search(queries, k, filter=filter, min_score=min_score)
        keys = kept(self.rows, self.dtype)
        bits = {"dtype": "bfloat16"} if self.dtype == "bfloat16" else {}
        expected = ops.top_k(
            queries, keys, k, normalize=self.metric == "cosine", mask=mask, min_score=min_score, **bits
        )
        ids = np.array([*self.ids, -1])
        np.testing.assert_array_equal(found.ids, ids[expected.indices])
        np.testing.assert_array_equal(found.scores.view(np.uint32), expected.scores.view(np.uint32))
        np.testing.assert_array_equal(found.counts, expected.counts)

    @rule(seed=SEEDS, k=st.sampled_from([1, 4]), weight=st.sampled_from([0.0, 0.5, 1.0]))
    def mmr(self, seed: int, k: int, weight: float) -> None:
        rng = np.random.default_rng(seed)
        queries = self.values(rng, 2)
        mask = rng.random(len(self.ids)) < 0.3
        found = self.index.mmr(queries, k, relevance_weight=weight, pool=10**9, filter=mask, min_relevance=-1.0)
        bits = {"dtype": "bfloat16"} if self.dtype == "bfloat16" else {}
        expected = ops.mmr_select(
            queries,
            kept(self.rows, self.dtype),
            k,
            relevance_weight=weight,
            mask=mask,
            min_relevance=-1.0,
            normalize=self.metric == "cosine",
            **bits,
        )
        np.testing.assert_array_equal(found.ids, np.array([*self.ids, -1])[expected.indices])
        np.testing.assert_array_equal(found.scores, expected.scores)

    @rule(mapped=st.booleans())
    def save(self, mapped: bool) -> None:
        path = self.folder / "index"
        self.index.save(path)
        if mapped:
            opened = VectorIndex.open(path, verify=True)
            assert opened.ids.tolist() == self.ids
            opened.save(path)
        self.index = VectorIndex.load(path, codes=self.codes)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert len(self.index) == len(self.ids)
        assert self.index.ids.tolist() == self.ids


IndexMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestIndex = IndexMachine.TestCase
