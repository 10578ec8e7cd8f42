"""Several processes: writers that are killed, readers beside a writer, and disks that cannot be written."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prismem_core.cache import CacheWarning, ExecutionCache

from .conftest import HEAD, key

Spawn = Callable[..., subprocess.Popen[str]]
Run = Callable[..., str]

# Puts numbered values without end and prints each number once its put has returned.
WRITER = """
def value(i):
    return (b"%d " % i) * (1 + i * 7919 % (60_000 if i % 10 == 0 else 300))
cache = ExecutionCache(sys.argv[1], segment_bytes=1 << 20)
i = int(sys.argv[2])
while True:
    cache.put(f"stage{i % 3}", digest(i), value(i))
    os.write(1, b"%d\\n" % i)
    i += 1
"""


def value(i: int) -> bytes:
    return (b"%d " % i) * (1 + i * 7919 % (60_000 if i % 10 == 0 else 300))


def test_a_killed_writer_loses_nothing_it_acknowledged_and_leaves_no_lock(tmp_path: Path, spawn: Spawn) -> None:
    rng = random.Random(11)
    path = tmp_path / "cache"
    done = 0
    for round_number in range(12):
        child = spawn(WRITER, path, done)
        assert child.stdout is not None
        child.stdout.readline()  # it is at work
        time.sleep(rng.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        numbers = child.stdout.read().split("\n")
        # The last line may be cut by the kill; what was printed whole was acknowledged.
        done = int(numbers[-2]) + 1 if len(numbers) > 1 else done + 1
        child.wait()
        with ExecutionCache(path) as cache:  # no lock is left
            first = 0 if round_number == 11 else max(0, done - 500)
            for i in range(first, done):
                assert cache.get(f"stage{i % 3}", key(i)) == value(i)
            assert cache.get(f"stage{done % 3}", key(done)) in (None, value(done))
            assert cache.damaged == 0
    assert done > 100
    assert not list(path.glob("*.new"))


# Puts the numbers of an arithmetic series, waiting for a line of input before the first.
SHARES = """
cache = ExecutionCache(sys.argv[1], segment_bytes=1 << 16)
first, step = int(sys.argv[2]), int(sys.argv[3])
print("open", flush=True)
sys.stdin.readline()
for i in range(first, 600, step):
    cache.put(f"stage{i % 3}", digest(i), value(i))
    for j in range(max(0, i - 5), i):  # of the other process, if it is as far
        assert cache.get(f"stage{j % 3}", digest(j)) in (None, value(j))
cache.close()
"""


def test_writers_of_two_processes_take_turns(tmp_path: Path, spawn: Spawn) -> None:
    script = WRITER.split("cache =")[0] + SHARES
    children = [spawn(script, tmp_path / "cache", first, 2) for first in range(2)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
    with ExecutionCache(tmp_path / "cache") as cache:
        assert [cache.get(f"stage{i % 3}", key(i)) for i in range(600)] == [value(i) for i in range(600)]
        assert cache.damaged == 0
        report = cache.verify()
        assert (report.entries, report.clean) == (600, True)
        assert cache.stats().entries == 600


def test_two_caches_of_one_process_share_a_directory(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as one, ExecutionCache(tmp_path) as other:
        for i in range(50):
            (one if i % 2 else other).put("s", key(i), value(i))
            assert (other if i % 2 else one).get("s", key(i)) == value(i)
        one.put("s", key(0), b"newer")
        assert other.get("s", key(0)) == b"newer"
        assert one.remove("s", [key(1)]) == 1
        assert other.get("s", key(1)) is None


def test_what_one_process_computes_the_others_wait_for(tmp_path: Path, spawn: Spawn) -> None:
    script = """
cache = ExecutionCache(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
def compute():
    os.write(1, b"computed\\n")
    time.sleep(0.5)
    return b"value"
assert cache.get_or_compute("s", digest(1), compute) == b"value"
counted = cache.counters()["s"]
assert counted.hits + counted.misses + counted.waits == 1
print(counted.misses, counted.waits)
"""
    children = [spawn(script, tmp_path / "cache") for _ in range(3)]
    for child in children:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "open\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    said = []
    for child in children:
        out, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
        said += out.splitlines()
    assert sorted(said) == ["0 1", "0 1", "1 0", "computed"]


def test_a_lease_ends_with_its_process(tmp_path: Path, spawn: Spawn) -> None:
    child = spawn(
        """
cache = ExecutionCache(sys.argv[1])
with cache.lease("s", [digest(1), digest(2)]):
    print("held", flush=True)
    time.sleep(60)
""",
        tmp_path,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    with ExecutionCache(tmp_path) as cache:
        threading.Timer(0.3, child.kill).start()
        with cache.lease("s", [key(2), key(3)]) as lease:
            assert (lease.held, lease.waited) == ([0, 1], True)
            assert child.wait(timeout=20) == -signal.SIGKILL


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_parent(tmp_path: Path, spawn: Spawn) -> None:
    child = spawn(
        """
cache = ExecutionCache(sys.argv[1])
with cache.lease("s", [digest(2)]):
    cache.put("s", digest(1), b"1")
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(60)
""",
        tmp_path,
    )
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    try:
        child.kill()
        child.wait()
        os.kill(grandchild, 0)  # still alive
        with ExecutionCache(tmp_path) as cache:
            assert cache.get("s", key(1)) == b"1"
            cache.put("s", key(1), b"2")
            with cache.lease("s", [key(2)]) as lease:
                assert lease.held == [0]
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_started_program_does_not_inherit_the_lock(tmp_path: Path) -> None:
    cache = ExecutionCache(tmp_path)
    sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        cache.close()
        ExecutionCache(tmp_path).close()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_readers_see_what_the_writer_adds_while_it_works(tmp_path: Path, spawn: Spawn) -> None:
    with ExecutionCache(tmp_path):
        pass
    with ExecutionCache(tmp_path, read_only=True) as reader:
        child = spawn(WRITER, tmp_path, 0)
        assert child.stdout is not None
        for line in child.stdout:
            i = int(line)
            assert reader.get(f"stage{i % 3}", key(i)) == value(i)
            if i == 400:
                break
        child.kill()
        assert reader.damaged == 0
        assert len(list(tmp_path.glob("segment-*.log"))) > 1, "the reader followed into new segments"


def test_a_reader_keeps_its_own_values_in_memory_and_writes_nothing(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path) as writer:
        writer.put("s", key(1), b"1")
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
        with ExecutionCache(tmp_path, read_only=True) as reader:
            reader.put("s", key(2), b"2")
            reader.put("s", key(1), b"its own")
            assert reader.get_or_compute("s", key(3), lambda: b"3") == b"3"
            assert [reader.get("s", key(i)) for i in (1, 2, 3)] == [b"its own", b"2", b"3"]
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
        assert [writer.get("s", key(i)) for i in (1, 2, 3)] == [b"1", None, None]


# Puts 200 values of 10,000 bytes, prints the warnings, what memory still has, and which the next process finds.
FILLS_A_DISK = """
path = sys.argv[1]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cache = ExecutionCache(path)
    for i in range(200):
        cache.put("s", digest(i), b"%03d" % i * 3333)
    assert all(cache.get("s", digest(i)) == b"%03d" % i * 3333 for i in range(200))
    assert cache.get_or_compute("s", digest("more"), lambda: b"more") == b"more"
    cache.close()
told = [w for w in caught if w.category is CacheWarning]
assert len(told) == len(caught) == 1, [str(w.message) for w in caught]
print(told[0].message)
again = ExecutionCache(path, read_only=True)
kept = [i for i in range(200) if again.get("s", digest(i)) == b"%03d" % i * 3333]
assert kept == list(range(len(kept)))
assert again.damaged == 0
print(len(kept))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a small file system")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_leaves_memory_at_work_with_one_warning(small_disk: Path, run: Run) -> None:
    warning, kept = run(FILLS_A_DISK, small_disk / "cache").splitlines()
    assert "No space left on device" in warning and str(small_disk) in warning and "memory only" in warning
    assert 50 < int(kept) < 110
    [segment] = (small_disk / "cache").glob("segment-*")
    assert len(read_segment_sizes(segment)) == int(kept), "nothing half-written stays"


def test_a_disk_full_from_the_start_leaves_memory_at_work(small_disk: Path, run: Run) -> None:
    with pytest.raises(OSError, match="No space left"), (small_disk / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    until_reopening = FILLS_A_DISK.split("again =")[0]
    assert "No space left on device" in run(until_reopening, small_disk / "cache")


def test_a_file_size_limit_is_a_full_disk(tmp_path: Path, run: Run) -> None:
    script = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n" + FILLS_A_DISK
    warning, kept = run(script, tmp_path / "cache").splitlines()
    assert "File too large" in warning and "memory only" in warning
    assert int(kept) == 49
    [segment] = (tmp_path / "cache").glob("segment-*")
    assert len(read_segment_sizes(segment)) == 49, "nothing half-written stays"


def read_segment_sizes(path: Path) -> list[int]:
    """The sizes of the records, by their headers alone; they must fill the file to its end."""
    data = path.read_bytes()
    sizes, offset = [], 64
    while offset < len(data):
        _, kind, stage_size, high, low, *_ = HEAD.unpack_from(data, offset)
        assert kind == 1
        sizes.append(-(-(HEAD.size + stage_size) // 8) * 8 + -(-(high << 32 | low) // 8) * 8)
        offset += sizes[-1]
    assert offset == len(data)
    return sizes


# Without the rights of root, which no mode of a directory binds.
AS_NOBODY = """
import prismem_core._native
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""


@pytest.fixture
def locked_away() -> Iterator[Path]:
    """A cache with one value in a directory that nobody may write to."""
    root = Path(tempfile.mkdtemp(prefix="prismem-cache-test-"))
    with ExecutionCache(root / "cache") as cache:
        cache.put("s", key(1), b"stored")
    shutil.copytree(root / "cache", root / "secret")
    (root / "empty").mkdir()
    for path in (root / "secret").iterdir():
        path.chmod(0)
    for path in (root / "cache", root / "empty", root / "secret", root):
        path.chmod(0o555)
    for path in (root / "cache").iterdir():
        path.chmod(0o444)
    yield root
    for path in (root, root / "cache", root / "empty", root / "secret"):
        path.chmod(0o755)
    shutil.rmtree(root)


def test_a_read_only_directory_is_read_with_one_warning(locked_away: Path, run: Run) -> None:
    out = run(
        AS_NOBODY
        + """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cache = ExecutionCache(sys.argv[1])
    cache.put("s", digest(2), b"2")
    print(cache.get("s", digest(1)), cache.get("s", digest(2)), cache.get_or_compute("s", digest(3), lambda: b"3"))
    cache.flush()
    cache.close()
print([(w.category.__name__, "Permission denied" in str(w.message)) for w in caught])
with warnings.catch_warnings():
    warnings.simplefilter("error")
    print(ExecutionCache(sys.argv[1], read_only=True).get("s", digest(1)))
""",
        locked_away / "cache",
    )
    assert out == "b'stored' b'2' b'3'\n[('CacheWarning', True)]\nb'stored'\n"


@pytest.mark.parametrize("name", ["empty", "absent", "secret"])
def test_a_place_that_cannot_be_written_leaves_a_cache_in_memory(locked_away: Path, run: Run, name: str) -> None:
    out = run(
        AS_NOBODY
        + """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cache = ExecutionCache(sys.argv[1])
    cache.put("s", digest(1), b"1")
    print(cache.get("s", digest(1)), cache.get("s", digest(2)), cache.damaged)
    cache.close()
print([w.category.__name__ for w in caught])
""",
        locked_away / name,
    )
    assert out == "b'1' None 0\n['CacheWarning']\n"


def test_the_warning_comes_from_the_callers_line(tmp_path: Path, run: Run) -> None:
    out = run(
        """
import resource
cache = ExecutionCache(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
warnings.simplefilter("error")
try:
    cache.put("s", digest(1), b"1")
except CacheWarning as warning:
    print("raised")
cache.put("s", digest(2), b"2")
print(cache.get("s", digest(1)), cache.get("s", digest(2)))
""",
        tmp_path,
    )
    assert out == "raised\nb'1' b'2'\n"
    assert issubclass(CacheWarning, UserWarning)
