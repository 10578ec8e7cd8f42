"""Export, import and pruning: parts of a cache by run, program, stage and age, with costs and notes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from prismem_core.cache import CacheWarning, DamageWarning, ExecutionCache
from prismem_core.errors import ArgumentError, CacheError

from .conftest import key, read_segment


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> ExecutionCache:
    """Two runs that share an entry, and an entry of none."""
    cache = ExecutionCache(None if request.param == "memory" else tmp_path / "cache")
    with cache.tagged(run="one", program="p"):
        cache.put("s", key(1), b"1", cost=1)
        cache.put("t", key("both"), b"both" * 1000, cost=7)
    with cache.tagged(run="two", program="q"):
        cache.put("s", key(2), b"2", cost=2)
        cache.get("t", key("both"))
    cache.put("s", key("none"), b"none")
    return cache


def contents(cache: ExecutionCache) -> dict[tuple[str, str], tuple[bytes | None, float]]:
    return {(e.stage, e.key): (cache.get(e.stage, e.key), e.cost) for e in cache.entries()}


ALL = {
    ("s", key(1)): (b"1", 1.0),
    ("s", key(2)): (b"2", 2.0),
    ("s", key("none")): (b"none", 0.0),
    ("t", key("both")): (b"both" * 1000, 7.0),
}
RUNS = {"one": 2, "two": 2}


def test_an_export_is_a_cache_with_costs_and_notes(cache: ExecutionCache, tmp_path: Path) -> None:
    assert cache.export(tmp_path / "out") == 4
    with ExecutionCache(tmp_path / "out") as out:
        assert out.runs() == RUNS
        assert contents(out) == ALL
        assert {e.key for e in out.entries(program="q")} == {key(2), key("both")}
        assert out.verify().clean
    assert contents(cache) == ALL
    assert cache.runs() == RUNS


@pytest.mark.parametrize(
    ("chosen", "names", "runs"),
    [
        ({"run": "one"}, {1, "both"}, {"one": 2}),
        ({"run": "two", "stage": "s"}, {2}, {"two": 1}),
        ({"stage": "t"}, {"both"}, {"one": 1, "two": 1}),
        ({"program": "p"}, {1, "both"}, {"one": 2}),
        ({"run": "one", "program": "q"}, set(), {}),
    ],
)
def test_parts_are_exported(
    cache: ExecutionCache, tmp_path: Path, chosen: dict[str, str], names: set[Any], runs: dict[str, int]
) -> None:
    assert cache.export(str(tmp_path / "out"), **chosen) == len(names)
    with ExecutionCache(tmp_path / "out", read_only=True) as out:
        assert {e.key for e in out.entries()} == {key(name) for name in names}
        assert out.runs() == runs


def test_an_export_leaves_times_of_use_and_counters_alone(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path / "cache") as cache:
        cache.put("s", key(1), b"1")
        before, counted = list(cache.entries()), cache.counters()
        cache.export(tmp_path / "out")
        assert (list(cache.entries()), cache.counters()) == (before, counted)


def test_an_export_goes_to_a_new_place_only(cache: ExecutionCache, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("years of work")
    for place in (full, full / "thesis.txt"):
        with pytest.raises(CacheError, match="is there already"):
            cache.export(place)
    assert os.listdir(full) == ["thesis.txt"]
    with pytest.raises(ArgumentError, match="no run 'three'"):
        cache.export(tmp_path / "out", run="three")
    assert not (tmp_path / "out").exists(), "an export that fails leaves nothing"
    (tmp_path / "out").mkdir()
    assert cache.export(tmp_path / "out") == 4
    with pytest.raises(ArgumentError, match="destination must be a path"):
        cache.export(3)  # type: ignore[arg-type]


def test_an_export_onto_a_full_disk_is_an_error(tmp_path: Path, run: Callable[..., str]) -> None:
    out = run(
        """
import resource
cache = ExecutionCache(sys.argv[1])
cache.put_many("s", [digest(i) for i in range(100)], [bytes(10_000)] * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
warnings.simplefilter("error")
try:
    cache.export(sys.argv[2])
except CacheError as error:
    print("refused", "cannot be written" in str(error), os.path.exists(sys.argv[2]))
""",
        tmp_path / "cache",
        tmp_path / "out",
    )
    assert out == "refused True False\n"


def test_an_import_takes_what_is_not_there(cache: ExecutionCache, tmp_path: Path) -> None:
    cache.export(tmp_path / "out")
    with ExecutionCache(tmp_path / "other") as other:
        with other.tagged(run="own"):
            other.put("s", key(1), b"its own", cost=9)
        assert other.import_from(tmp_path / "out") == 3
        assert contents(other) == {**ALL, ("s", key(1)): (b"its own", 9.0)}
        assert other.runs() == {**RUNS, "own": 1}
        assert other.import_from(str(tmp_path / "out")) == 0
        assert other.runs() == {**RUNS, "own": 1}
    with ExecutionCache() as memory:
        assert memory.import_from(tmp_path / "out") == 4
        assert contents(memory) == ALL
        assert memory.runs() == RUNS


def test_an_import_leaves_out_what_is_damaged_and_says_how_much(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path / "from") as cache, cache.tagged(run="r"):
        for i in range(5):
            cache.put("s", key(i), b"%d" % i * 100)
    [segment] = (tmp_path / "from").glob("segment-*")
    record = read_segment(segment)[2]
    data = bytearray(segment.read_bytes())
    data[record.value_offset + 7] ^= 1
    segment.write_bytes(data)
    with ExecutionCache(tmp_path / "to") as cache:
        with pytest.warns(DamageWarning, match="1 damaged entries or notes"):
            assert cache.import_from(tmp_path / "from") == 4
        assert cache.contains("s", [key(i) for i in range(5)]).tolist() == [True, True, False, True, True]
        assert cache.runs() == {"r": 4}
        assert cache.verify().clean
    assert issubclass(DamageWarning, CacheWarning)


def test_an_import_wants_a_cache(cache: ExecutionCache, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CacheError, match="is not an execution cache"):
        cache.import_from(tmp_path / "empty")
    with pytest.raises(CacheError, match="no directory at"):
        cache.import_from(tmp_path / "absent")
    assert os.listdir(tmp_path / "empty") == []
    assert contents(cache) == ALL


def test_pruning_a_run_leaves_what_others_use(cache: ExecutionCache) -> None:
    assert cache.prune(runs=["one"]) == 1
    assert set(contents(cache)) == {("s", key(2)), ("s", key("none")), ("t", key("both"))}
    assert cache.runs() == {"two": 2}
    assert cache.prune(runs=["two"]) == 2
    assert set(contents(cache)) == {("s", key("none"))}
    assert cache.runs() == {}
    if cache.directory is not None:
        assert os.listdir(cache.directory / "runs") == []


def test_runs_are_pruned_together(cache: ExecutionCache) -> None:
    assert cache.prune(runs=("one", "two")) == 3
    assert set(contents(cache)) == {("s", key("none"))}


def test_a_stage_is_pruned(cache: ExecutionCache) -> None:
    assert cache.prune(stage="s") == 3
    assert set(contents(cache)) == {("t", key("both"))}
    assert cache.runs() == RUNS


def test_conditions_hold_together(cache: ExecutionCache) -> None:
    assert cache.prune(runs=["one"], stage="t") == 0
    assert cache.prune(runs=["one", "two"], stage="t") == 1
    assert cache.runs() == RUNS, "something of the runs is left"
    assert set(contents(cache)) == {("s", key(1)), ("s", key(2)), ("s", key("none"))}


def test_what_has_not_been_used_is_pruned(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as cache:
        cache.put("s", key(1), b"1")
        assert cache.prune(unused_since=time.time() - 3600) == 0
        assert cache.prune(unused_since=datetime.now() - timedelta(hours=1)) == 0
        assert cache.prune(unused_since=datetime.now() + timedelta(hours=1), stage="t") == 0
        assert cache.prune(unused_since=time.time() + 3600) == 1
        assert cache.get("s", key(1)) is None


@pytest.mark.parametrize(
    "wrong",
    [{}, {"runs": []}, {"runs": "one"}, {"runs": ["three"]}, {"runs": [""]}, {"runs": [1]}, {"unused_since": "2026"}],
)
def test_wrong_conditions_prune_nothing(cache: ExecutionCache, wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        cache.prune(**wrong)
    assert contents(cache) == ALL
    assert cache.runs() == RUNS


def test_pruned_entries_stay_away_and_new_ones_are_noted(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as cache, cache.tagged(run="r"):
        cache.put("s", key(1), b"1")
        assert cache.prune(runs=["r"]) == 1
        cache.put("s", key(1), b"1")
        assert cache.runs() == {"r": 1}
    with ExecutionCache(tmp_path) as cache:
        assert cache.get("s", key(1)) == b"1"
        assert cache.prune(runs=["r"]) == 1
    with ExecutionCache(tmp_path, read_only=True) as cache:
        assert cache.get("s", key(1)) is None
