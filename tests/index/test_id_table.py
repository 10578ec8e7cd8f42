"""IdTable: what a dict would hold, through any order of changes."""

from __future__ import annotations

import numpy as np
import pytest

from prismem_core.index.id_table import IdTable

EDGES = np.array([0, -1, 1, 2**63 - 1, -(2**63), 2**32, -(2**32)], np.int64)


def test_it_holds_what_a_dict_holds() -> None:
    rng = np.random.default_rng(0)
    table, model = IdTable(), dict[int, int]()
    ids = np.empty(0, np.int64)
    for _ in range(200):
        fresh = np.unique(rng.integers(-500, 500, rng.integers(0, 60)))
        fresh = rng.permutation(np.array([id for id in fresh.tolist() if id not in model], np.int64))
        positions = np.arange(ids.size, ids.size + fresh.size)
        ids = np.concatenate([ids, fresh])
        table.insert(positions, ids)
        model.update(zip(fresh.tolist(), positions.tolist(), strict=True))
        gone = rng.permutation(np.array(list(model), np.int64))[: rng.integers(0, 60)]
        table.erase(gone, ids)
        for id in gone.tolist():
            del model[id]
        wanted = rng.integers(-600, 600, 300)
        assert table.find(wanted, ids).tolist() == [model.get(id, -1) for id in wanted.tolist()]


@pytest.mark.parametrize(
    "ids",
    [
        EDGES,
        np.arange(20_000),
        np.arange(20_000) << 40,  # the same low halves
        np.arange(20_000) * 2**16 + 5,
        -np.arange(1, 20_000),
        np.random.default_rng(1).permutation(np.arange(10**17, 10**17 + 20_000)),
    ],
    ids=["edges", "in order", "high bits", "strided", "negative", "shuffled"],
)
def test_ids_of_every_pattern(ids: np.ndarray) -> None:
    table = IdTable()
    table.insert(np.arange(ids.size), ids)
    assert table.find(ids[::-1], ids).tolist() == list(range(ids.size))[::-1]
    assert (table.find(np.setdiff1d(ids + 1, ids), ids) == -1).all()
    table.erase(ids[::2], ids)
    assert table.find(ids, ids).tolist() == [-1 if place % 2 == 0 else place for place in range(ids.size)]
    table.rebuild(ids.size, ids)
    assert table.find(ids, ids).tolist() == list(range(ids.size))


def test_a_table_of_erased_cells_ends_every_search() -> None:
    """Ids that come and go leave marks behind; they are cleared before none of the cells is empty."""
    table, ids = IdTable(), np.arange(10_000)
    for position in range(10_000):
        table.insert(np.array([position]), ids)
        table.erase(ids[position : position + 1], ids)
        assert table.find(ids[:3], ids).tolist() == [-1] * 3
    assert table.bytes < 1000
