"""Tags: which runs and programs used an entry is noted beside the values, and survives what the values survive."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core.cache import CacheWarning, ExecutionCache
from prismem_core.errors import ArgumentError, CacheError

from .conftest import crc32c, key

ROW = 56


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> ExecutionCache:
    return ExecutionCache(None if request.param == "memory" else tmp_path / "cache")


def used(cache: ExecutionCache, **chosen: str) -> set[tuple[str, str]]:
    return {(entry.stage, entry.key) for entry in cache.entries(**chosen)}


def test_what_is_put_or_found_is_used(cache: ExecutionCache) -> None:
    cache.put("s", key("before"), b"0")
    cache.put("s", key("unused"), b"0")
    with cache.tagged(run="first", program="p1"):
        cache.put("s", key(1), b"1")
        cache.put_many("s", [key(2), key(3)], [b"2", b"3"])
        cache.get("s", key("before"))
        cache.get("s", key("absent"))
        with cache.tagged(program="p2"):
            cache.get_many("s", [key(1), key("absent")])
            cache.put_rows("e", [key(4)], np.ones((1, 2), np.float32))
            cache.get_or_compute_json("j", key(5), lambda: 1)
    with cache.tagged(run="second"):
        cache.get_rows("e", [key(4), key("absent")], 2)
        cache.get_or_compute_json("j", key(5), lambda: 1)
    cache.get("s", key("unused"))
    assert cache.runs() == {"first": 6, "second": 2}
    assert used(cache, run="first", program="p1") == {("s", key(name)) for name in (1, 2, 3, "before")}
    assert used(cache, program="p2") == {("s", key(1)), ("e", key(4)), ("j", key(5))}
    assert used(cache, run="second") == {("e", key(4)), ("j", key(5))}
    assert used(cache, run="second", program="p2") == set()
    assert used(cache, run="first", stage="e") == {("e", key(4))}
    assert len(used(cache)) == 7
    with pytest.raises(ArgumentError, match="no run 'third' has used this cache; those that have: 'first', 'second'"):
        cache.entries(run="third")


def test_what_one_program_used_can_be_noted_for_another(cache: ExecutionCache) -> None:
    cache.put("a", key(0), b"0")
    with cache.tagged(run="r", program="p1"), cache.collecting() as uses:
        cache.get("a", key(0))
        cache.put("b", key(1), b"1")
        other = threading.Thread(target=lambda: cache.put("b", key(2), b"2"))
        other.start()
        other.join()
    cache.note(uses)
    with cache.tagged(run="r", program="p2"):
        cache.put("c", key(3), b"3")
        cache.note(uses)
        cache.put("b", key(4), b"4")
    assert used(cache, program="p2") == {("a", key(0)), ("b", key(1)), ("c", key(3)), ("b", key(4))}
    assert set(uses) == {"a", "b"}


def test_values_and_counters_do_not_depend_on_tags(cache: ExecutionCache) -> None:
    def work(stage: str) -> list[object]:
        cache.put(stage, key(1), b"1")
        got: list[object] = [cache.get(stage, key(1)), cache.get_many(stage, [key(1), key(2)])]
        got.append(cache.get_or_compute(stage, key(3), lambda: b"3", cost=1))
        return [*got, cache.counters()[stage]]

    plain = work("plain")
    with cache.tagged(run="r", program="p"):
        assert work("noted") == plain


def test_a_program_without_a_run_notes_nothing(cache: ExecutionCache) -> None:
    with cache.tagged(program="p"):
        cache.put("s", key(1), b"1")
    assert cache.runs() == {}
    assert used(cache, program="p") == set()


def test_notes_of_all_threads_are_kept(cache: ExecutionCache) -> None:
    def work(n: int) -> None:
        for i in range(50):
            cache.put("s", key(n, i), b"")

    with cache.tagged(run="r"):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert cache.runs() == {"r": 200}


def test_blocks_of_several_threads_may_overlap(cache: ExecutionCache) -> None:
    entered, left = threading.Event(), threading.Event()

    def work() -> None:
        with cache.tagged(program="inner"):
            entered.set()
            assert left.wait(timeout=20)

    thread = threading.Thread(target=work)
    with cache.tagged(run="r"):
        with cache.tagged(program="outer"):
            thread.start()
            assert entered.wait(timeout=20)
        left.set()
        thread.join()
        cache.put("s", key(1), b"")
    cache.put("s", key(2), b"")
    assert used(cache, run="r") == {("s", key(1))}
    assert used(cache, program="inner") == used(cache, program="outer") == set()


NAMES = ["run", "a/b\\c:*?", "..", ".", "ünï 日本語 🙂", "\ud800", "x" * 200, "🙂" * 200, " ", "\n\0", "CON", "a", "A"]


def test_names_may_be_any_text(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as cache:
        for i, name in enumerate(NAMES):
            with cache.tagged(run=name, program=name[::-1]):
                cache.put("s", key(i), b"")
    with ExecutionCache(tmp_path) as cache:
        assert cache.runs() == dict.fromkeys(NAMES, 1)
        for i, name in enumerate(NAMES):
            assert used(cache, run=name, program=name[::-1]) == {("s", key(i))}
    for path in (tmp_path / "runs").iterdir():
        assert path.name.isascii() and path.suffix == ".keys" and len(path.name) < 80
    assert len(list((tmp_path / "runs").iterdir())) == len(NAMES)


@pytest.mark.parametrize("bad", ["", "x" * 201, 3, b"run", ["run"]])
def test_what_is_no_name_is_refused(cache: ExecutionCache, bad: Any) -> None:
    with pytest.raises(ArgumentError, match="run must be a text of 1 to 200 characters"), cache.tagged(run=bad):
        pass
    with pytest.raises(ArgumentError, match="program must be a text"), cache.tagged(run="r", program=bad):
        pass
    cache.put("s", key(1), b"")
    assert cache.runs() == {}


def test_the_bytes_are_those_of_the_documentation(tmp_path: Path) -> None:
    def name_id(name: str) -> bytes:
        return hashlib.sha256(name.encode()).digest()[:8]

    run, program = "a run", "p" * 50
    with ExecutionCache(tmp_path) as cache, cache.tagged(run=run):
        cache.put("stage", key(1), b"1")
        with cache.tagged(program=program):
            cache.put("stage", key(2), b"2")
    [path] = (tmp_path / "runs").iterdir()
    assert path.name == f"a_run-{name_id(run).hex()}.keys"
    data = path.read_bytes()
    rows = [data[i : i + ROW] for i in range(0, len(data), ROW)]
    assert all(int.from_bytes(row[:4], "little") == crc32c(row[4:]) for row in rows)
    plain = [(row[4], row[5], int.from_bytes(row[6:8], "little"), row[8:16], row[16:]) for row in rows]
    assert plain == [
        (1, 0, 0, b"PMRUNKEY", (1).to_bytes(40, "little")),
        (2, 0, 5, name_id(run), run.encode() + bytes(35)),
        (4, 0, 0, name_id("stage"), bytes(8) + bytes.fromhex(key(1))),
        (3, 0, 50, name_id(program), b"p" * 40),
        (3, 1, 50, name_id(program), b"p" * 10 + bytes(30)),
        (4, 0, 0, name_id("stage"), name_id(program) + bytes.fromhex(key(2))),
    ]


def test_each_use_is_noted_once(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as cache, cache.tagged(run="r", program="p"):
        for _ in range(3):
            cache.put("s", key(1), b"1")
            cache.get("s", key(1))
            cache.get_many("s", [key(1), key(1)])
        [path] = (tmp_path / "runs").iterdir()
    assert path.stat().st_size == 4 * ROW  # head, name of the run, name of the program, the note


def test_notes_of_puts_are_there_when_the_put_returns_and_those_of_hits_soon(tmp_path: Path) -> None:
    cache = ExecutionCache(tmp_path)
    cache.put_many("s", [key(i) for i in range(200)], [b""] * 200)
    other = ExecutionCache(tmp_path, read_only=True)
    with cache.tagged(run="r"):
        cache.put("s", key("new"), b"")
        assert other.runs() == {"r": 1}
        cache.get("s", key(0))
        assert other.runs() == {"r": 1}
        cache.flush()
        assert other.runs() == {"r": 2}
        for i in range(1, 100):
            cache.get("s", key(i))
        assert other.runs()["r"] > 50, "what waits is bounded"
    assert other.runs() == {"r": 101}
    with cache.tagged(run="r"):
        cache.get("s", key(150))
        cache.close()
    assert other.runs() == {"r": 102}


def test_a_killed_process_leaves_its_notes(tmp_path: Path, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    script = """
cache = ExecutionCache(sys.argv[1])
with cache.tagged(run="killed", program="p"):
    for i in range(1 << 30):
        cache.put("s", digest(i), b"%d" % i)
        os.write(1, b"%d\\n" % i)
"""
    child = spawn(script, tmp_path)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) == 200:
            break
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().split("\n")
    last = int(rest[-2]) if len(rest) > 1 else 200
    child.wait()
    with ExecutionCache(tmp_path) as cache:
        assert {("s", key(i)) for i in range(last + 1)} <= used(cache, run="killed", program="p")
        with cache.tagged(run="killed"):
            cache.put("s", key("after"), b"")
        assert ("s", key("after")) in used(cache, run="killed")
        assert cache.verify().clean


def test_processes_share_the_manifest_of_a_run(tmp_path: Path, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    script = """
cache = ExecutionCache(sys.argv[1])
with cache.tagged(run="r", program=sys.argv[2]):
    for i in range(150):
        cache.put("s", digest(sys.argv[2], i), b"")
cache.close()
"""
    children = [spawn(script, tmp_path, name) for name in ("a", "b", "c")]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
    with ExecutionCache(tmp_path) as cache:
        assert cache.runs() == {"r": 450}
        assert used(cache, program="b") == {("s", key("b", i)) for i in range(150)}
        assert cache.verify().damaged_notes == 0


def noted(path: Path) -> Path:
    """The manifest of a run that used 5 entries of a new cache."""
    with ExecutionCache(path) as cache, cache.tagged(run="r", program="p"):
        for i in range(5):
            cache.put("s", key(i), b"")
    [manifest] = (path / "runs").iterdir()
    return manifest


def test_a_torn_row_is_nothing_and_goes_with_the_next(tmp_path: Path) -> None:
    manifest = noted(tmp_path)
    whole = manifest.read_bytes()
    for cut in (1, 20, ROW - 1):
        manifest.write_bytes(whole[: len(whole) - ROW + cut])
        with ExecutionCache(tmp_path) as cache:
            assert used(cache, run="r") == {("s", key(i)) for i in range(4)}
            assert cache.verify().clean
            with cache.tagged(run="r"):
                cache.get("s", key(4))
            assert used(cache, run="r") == {("s", key(i)) for i in range(5)}
        assert manifest.read_bytes()[: len(whole) - ROW] == whole[:-ROW]
        assert manifest.stat().st_size == len(whole)


def test_a_flipped_byte_costs_one_note(tmp_path: Path) -> None:
    manifest = noted(tmp_path)
    whole = manifest.read_bytes()
    with ExecutionCache(tmp_path) as cache:
        for place in range(len(whole)):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << place % 8
            manifest.write_bytes(flipped)
            row = place // ROW
            [(run, count)] = cache.runs().items()
            assert run == (manifest.stem if row == 1 else "r"), "the name is lost with its row"
            assert count == (4 if row >= 3 else 5)
            assert len(used(cache, run=run, program="p")) == count
            report = cache.verify()
            assert (report.damaged_notes, report.clean) == (1, False)


def test_a_manifest_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    manifest = noted(tmp_path)
    row = bytearray(manifest.read_bytes()[:ROW])
    row[16] = 2
    row[:4] = crc32c(bytes(row[4:])).to_bytes(4, "little")
    manifest.write_bytes(row)
    with ExecutionCache(tmp_path) as cache, pytest.raises(CacheError, match=f"{manifest.name} has format 2"):
        cache.runs()


def test_a_reader_notes_in_memory_only(tmp_path: Path) -> None:
    manifest = noted(tmp_path)
    before = manifest.read_bytes()
    with ExecutionCache(tmp_path, read_only=True) as cache:
        with cache.tagged(run="mine"):
            cache.get("s", key(1))
            cache.put("s", key("new"), b"")
        assert cache.runs() == {"r": 5, "mine": 2}
        assert used(cache, run="mine") == {("s", key(1)), ("s", key("new"))}
    assert manifest.read_bytes() == before
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_notes_that_cannot_be_written_stay_in_memory_with_one_warning(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as cache:
        (tmp_path / "runs").write_text("in the way")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with cache.tagged(run="r"):
                for i in range(5):
                    cache.put("s", key(i), b"%d" % i)
        assert [w.category for w in caught] == [CacheWarning]
        assert "memory only" in str(caught[0].message)
        assert cache.runs() == {"r": 5}
        assert cache.get("s", key(3)) == b"3"
    (tmp_path / "runs").unlink()
    with ExecutionCache(tmp_path) as cache:
        assert cache.runs() == {}
        assert cache.get("s", key(3)) == b"3"


def test_a_full_disk_warns_once_for_values_and_notes(tmp_path: Path, run: Callable[..., str]) -> None:
    out = run(
        """
import resource
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cache = ExecutionCache(sys.argv[1])
    with cache.tagged(run="r"):
        cache.put("s", digest("before"), b"")
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        for i in range(100):
            cache.put("s", digest(i), b"%d" % i)
    print(cache.runs(), cache.get("s", digest(7)))
    cache.close()
print([w.category.__name__ for w in caught])
""",
        tmp_path,
    )
    assert out == "{'r': 101} b'7'\n['CacheWarning']\n"


def test_a_forked_child_adds_nothing(tmp_path: Path, run: Callable[..., str]) -> None:
    run(
        """
cache = ExecutionCache(sys.argv[1])
with cache.tagged(run="r"):
    cache.put("s", digest(1), b"")
    cache.put("s", digest(2), b"")
    cache.get("s", digest(1))
    child = os.fork()
    if child == 0:
        for call in (lambda: cache.put("s", digest(3), b""), lambda: cache.get("s", digest(1)), cache.close):
            try:
                call()
            except CacheError:
                pass
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
cache.close()
""",
        tmp_path,
    )
    with ExecutionCache(tmp_path) as cache:
        assert cache.runs() == {"r": 2}
    [manifest] = (tmp_path / "runs").iterdir()
    assert manifest.stat().st_size == 4 * ROW


def test_clearing_forgets_the_runs(cache: ExecutionCache) -> None:
    with cache.tagged(run="r"):
        cache.put("s", key(1), b"")
        cache.clear()
        assert cache.runs() == {}
        cache.put("s", key(1), b"")
        assert cache.runs() == {"r": 1}
    if cache.directory is not None:
        assert len(os.listdir(cache.directory / "runs")) == 1
