"""The cache as one process sees it: values, counters, eviction, arguments, the end of its life."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prismem_core.cache
from prismem_core.cache import ExecutionCache, StageCounters
from prismem_core.errors import ArgumentError, CacheError

from .conftest import key

ENTRY_BYTES = 192  # MemoryTier::kEntryBytes: what an entry costs beside its value


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
    assert cache.counters() == {
        "a": StageCounters(hits=1, misses=1, stores=1, evictions=0, waits=0, damaged=0),
        "b": StageCounters(hits=1, misses=1, stores=1, evictions=0, waits=0, damaged=0),
    }


def test_the_values_unused_for_longest_make_room() -> None:
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


def test_one_large_value_drops_as_many_as_it_needs_and_no_more() -> None:
    cache = ExecutionCache(memory_bytes=4 * (100 + ENTRY_BYTES))
    for i in range(4):
        cache.put("s", key(i), bytes(100))
    cache.put("s", key("large"), bytes(200 + ENTRY_BYTES))
    assert [cache.get("s", key(i)) is None for i in range(4)] == [True, True, False, False]
    assert cache.get("s", key("large")) == bytes(200 + ENTRY_BYTES)


def test_a_value_beyond_the_budget_is_not_kept_and_drops_nothing_else() -> None:
    cache = ExecutionCache(memory_bytes=2 * (100 + ENTRY_BYTES))
    cache.put("s", key("small"), b"s" * 100)
    cache.put("s", key("large"), b"old")
    cache.put("s", key("large"), bytes(10_000))
    assert cache.get("s", key("large")) is None
    assert cache.get("s", key("small")) == b"s" * 100
    assert cache.counters()["s"].evictions == 0


def test_what_memory_drops_comes_back_from_disk(tmp_path: Path) -> None:
    cache = ExecutionCache(tmp_path, memory_bytes=5 * (100 + ENTRY_BYTES))
    for i in range(50):
        cache.put("s", key(i), b"%02d" % i * 50)
    assert [cache.get("s", key(i)) for i in range(50)] == [b"%02d" % i * 50 for i in range(50)]
    assert cache.counters()["s"].evictions >= 45


def test_without_a_memory_tier_everything_is_read_from_disk(tmp_path: Path) -> None:
    cache = ExecutionCache(tmp_path, memory_bytes=0)
    cache.put("s", key(1), b"value")
    cache.put("s", key(1), b"newer")
    assert cache.get("s", key(1)) == b"newer"
    assert cache.counters()["s"].evictions == 0


@pytest.mark.parametrize(
    "bad", ["", "0" * 63, "0" * 65, "G" + "0" * 63, "A" * 64, "0x" + "0" * 62, "é" * 32, "\ud800", 7, None, b"0" * 64]
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
    [{"memory_bytes": -1}, {"memory_bytes": 1.5}, {"memory_bytes": True}, {"segment_bytes": -1}, {"read_only": True}],
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
    source = Path(prismem_core.cache.__file__).read_text(encoding="utf-8")
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
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
        with pytest.raises(CacheError, match="in use for writing"):
            ExecutionCache(os.fspath(path))
    with ExecutionCache(str(path)) as again:
        assert again.get("s", key(1)) == b"1"
