"""The table of configurations, the measured one that wins over it, and how work is cut into programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from prismem_core.errors import SettingsError
from prismem_core.kernels.triton import table, work
from prismem_core.kernels.triton.launch import Config


@pytest.mark.parametrize("sm", [0, 75, 80, 86, 90, 100])
@pytest.mark.parametrize(
    "op",
    [
        "top_k",
        "top_k masked",
        "top_k unaligned",
        "top_k long",
        "top_k longest",
        "top_k sorted",
        "top_k one",
        "similarity",
    ],
)
def test_there_is_a_configuration_for_everything(sm: int, op: str) -> None:
    for kind in ("float32", "float16", "bfloat16"):
        for dim in (1, 128, 129, 5000):
            for queries in (1, 2, 64, 65, 10**6):
                found = table.config_of(sm, op, kind, dim, queries)
                assert found.loads == "pointer"
                if op != "top_k one":
                    assert found.block_queries >= 16 and found.block_keys >= 16 and found.block_dim >= 16


def test_descriptors_are_for_rows_that_can_have_them() -> None:
    assert table.config_of(90, "top_k", "float16", 1024, 64, described=True).loads == "descriptor"
    assert table.config_of(90, "top_k", "float16", 1024, 64) == table.config_of(80, "top_k", "float16", 1024, 64)


def test_a_measured_table_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    better = Config(128, 64, 64, 8, 2)
    path = tmp_path / "measured.json"
    path.write_text(table.written({(80, "top_k", "float16", 2048, 64): better}))
    monkeypatch.setenv("PRISMEM_KERNEL_TABLE", str(path))
    assert table.config_of(80, "top_k", "float16", 1024, 33) == better
    assert table.config_of(80, "top_k", "float16", 1024, 65) != better
    assert table.config_of(80, "top_k", "bfloat16", 1024, 33) != better
    assert table.config_of(90, "top_k", "float16", 1024, 33) != better


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 1000},
        {"queries": 3},
        {"config": {"block_queries": 48, "block_keys": 64, "block_dim": 64}},
        {"config": {"block_queries": 64, "block_keys": 64, "block_dim": 64, "loads": "magic"}},
        {"config": {"block_queries": 64}},
        {"config": None},
        {"sm": "90"},
        {"sm": 75},
        {"op": "top_l"},
        {"dtype": "float64"},
        {"config": {"block_queries": 64, "block_keys": 64, "block_dim": 64, "stages": 2.5}},
        {"config": {"block_queries": 64, "block_keys": 64, "block_dim": 64, "registers": -5}},
        {"config": {"block_queries": 64, "block_keys": 64, "block_dim": 64, "warps": 64}},
        {"config": {"block_queries": 64, "block_keys": 64, "block_dim": 64, "warps": True}},
        {"config": {"block_queries": 64, "block_keys": 1 << 20, "block_dim": 64}},
        {"config": {"block_queries": 1, "block_keys": 64, "block_dim": 64}},
        {"config": {"block_queries": 64, "block_keys": 512, "block_dim": 64, "loads": "descriptor"}},
    ],
)
def test_a_table_that_is_none_is_refused(
    change: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = json.loads(table.written({(80, "top_k", "float16", 2048, 64): Config(64, 64, 64)}))["configs"][0]
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"configs": [row | change]}))
    monkeypatch.setenv("PRISMEM_KERNEL_TABLE", str(path))
    with pytest.raises(SettingsError, match=r"PRISMEM_KERNEL_TABLE: .*measured\.json is no table.*unset it"):
        table.config_of(80, "top_k", "float16", 1024, 64)
    monkeypatch.setenv("PRISMEM_KERNEL_TABLE", str(tmp_path / "missing.json"))
    with pytest.raises(SettingsError, match=r"missing\.json"):
        table.config_of(80, "top_k", "float16", 1024, 64)


@pytest.mark.parametrize("seed", range(20))
def test_items_cover_each_pair_of_a_query_and_a_key_of_its_segment_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 200, 6)
    ranges = np.stack([starts, starts + rng.integers(0, 150, 6)], 1).astype(np.int64)
    private = seed % 2 == 0
    count = 6 if private else 40
    groups = None if private else rng.integers(0, 6, count)
    begin, end = (0, None) if seed % 3 else (20, 60)
    items = work.grouped_items(
        ranges, groups, count, 4, 8, int(rng.integers(1, 60)), 16, begin, end, single=seed % 5 > 0
    )
    pairs: list[tuple[int, int]] = []
    lists: list[int] = []
    for rows, most in ((items.single, 1), (items.batched, 4)):
        for first, queries, key_begin, key_end, origin, split in rows.tolist():
            assert 1 <= queries <= most and key_begin < key_end
            for query in items.order[first : first + queries].tolist():
                group = query if groups is None else groups[query]
                assert origin == ranges[group, 0] + begin
                pairs += [(query, key) for key in range(key_begin, key_end)]
                lists.append(int(items.first_list[query]) + split)
                assert items.first_list[query] + split < items.first_list[query + 1]
    expected = []
    for query in range(count):
        first, last = ranges[query if groups is None else groups[query]]
        stop = last if end is None else min(last, first + end)
        expected += [(query, key) for key in range(first + begin, stop)]
    assert sorted(pairs) == expected
    assert sorted(lists) == list(range(int(items.first_list[-1])))
    assert items.most_lists == max(np.diff(items.first_list).tolist(), default=0)


def test_pieces_are_neighbours_of_no_more_than_the_largest_size() -> None:
    assert work.pieces(10**6, 2**30, 1024, 32) == [0, 31250, 10**6]
    assert work.pieces(2**21, 2**30, 1024, 32) == [0, 2**11, 2**16, 2**21]
    assert work.pieces(1000, 2**30, 1024, 32) == [0, 1000]
    assert work.pieces(250, 100, 10, 5) == [0, 20, 100, 200, 250]
    assert work.pieces(250, 100, 251, 5) == [0, 100, 200, 250]
    assert work.pieces(200, 100, 201, 5) == [0, 100, 200]


def test_splits_are_whole_tiles_that_cover_the_keys() -> None:
    for num_keys in (1, 127, 128, 5000, 10**6):
        for blocks, programs in ((1, 528), (16, 528), (1000, 528)):
            splits = work.split_count(num_keys, blocks, programs, 512)
            length = work.split_length(num_keys, splits, 128)
            assert length % 128 == 0 and length * splits >= num_keys
            assert splits == 1 or num_keys // splits >= 512
            assert splits * blocks < programs + 2 * blocks
