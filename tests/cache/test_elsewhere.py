"""What others do while a cache is open (another folder, clearing, pruning, kills); what must not pass in silence."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prismem_core.cache import DamageWarning, ExecutionCache, transfer
from prismem_core.errors import ArgumentError, CacheError

from .conftest import key


def test_a_relative_directory_stays_the_same_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with ExecutionCache(tmp_path / name / "cache") as cache, cache.tagged(run=f"run {name}"):
            cache.put("s", key(1), name.encode())
    monkeypatch.chdir(tmp_path / "a")
    with ExecutionCache("cache") as cache:
        monkeypatch.chdir(tmp_path / "b")
        assert cache.runs() == {"run a": 1}
        cache.export(tmp_path / "exported")
        cache.clear()
    with ExecutionCache(tmp_path / "exported") as exported:
        assert exported.get("s", key(1)) == b"a"
    with ExecutionCache(tmp_path / "b" / "cache") as other:
        assert other.runs() == {"run b": 1}
        assert other.get("s", key(1)) == b"b"


def test_notes_begin_anew_after_another_process_has_cleared_them(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as one, ExecutionCache(tmp_path) as other:
        with one.tagged(run="first"):
            one.put("s", key(1), b"1")
        other.clear()
        with one.tagged(run="first"):
            one.put("s", key(1), b"1")
        assert other.runs() == {"first": 1}
        with other.tagged(run="second"):
            other.put("s", key(1), b"1")
        other.prune(runs=["second"])
        assert one.get("s", key(1)) == b"1"


def test_tagged_puts_beside_clears_and_listings_keep_their_notes_on_disk(tmp_path: Path) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def listing() -> None:
        try:
            with ExecutionCache(tmp_path) as cache:
                while not stop.is_set():
                    cache.runs()
                    cache.clear()
        except BaseException as error:
            failures.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread = threading.Thread(target=listing)
        thread.start()
        with ExecutionCache(tmp_path) as cache:
            for i in range(300):
                with cache.tagged(run=f"run {i % 3}"):
                    cache.put("s", key(i), b"value")
            stop.set()
            thread.join()
            with cache.tagged(run="last"):
                cache.put("s", key("last"), b"value")
            assert cache.runs()["last"] == 1
    assert not failures
    assert list((tmp_path / "runs").glob("last-*.keys"))


@pytest.mark.parametrize("keys", [{key(1), key(2)}, {key(1): 1, key(2): 2}, frozenset([key(1)])])
def test_what_has_no_order_is_no_sequence_of_keys(tmp_path: Path, keys: object) -> None:
    with ExecutionCache(tmp_path) as cache:
        for call in (cache.get_many, cache.contains, cache.remove):
            with pytest.raises(ArgumentError, match="must be a sequence"):
                call("s", keys)  # type: ignore[operator]
        with pytest.raises(ArgumentError, match="must be a sequence"):
            cache.put_many("s", keys, [b"1"] * len(keys))  # type: ignore[arg-type]
        assert not list(cache.entries())


def test_an_export_tells_what_it_left_out_and_takes_what_memory_holds(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path / "cache", disk_bytes=1 << 20) as cache:
        cache.put("s", key(1), b"damaged" * 100)
        cache.put("s", key(2), b"sound")
        cache.put("s", key(3), bytes(3 << 20))  # more than its share of the disk
        [segment] = (tmp_path / "cache").glob("segment-*.log")
        data = bytearray(segment.read_bytes())
        data[data.index(b"damaged")] ^= 1
        segment.write_bytes(data)
        with pytest.warns(DamageWarning, match="^1 entries could not be read"):
            assert cache.export(tmp_path / "exported") == 2
    with ExecutionCache(tmp_path / "exported", read_only=True) as exported:
        assert exported.get("s", key(1)) is None
        assert exported.get("s", key(2)) == b"sound"
        assert exported.get("s", key(3)) == bytes(3 << 20)


def test_an_export_that_does_not_end_leaves_nothing_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        assert not (tmp_path / "exported").exists()
        raise KeyboardInterrupt

    with ExecutionCache(tmp_path / "cache") as cache:
        cache.put("s", key(1), b"1")
        with monkeypatch.context() as patch:
            patch.setattr(transfer, "copy", fails)
            with pytest.raises(KeyboardInterrupt):
                cache.export(tmp_path / "exported")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]
        assert cache.export(tmp_path / "exported") == 1


def test_a_closed_cache_refuses_what_works_on_its_entries(tmp_path: Path) -> None:
    cache = ExecutionCache(tmp_path / "cache")
    cache.put("s", key(1), b"1")
    cache.close()
    with pytest.raises(CacheError, match="is closed"):
        cache.export(tmp_path / "exported")
    with pytest.raises(CacheError, match="is closed"):
        cache.runs()
    with pytest.raises(CacheError, match="is closed"), cache.tagged(run="late"):
        pass
    assert cache.counters()["s"].stores == 1


def test_a_forked_child_is_told_instead_of_waiting_for_a_lock_of_its_parents_threads(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    script = """
cache = ExecutionCache(sys.argv[1])
stop = threading.Event()
def spin():
    while not stop.is_set():
        with cache.tagged(run="r"):
            pass
threads = [threading.Thread(target=spin) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        try:
            with cache.tagged(run="child"):
                os._exit(1)
        except CacheError:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
print("told")
"""
    assert run(script, tmp_path).strip() == "told"


def test_a_mask_and_a_dimension_beyond_memory_are_refused(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as cache:
        with pytest.raises(ArgumentError, match="got masked float32"):
            cache.put_rows("s", [key(1)], np.ma.masked_array(np.zeros((1, 2), np.float32), True))
        with pytest.raises(ArgumentError, match="dimension must be that of the rows stored"):
            cache.get_rows("s", [key(1)], 1 << 62)
