"""The cache as one process sees it: values, counters, eviction, arguments, the end of its life."""

from __future__ import annotations

import ast
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prismem_core.cache
from prismem_core.cache import ExecutionCache
from prismem_core.errors import ArgumentError, CacheError

from .conftest import key

ENTRY_BYTES = 256  # MemoryTier::kEntryBytes: what an entry costs beside its value


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> ExecutionCache:
    return ExecutionCache(None if request.param == "memory" else tmp_path / "cache")


def test_a_value_comes_back_under_its_stage_and_key_alone(cache: ExecutionCache) -> None:
    cache.put("extract", key(1), b"one")
    assert cache.get("extract", key(1)) == b"one"
    assert cache.get("answer", key(1)) is None
    assert cache.get("extract", key(2)) is None


@pytest.mark.parametrize("value", [b"", b"\0", b"x" * 7, b"x" * 8, bytes(range(256)) * 5000])
def test_values_of_any_size_come_back_whole(cache: ExecutionCache, value: bytes) -> None:
    cache.put("s", key("v"), value)
    assert cache.get("s", key("v")) == value


def test_the_last_put_counts(cache: ExecutionCache) -> None:
    for value in (b"first", b"second", b"second", b"other"):
        cache.put("s", key(0), value)
        assert cache.get("s", key(0)) == value


def test_get_many_keeps_the_order_of_its_keys(cache: ExecutionCache) -> None:
    for i in range(5):
        cache.put("s", key(i), b"%d" % i)
    assert cache.get_many("s", [key(3), key("absent"), key(0), key(3)]) == [b"3", None, b"0", b"3"]
    assert cache.get_many("s", []) == []


def test_counters_tell_what_happened_in_each_stage(cache: ExecutionCache) -> None:
    assert cache.counters() == {}
    cache.put("a", key(1), b"1")
    cache.get("a", key(1))
    cache.get("a", key(2))
    cache.get_or_compute("b", key(1), lambda: b"2")
    cache.get_or_compute("b", key(1), lambda: b"2")
    counted = {
        stage: (c.hits, c.misses, c.stores, c.evictions, c.waits, c.damaged) for stage, c in cache.counters().items()
    }
    assert counted == {"a": (1, 1, 1, 0, 0, 0), "b": (1, 1, 1, 0, 0, 0)}


def test_what_hits_have_saved_is_counted_in_the_unit_of_the_costs(cache: ExecutionCache) -> None:
    cache.put("s", key(1), b"1", cost=3)
    cache.put_many("s", [key(2), key(3)], [b"2", b"3"], cost=[0.5, 0])
    assert cache.get_or_compute("s", key(4), lambda: b"4", cost=10) == b"4"
    assert cache.counters()["s"].saved_cost == 0
    cache.get_many("s", [key(1), key(2), key(3), key("absent")])
    cache.get("s", key(1))
    cache.get_or_compute("s", key(4), lambda: b"other")
    assert cache.counters()["s"].saved_cost == pytest.approx(3 + 0.5 + 3 + 10)
    assert {e.key: e.cost for e in cache.entries(stage="s")} == {key(1): 3, key(2): 0.5, key(3): 0, key(4): 10}


def test_the_cost_of_a_computation_is_the_seconds_it_took(cache: ExecutionCache) -> None:
    cache.get_or_compute("s", key(1), lambda: (time.sleep(0.05), b"1")[1])
    [entry] = cache.entries()
    assert 0.04 < entry.cost < 5


def test_without_costs_the_values_unused_for_longest_make_room() -> None:
    cache = ExecutionCache(memory_bytes=3 * (100 + ENTRY_BYTES))
    for i in range(3):
        cache.put("old" if i < 2 else "new", key(i), b"%d" % i * 100)
    assert cache.get("old", key(0)) == b"0" * 100
    cache.put("new", key(3), b"3" * 100)
    assert cache.get("old", key(1)) is None
    assert cache.get("old", key(0)) == b"0" * 100
    assert cache.get("new", key(2)) == b"2" * 100
    assert cache.get("new", key(3)) == b"3" * 100
    assert {stage: counted.evictions for stage, counted in cache.counters().items()} == {"old": 1, "new": 0}


def test_the_dear_stay_and_the_cheap_go() -> None:
    cache = ExecutionCache(memory_bytes=20 * (100 + ENTRY_BYTES))
    for i in range(10):
        cache.put("dear", key(i), bytes(100), cost=1000)
    for i in range(300):
        cache.put("cheap", key(i), bytes(100), cost=1)
    assert [cache.get("dear", key(i)) is not None for i in range(10)] == [True] * 10
    assert cache.counters()["dear"].evictions == 0
    assert cache.counters()["cheap"].evictions == 290


def test_a_large_value_must_be_as_dear_by_the_byte() -> None:
    cache = ExecutionCache(memory_bytes=10 * (1000 + ENTRY_BYTES))
    cache.put("large", key(1), bytes(5000), cost=50)
    for i in range(20):
        cache.put("small", key(i), bytes(1000), cost=40)
    assert cache.get("large", key(1)) is None
    assert cache.counters()["large"].evictions == 1


def test_a_value_beyond_the_budget_is_not_kept_and_drops_nothing_else() -> None:
    cache = ExecutionCache(memory_bytes=2 * (100 + ENTRY_BYTES))
    cache.put("s", key("small"), b"s" * 100)
    cache.put("s", key("large"), b"old")
    cache.put("s", key("large"), bytes(10_000))
    assert cache.get("s", key("large")) is None
    assert cache.get("s", key("small")) == b"s" * 100
    assert cache.counters()["s"].evictions == 0


@pytest.mark.parametrize("memory_bytes", [0, 1000, 1 << 20])
def test_what_is_on_disk_needs_no_memory(tmp_path: Path, memory_bytes: int) -> None:
    cache = ExecutionCache(tmp_path, memory_bytes=memory_bytes)
    for i in range(50):
        cache.put("s", key(i), b"%02d" % i * 50)
    cache.put("s", key(1), b"newer")
    assert [cache.get("s", key(i)) for i in range(50)] == [b"newer" if i == 1 else b"%02d" % i * 50 for i in range(50)]
    assert cache.counters()["s"].evictions == 0
    stats = cache.stats()
    assert (stats.entries, stats.memory_entries, stats.memory_bytes) == (50, 0, 0)
    assert stats.disk_bytes >= stats.live_bytes > 50 * 100
    assert stats.segments == 1 and stats.index_bytes > 0


def size_of(directory: Path) -> int:
    """Bytes of the files that are there; some may go while one looks."""
    total = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_the_disk_keeps_its_bound_and_what_is_dear(tmp_path: Path) -> None:
    bound = 1 << 20
    with ExecutionCache(tmp_path, disk_bytes=bound) as cache:
        for i in range(20):
            cache.put("dear", key(i), b"%03d" % i * 300, cost=1e6)
        for i in range(4000):
            cache.put("cheap", key(i), b"%04d" % i * 250, cost=1)
            if i % 100 == 0:
                assert size_of(tmp_path) <= bound
        assert size_of(tmp_path) <= bound
        assert [cache.get("dear", key(i)) for i in range(20)] == [b"%03d" % i * 300 for i in range(20)]
        kept = [i for i in range(4000) if cache.get("cheap", key(i)) is not None]
        assert 100 < len(kept) < 1100
        assert kept[-1] == 3999
        assert all(cache.get("cheap", key(i)) == b"%04d" % i * 250 for i in kept)
        assert cache.counters()["cheap"].evictions >= 2000
        assert cache.verify().clean


def test_what_was_removed_stays_away_and_its_room_comes_back(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as cache:
        cache.put_many("s", [key(i) for i in range(100)], [bytes(10_000)] * 100)
        assert cache.remove("s", [key(i) for i in range(1, 100)] + [key("absent")]) == 99
        assert cache.remove("other", [key(0)]) == 0
        assert cache.contains("s", [key(0), key(1), key("absent")]).tolist() == [True, False, False]
        assert cache.compact() > 900_000
        assert cache.stats().disk_bytes < 100_000
    with ExecutionCache(tmp_path) as cache:
        assert [entry.key for entry in cache.entries()] == [key(0)]
        assert cache.get("s", key(0)) == bytes(10_000)


def test_clear_leaves_an_empty_cache(cache: ExecutionCache) -> None:
    for i in range(10):
        cache.put("s", key(i), b"%d" % i)
    cache.clear()
    assert cache.get_many("s", [key(i) for i in range(10)]) == [None] * 10
    assert list(cache.entries()) == []
    cache.put("s", key(1), b"again")
    assert cache.get("s", key(1)) == b"again"


def test_entries_tell_what_is_there(cache: ExecutionCache) -> None:
    before = int(time.time())
    cache.put("b", key(1), b"one", cost=2)
    cache.put("a", key(2), b"")
    cache.put("b", key(1), b"newer", cost=3)
    assert {(e.stage, e.key, e.value_bytes, e.cost) for e in cache.entries()} == {
        ("b", key(1), 5, 3.0),
        ("a", key(2), 0, 0.0),
    }
    assert [e.key for e in cache.entries(stage="a")] == [key(2)]
    assert list(cache.entries(stage="absent")) == []
    if cache.directory is not None:
        assert all(before - 1 <= e.stored_at <= before + 60 for e in cache.entries())


@pytest.mark.parametrize("spelled", [lambda name: bytes.fromhex(name), str])
def test_hex_digits_and_bytes_name_the_same_entry(cache: ExecutionCache, spelled: Callable[[str], Any]) -> None:
    cache.put("s", spelled(key(1)), b"1")
    assert cache.get("s", key(1)) == cache.get("s", bytes.fromhex(key(1))) == b"1"
    assert cache.get_many("s", [key(1), bytes.fromhex(key(1))]) == [b"1", b"1"]
    assert cache.contains("s", [bytes.fromhex(key(1))]).tolist() == [True]
    assert cache.remove("s", [bytes.fromhex(key(1))]) == 1


def test_many_values_are_put_at_once(cache: ExecutionCache) -> None:
    keys = [key(i) for i in range(300)]
    values = [os.urandom(i * 37 % 2000) for i in range(300)]
    cache.put_many("s", keys, values, cost=2)
    assert cache.get_many("s", keys) == values
    for _ in range(2):
        cache.put_many("s", [keys[0], keys[0]], [b"first", b"last"])
        assert cache.get("s", keys[0]) == b"last"
    cache.put_many("s", [], [])
    for call in (
        lambda: cache.put_many("s", iter(keys), values),
        lambda: cache.put_many("s", keys[0], values[:1]),
        lambda: cache.put_many("s", keys[:1], values[0]),
        lambda: cache.get_many("s", keys[0]),
        lambda: cache.get_rows("s", iter(keys), 4),
        lambda: cache.contains("s", keys[0]),
        lambda: cache.remove("s", 7),
        lambda: cache.lease("s", keys[0]).__enter__(),
    ):
        with pytest.raises(ArgumentError, match="must be a sequence"):
            call()
    with pytest.raises(ArgumentError, match="got 1 for 2 keys"):
        cache.put_many("s", keys[:2], [b"1"])
    with pytest.raises(ArgumentError, match="value must be bytes"):
        cache.put_many("s", [key("new"), key("too")], [b"1", "text"])  # type: ignore[list-item]
    assert cache.get("s", key("new")) is None, "all or none"


@pytest.mark.parametrize("bad", [-1, -0.5, float("nan"), float("inf"), 10**400, True, "1", None, [1.0]])
def test_a_cost_must_be_a_finite_number(cache: ExecutionCache, bad: Any) -> None:
    with pytest.raises(ArgumentError, match="cost must be"):
        cache.put("s", key(1), b"1", cost=bad)
    with pytest.raises(ArgumentError, match="cost must be"):
        cache.put_many("s", [key(1), key(2)], [b"1", b"2"], cost=[1.0, bad])
    with pytest.raises(ArgumentError, match="cost must be"):
        cache.put_many("s", [key(1), key(2)], [b"1", b"2"], cost=bad)
    if bad is not None:
        with pytest.raises(ArgumentError, match="cost must be"):
            cache.get_or_compute("s", key(1), lambda: b"1", cost=bad)
    assert cache.get("s", key(1)) is None


@pytest.mark.parametrize("durability", ["process", "power"])
def test_each_level_of_durability_keeps_what_was_put(tmp_path: Path, durability: Any) -> None:
    with ExecutionCache(tmp_path, durability=durability) as cache:
        cache.put("s", key(1), b"1")
        cache.put_many("s", [key(2), key(3)], [b"2", b"3"])
        cache.flush()
    with ExecutionCache(tmp_path) as cache:
        assert cache.get_many("s", [key(1), key(2), key(3)]) == [b"1", b"2", b"3"]


def test_a_class_of_ones_own_may_replace_a_verb() -> None:
    class Counting(ExecutionCache):
        asked = 0

        def get(self, stage: str, key: str | bytes) -> bytes | None:
            self.asked += 1
            return super().get(stage, key)

    cache = Counting()
    cache.put_json("s", key(1), [1])
    assert cache.get_json("s", key(1)) == [1]
    assert cache.asked == 1


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "0" * 63,
        "0" * 65,
        "G" + "0" * 63,
        "A" * 64,
        "0x" + "0" * 62,
        "é" * 32,
        "\ud800",
        7,
        None,
        b"0" * 64,
        b"0" * 31,
    ],
)
def test_a_key_must_be_a_digest(cache: ExecutionCache, bad: Any) -> None:
    for call in (
        lambda: cache.get("s", bad),
        lambda: cache.put("s", bad, b""),
        lambda: cache.get_or_compute("s", bad, lambda: b""),
        lambda: cache.get_many("s", [bad]),
    ):
        with pytest.raises(ArgumentError, match="key must be"):
            call()
    assert cache.counters() == {}


@pytest.mark.parametrize("bad", ["", "s" * 65, "é", "a\nb", "a\0", "\x7f", 3, None, b"s"])
def test_a_stage_must_be_a_short_ascii_name(cache: ExecutionCache, bad: Any) -> None:
    with pytest.raises(ArgumentError, match="stage must be"):
        cache.put(bad, key(1), b"")
    cache.put("s" * 64, key(1), b"longest")
    assert cache.get("s" * 64, key(1)) == b"longest"


@pytest.mark.parametrize("bad", ["text", bytearray(b"x"), memoryview(b"x"), None, 1])
def test_a_value_must_be_bytes(cache: ExecutionCache, bad: Any) -> None:
    with pytest.raises(ArgumentError, match="value must be bytes"):
        cache.put("s", key(1), bad)
    with pytest.raises(ArgumentError, match="compute returns must be bytes"):
        cache.get_or_compute("s", key(1), lambda: bad)
    with pytest.raises(ArgumentError, match="compute must be a function"):
        cache.get_or_compute("s", key(1), bad)
    assert cache.get("s", key(1)) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"memory_bytes": -1},
        {"memory_bytes": 1.5},
        {"memory_bytes": True},
        {"disk_bytes": -1},
        {"disk_bytes": "1"},
        {"segment_bytes": -1},
        {"durability": "fsync"},
        {"read_only": True},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        ExecutionCache(**settings)


@pytest.mark.parametrize("bad", ["", "a\0b", 5, b"path", ["path"]])
def test_what_is_no_path_is_refused(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="directory must be a path"):
        ExecutionCache(bad)


def test_a_closed_cache_says_so(cache: ExecutionCache) -> None:
    cache.put("s", key(1), b"1")
    with cache:
        assert cache.get("s", key(1)) == b"1"
    cache.close()
    for call in (
        lambda: cache.get("s", key(1)),
        lambda: cache.put("s", key(1), b""),
        lambda: cache.get_or_compute("s", key(1), lambda: b""),
        cache.flush,
    ):
        with pytest.raises(CacheError, match="closed"):
            call()
    assert cache.counters()["s"].hits == 1


def test_a_forked_child_gets_an_error_and_the_parent_goes_on(run: Callable[..., str], tmp_path: Path) -> None:
    out = run(
        """
cache = ExecutionCache(sys.argv[1])
cache.put("s", digest(1), b"1")
child = os.fork()
if child == 0:
    code = 0
    for call in (lambda: cache.get("s", digest(1)), lambda: cache.put("s", digest(2), b"2"),
                 lambda: cache.get_or_compute("s", digest(3), lambda: b"3"), cache.flush, cache.counters):
        try:
            call()
            code = 1
        except CacheError as error:
            if "fork" not in str(error):
                code = 2
    cache.close()
    del cache
    os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
cache.put("s", digest(4), b"4")
print(cache.get("s", digest(1)), cache.get("s", digest(4)))
""",
        tmp_path,
    )
    assert out == "0\nb'1' b'4'\n"


def test_nothing_here_can_run_what_it_reads() -> None:
    """No unpickling, evaluation or loading of code, neither named nor by numpy's own file formats."""
    names: set[str] = set()
    modules: set[str] = set()
    sources = list(Path(prismem_core.cache.__file__).parent.glob("*.py"))
    assert len(sources) > 5
    for source in sources:
        tree = ast.parse(source.read_text(encoding="utf-8"))
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not names & {
        "eval",
        "exec",
        "compile",
        "__import__",
        "pickle",
        "load",
        "save",
        "fromstring",
        "marshal",
        "shelve",
    }
    assert not {m.split(".")[0] for m in modules} & {
        "pickle",
        "marshal",
        "shelve",
        "importlib",
        "dill",
        "joblib",
        "runpy",
    }


def test_keys_and_stages_that_differ_in_one_place_are_kept_apart(cache: ExecutionCache) -> None:
    names = [format(i, "064x") for i in range(300)] + [format(1 << bit, "064x") for bit in range(9, 256)]
    for i, name in enumerate(names):
        cache.put(f"s{i % 7}", name, b"%d" % i)
    assert [cache.get(f"s{i % 7}", name) for i, name in enumerate(names)] == [b"%d" % i for i in range(len(names))]


def test_directories_are_made_and_paths_may_hold_any_character(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ü 'x' \udcff"
    with ExecutionCache(path) as cache:
        cache.put("s", key(1), b"1")
        assert cache.directory == path
    with ExecutionCache(str(path)) as again:
        assert again.get("s", key(1)) == b"1"
