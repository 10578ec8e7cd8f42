"""`prismem kernels tune` finds a better configuration where there is one, and takes none that is wrong or no better."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from prismem_core.bench.device import tuning
from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.kernels.triton import table
from prismem_core.kernels.triton.launch import Config

KEY = (90, "top_k", "float16", 2048, 64)
START = Config(64, 128, 64, warps=4, stages=3)
BEST = Config(128, 64, 32, warps=8, stages=4)


def distance(config: Config) -> float:
    """Time that grows with each step away from the best configuration, as no device's does."""
    steps = sum(
        abs(math.log2(getattr(config, name) / getattr(BEST, name)))
        for name in ("block_queries", "block_keys", "block_dim", "warps")
    )
    return 1.0 + steps + abs(config.stages - BEST.stages) + (config.loads != BEST.loads)


def tuned(measure: tuning.Measure, start: Config = START, end: float = 1e9) -> list[tuning.Tuned]:
    ticks = iter(range(1_000_000))
    return list(tuning.tune([(KEY, start)], measure, end, lambda: float(next(ticks))))


def test_the_best_is_found_one_change_at_a_time() -> None:
    (found,) = tuned(lambda key, config: distance(config))
    assert found.best == BEST
    assert (found.before, found.seconds) == (START, 1.0)
    assert found.seconds_before == distance(START)
    assert found.tried < 100


def test_what_does_not_run_or_is_wrong_is_not_taken() -> None:
    def measure(key: tuning.Key, config: Config) -> float:
        return math.inf if config.warps == 8 else distance(config)

    (found,) = tuned(measure)
    assert found.best == replace(BEST, warps=4)
    assert tuned(lambda key, config: math.inf) == []


def test_noise_is_no_gain() -> None:
    (found,) = tuned(lambda key, config: 1.0 if config == START else 0.98)
    assert found.best == START


def test_time_runs_out_with_the_best_so_far() -> None:
    (found,) = tuned(lambda key, config: distance(config), end=3.0)
    assert found.tried <= 4
    assert found.seconds <= found.seconds_before
    assert tuned(lambda key, config: distance(config), end=0.0) == []


def test_neighbours_keep_to_what_a_gpu_can_do() -> None:
    seen, left = {START}, [START]
    while left:
        for config in tuning.neighbours(left.pop(), 90):
            if config not in seen:
                seen.add(config)
                left.append(config)
    assert len(seen) > 1000
    for config in seen:
        assert 16 <= config.block_queries <= 256
        assert config.warps in (1, 2, 4, 8, 16)
        assert 1 <= config.stages <= 6
    single = list(tuning.neighbours(Config(1, 32, 256), 90))
    assert all(config.block_queries == 1 and config.loads == "pointer" for config in single)
    assert all(config.loads == "pointer" for config in tuning.neighbours(START, 80))


def test_rows_that_are_asked_for() -> None:
    rows = tuning.chosen(90, ["top_k"], ["float16"])
    assert rows
    assert {(key[0], key[1], key[2]) for key, _ in rows} == {(90, "top_k", "float16")}
    assert {key[1] for key, _ in tuning.chosen(90, [], [])} <= set(tuning.CALLS)
    with pytest.raises(ArgumentError, match="top_q"):
        tuning.chosen(90, ["top_q"], [])


def test_what_is_written_is_what_launches_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.json"
    path.write_text(table.written({KEY: BEST}), encoding="utf-8")
    monkeypatch.setenv("PRISMEM_KERNEL_TABLE", str(path))
    assert table.config_of(90, "top_k", "float16", 1024, 64, described=True) == BEST
    assert table.config_of(90, "top_k", "float16", 1024, 1) != BEST


def test_without_a_device_it_says_where_to_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(NoImplementation, match="no CUDA device; run it on a machine with the GPU"):
        tuning.run(tmp_path / "table.json", [], [], 1.0, lambda found: None)
    assert not (tmp_path / "table.json").exists()
