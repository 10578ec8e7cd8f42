"""The file of a VectorIndex: its bytes, its damage, kills and full disks while it is saved."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core import VectorIndex
from prismem_core._native import crc32c
from prismem_core.errors import ArgumentError, VectorIndexError
from prismem_core.ops.inputs import unit_rows
from tests.index.conftest import DTYPES, METRICS, kept

VALUES = unit_rows(np.random.default_rng(5), 40, 9)
IDS = np.random.default_rng(6).permutation(np.arange(-20, 20)) * 10**17
QUERIES = unit_rows(np.random.default_rng(7), 4, 9)
PAGE = 4096
HEAD = struct.Struct("<8sIIIIqqqq8x")
SECTION = struct.Struct("<IIqq8x")


def filled(**options: Any) -> VectorIndex:
    index = VectorIndex(9, **options)
    index.add(VALUES, IDS)
    return index


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    filled().save(tmp_path / "index")
    return tmp_path / "index"


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % PAGE)


def image(
    values: bytes,
    ids: bytes,
    *,
    magic: bytes = b"PMVECIDX",
    version: int = 1,
    kind: int = 0,
    metric: int = 0,
    dim: int = 9,
    count: int = 40,
    next_id: int = 0,
    more: tuple[tuple[int, bytes], ...] = (),
    change: Callable[[list[list[int]]], object] = lambda table: None,
    size: int | None = None,
    listed: int | None = None,
) -> bytes:
    """A file written from docs/formats.md alone; `change` bends the table of sections."""
    parts = [(1, values), (2, ids), *more]
    table, body = [], b""
    for number, data in parts:
        table.append([number, crc32c(padded(data)), PAGE + len(body), len(data)])
        body += padded(data)
    change(table)
    total = PAGE + len(body) if size is None else size
    head = HEAD.pack(magic, version, kind, metric, listed or len(table), dim, count, next_id, total)
    head += b"".join(SECTION.pack(*entry) for entry in table)
    head = head.ljust(PAGE - 4, b"\0")
    return head + struct.pack("<I", crc32c(head)) + body


ROWS = VALUES.tobytes()
NUMBERS = IDS.astype("<i8").tobytes()


def same(one: VectorIndex, other: VectorIndex) -> None:
    assert (one.dim, one.dtype, one.metric, len(one)) == (other.dim, other.dtype, other.metric, len(other))
    assert one.ids.tolist() == other.ids.tolist()
    np.testing.assert_array_equal(one.get(one.ids), other.get(other.ids))
    queries = unit_rows(np.random.default_rng(0), 3, one.dim)
    for left, right in zip(one.search(queries, 7), other.search(queries, 7), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("gone", [0, 7, 40])
def test_what_is_saved_comes_back(tmp_path: Path, dtype: str, metric: str, gone: int) -> None:
    index = filled(dtype=dtype, metric=metric)
    index.remove(IDS[:gone])
    path = tmp_path / "index"
    index.save(path)
    loaded, opened, checked = VectorIndex.load(path), VectorIndex.open(path), VectorIndex.open(path, verify=True)
    for other in (loaded, opened, checked):
        same(index, other)
    assert (loaded.read_only, opened.read_only) == (False, True)
    for other in (index, loaded):
        assert other.add(VALUES[:1]).tolist() == [int(IDS.max()) + 1], "automatic ids go on"
    loaded.save(path)
    same(VectorIndex.open(path), index)
    assert len(opened) == 40 - gone, "a mapped index keeps the file it was opened from"
    opened.save(path)
    same(VectorIndex.load(path), checked)
    assert os.listdir(tmp_path) == ["index"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bytes_are_those_of_the_document(tmp_path: Path, dtype: str) -> None:
    index = filled(dtype=dtype, metric="cosine")
    index.save(tmp_path / "index")
    expected = image(
        kept(VALUES, dtype).tobytes(), NUMBERS, kind=DTYPES.index(dtype), metric=1, next_id=int(IDS.max()) + 1
    )
    assert (tmp_path / "index").read_bytes() == expected
    index.remove(IDS[[0, 1, 20, 39]])
    index.save(tmp_path / "index")
    left = np.setdiff1d(np.arange(40), [0, 1, 20, 39])
    expected = image(
        kept(VALUES[left], dtype).tobytes(),
        IDS[left].astype("<i8").tobytes(),
        kind=DTYPES.index(dtype),
        metric=1,
        count=36,
        next_id=int(IDS.max()) + 1,
    )
    assert (tmp_path / "index").read_bytes() == expected


def test_sections_of_kinds_to_come_are_stepped_over(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(image(ROWS, NUMBERS, more=((77, b"later"),)))
    for index in (VectorIndex.load(tmp_path / "index"), VectorIndex.open(tmp_path / "index", verify=True)):
        same(index, filled())


# Damage.


def test_a_flipped_bit_anywhere_is_found(saved: Path) -> None:
    """Bytes of the whole file (header, sections, their filling), each with a different bit flipped."""
    data = saved.read_bytes()
    assert len(data) == 3 * PAGE
    for place in (*range(136), *range(136, len(data), 37), PAGE - 4, PAGE - 1, PAGE, 2 * PAGE, len(data) - 1):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        saved.write_bytes(flipped)
        words = "is not a vector index" if place < 8 else "is damaged: .*checksum"
        for read in (VectorIndex.load, lambda path: VectorIndex.open(path, verify=True)):
            with pytest.raises(VectorIndexError, match=words):
                read(saved)
        if place < PAGE:
            with pytest.raises(VectorIndexError, match=words):
                VectorIndex.open(saved)
        else:
            assert len(VectorIndex.open(saved)) == 40, "rows are not read unless asked for"


def test_a_file_cut_anywhere_is_refused(saved: Path) -> None:
    data = saved.read_bytes()
    for size in (0, 1, 7, 8, 100, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, len(data) - 1):
        saved.write_bytes(data[:size])
        words = "is not a vector index" if size < 8 else "ends within its header|should have 12288 bytes"
        for read in (VectorIndex.load, VectorIndex.open):
            with pytest.raises(VectorIndexError, match=words):
                read(saved)
    saved.write_bytes(data + b"\0")
    with pytest.raises(VectorIndexError, match="should have 12288 bytes and has 12289"):
        VectorIndex.open(saved)


def bend(row: int, column: int, value: int) -> Callable[[list[list[int]]], object]:
    return lambda table: table[row].__setitem__(column, value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 2}, "has format 2 and this version of prismem-core reads format 1"),
        ({"kind": 3}, "is damaged: it names an unknown kind of rows"),
        ({"metric": 2}, "is damaged: it names an unknown metric"),
        ({"dim": 0}, "is damaged: it claims rows of 0 dimensions"),
        ({"dim": -9}, "is damaged: it claims rows of -9 dimensions"),
        ({"dim": 2**62}, "is damaged: it claims rows of 4611686018427387904 dimensions"),
        ({"dim": 10}, "is damaged: its rows do not have the size"),
        ({"kind": 1}, "is damaged: its rows do not have the size"),
        ({"count": 41}, "is damaged: its rows do not have the size"),
        ({"count": -1}, "is damaged: it claims -1 rows"),
        ({"count": 2**62}, "is damaged: it claims 4611686018427387904 rows"),
        ({"count": 2**61 // 9}, "is damaged: it claims"),
        ({"size": 2**60}, "is damaged: it should have 1152921504606846976 bytes"),
        ({"listed": 126}, "is damaged: it lists too many sections"),
        ({"listed": 125}, "is damaged: a section lies outside"),
        ({"change": lambda table: table.clear()}, "is damaged: a section is missing"),
        ({"change": lambda table: table.pop()}, "is damaged: a section is missing"),
        ({"change": bend(0, 2, 0)}, "is damaged: a section lies outside"),
        ({"change": bend(0, 2, PAGE + 8)}, "is damaged: a section lies outside"),
        ({"change": bend(1, 2, 2**62)}, "is damaged: a section lies outside"),
        ({"change": bend(1, 2, -PAGE)}, "is damaged: a section lies outside"),
        ({"change": bend(1, 2, 3 * PAGE)}, "is damaged: a section lies outside"),
        ({"change": bend(1, 3, 2**63 - 1)}, "is damaged: a section lies outside"),
        ({"change": bend(1, 3, -1)}, "is damaged: a section lies outside"),
        ({"change": bend(1, 3, 312)}, "is damaged: its ids do not have the size"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """Checksums of these are right: only sense can tell."""
    (tmp_path / "index").write_bytes(image(ROWS, NUMBERS, **options))
    for read in (VectorIndex.load, VectorIndex.open):
        with pytest.raises(VectorIndexError, match=message):
            read(tmp_path / "index")


def test_an_id_that_stands_twice_is_refused(tmp_path: Path) -> None:
    twice = IDS.copy()
    twice[30] = twice[3]
    (tmp_path / "index").write_bytes(image(ROWS, twice.tobytes()))
    with pytest.raises(VectorIndexError, match=f"is damaged: id {twice[3]} stands in it twice"):
        VectorIndex.load(tmp_path / "index")
    opened = VectorIndex.open(tmp_path / "index", verify=True)
    for look in (lambda: opened.get([0]), lambda: 5 in opened, lambda: opened.search(QUERIES, 1, filter=[3])):
        with pytest.raises(VectorIndexError, match="stands in it twice"):
            look()


def test_rows_that_are_no_numbers_are_not_ranked(tmp_path: Path) -> None:
    """A mapped file whose checksums nobody looked at."""
    broken = VALUES.copy()
    broken[11, 3] = np.nan
    (tmp_path / "index").write_bytes(image(broken.tobytes(), NUMBERS, change=bend(0, 1, 0)))
    with pytest.raises(VectorIndexError, match=f"the row with id {IDS[11]} holds NaN or infinity"):
        VectorIndex.open(tmp_path / "index").search(QUERIES, 3)


@pytest.mark.parametrize("read", [VectorIndex.load, VectorIndex.open])
def test_places_that_are_no_index(tmp_path: Path, read: Callable[[Path], VectorIndex]) -> None:
    (tmp_path / "thesis").write_bytes(os.urandom(20_000))
    os.mkfifo(tmp_path / "pipe")
    for name in ("thesis", "pipe", ""):
        with pytest.raises(VectorIndexError, match="is not a vector index"):
            read(tmp_path / name)
    for name in ("absent", "thesis/below"):
        with pytest.raises(VectorIndexError, match=r"cannot be opened: cannot open it: (No such|Not a)"):
            read(tmp_path / name)
    for path in ("", "a\0b", 5, None):
        with pytest.raises(ArgumentError, match="path: expected the path of a file"):
            read(path)  # type: ignore[arg-type]


def test_a_name_of_any_bytes(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff index")
    filled().save(path)
    same(VectorIndex.load(path), filled())
    with pytest.raises(VectorIndexError, match="cannot be opened"):
        VectorIndex.load(path + "2")


def test_a_mapped_index_refuses_changes(saved: Path) -> None:
    opened = VectorIndex.open(saved)
    first = int(IDS[0])
    changes: tuple[Callable[[], object], ...] = (
        lambda: opened.add(VALUES),
        lambda: opened.update([first], VALUES[:1]),
        lambda: opened.remove([first]),
        lambda: opened.reserve(10),
    )
    for change in changes:
        with pytest.raises(VectorIndexError, match=r"open for reading only.*VectorIndex.load\(\) makes a copy"):
            change()
    same(opened, filled())
    assert "read-only" in repr(opened)
    assert opened.stats().row_bytes == 0


# Saving.


def test_saving_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "index"
    (tmp_path / "index.new").write_bytes(b"left by a kill")
    for _ in range(3):
        filled().save(path)
    assert os.listdir(tmp_path) == ["index"]
    os.umask(mask := os.umask(0))
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    same(VectorIndex.load(path), filled())


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    for name in ("absent/index", "file/index", "folder"):
        with pytest.raises(VectorIndexError, match=r"cannot be saved as .*what was there before is as it was"):
            filled().save(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert os.listdir(tmp_path / "folder") == []


def test_two_savers_of_one_file_are_kept_apart(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "index.new").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(VectorIndexError, match="being saved there by another thread or process"):
            filled().save(tmp_path / "index")
    filled().save(tmp_path / "index")
    assert os.listdir(tmp_path) == ["index"]


SAVER = """
import sys
import numpy as np
from prismem_core import VectorIndex
index = VectorIndex(64)
index.add(np.full((20_000, 64), float(sys.argv[2]), np.float32))
print("ready", flush=True)
for _ in range(1000):
    index.save(sys.argv[1])
"""


def test_a_kill_at_any_moment_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "index"
    rng = np.random.default_rng(9)
    held = 0.0
    for version in range(1, 9):
        with subprocess.Popen([sys.executable, "-c", SAVER, str(path), str(version)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0, 0.03))
            child.send_signal(signal.SIGKILL)
        if path.exists():
            index = VectorIndex.load(path)
            assert len(index) == 20_000
            (value,) = np.unique(index.get(index.ids)).tolist()
            assert value in (held, float(version))
            held = value
    assert held > 0
    filled().save(path)
    assert os.listdir(tmp_path) == ["index"]


FULL = """
import os, sys
import numpy as np
from prismem_core import VectorIndex
from prismem_core.errors import VectorIndexError
index = VectorIndex(64)
index.add(np.ones((100, 64), np.float32))
index.save(sys.argv[1])
before = open(sys.argv[1], "rb").read()
index.add(np.ones((20_000, 64), np.float32))
if len(sys.argv) > 2:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    index.save(sys.argv[1])
except VectorIndexError as error:
    print(error)
assert open(sys.argv[1], "rb").read() == before
assert os.listdir(os.path.dirname(sys.argv[1])) == ["index"]
assert index.add(np.ones((1, 64), np.float32)).tolist() == [20_100]
"""


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, run_script: Callable[..., str]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        assert "No space left on device" in run_script(FULL, disk / "index")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_file_size_limit_is_a_full_disk(tmp_path: Path, run_script: Callable[..., str]) -> None:
    assert "File too large" in run_script(FULL, tmp_path / "index", "limited")


@pytest.fixture
def locked_away() -> Iterator[Path]:
    """A folder that nobody may write to, with an index in it, and one that nobody may read."""
    root = Path(tempfile.mkdtemp(prefix="prismem-index-test-"))
    filled().save(root / "index")
    shutil.copy(root / "index", root / "secret")
    (root / "index").chmod(0o444)
    (root / "secret").chmod(0)
    root.chmod(0o555)
    yield root
    root.chmod(0o755)
    shutil.rmtree(root)


def test_a_read_only_folder_is_read_and_refuses_saving(locked_away: Path, run_script: Callable[..., str]) -> None:
    script = """
import os, sys
import prismem_core.index
from prismem_core import VectorIndex
from prismem_core.errors import VectorIndexError
if os.geteuid() == 0:  # whom no mode of a folder binds
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
index = VectorIndex.open(sys.argv[1] + "/index")
for attempt in (lambda: index.save(sys.argv[1] + "/index"), lambda: VectorIndex.load(sys.argv[1] + "/secret")):
    try:
        attempt()
    except VectorIndexError as error:
        assert "Permission denied" in str(error), error
        print("refused")
"""
    assert run_script(script, locked_away).split() == ["refused", "refused"]
    assert sorted(os.listdir(locked_away)) == ["index", "secret"]


# Sizes beyond 32 bits.


def test_offsets_beyond_32_bits(tmp_path: Path) -> None:
    """2^33 numbers, 32 GiB, as a sparse file of which only a few rows are read."""
    path, dim, count = tmp_path / "index", 1 << 20, 1 << 13
    ids = np.arange(count, dtype="<i8") + 10**12
    row_bytes, id_bytes = 4 * dim * count, padded(ids.tobytes())
    total = PAGE + row_bytes + len(id_bytes)
    head = HEAD.pack(b"PMVECIDX", 1, 0, 0, 2, dim, count, 10**13, total)
    head += SECTION.pack(1, 0, PAGE, row_bytes) + SECTION.pack(2, crc32c(id_bytes), PAGE + row_bytes, 8 * count)
    head = head.ljust(PAGE - 4, b"\0")
    marked = {4097: 1.0, 6000: 3.0, count - 1: 2.0}
    with path.open("wb") as file:
        file.write(head + struct.pack("<I", crc32c(head)))
        for row, value in marked.items():
            file.seek(PAGE + 4 * dim * row + 4 * (dim - 1))
            file.write(struct.pack("<f", value))
        file.seek(PAGE + row_bytes)
        file.write(id_bytes)
    index = VectorIndex.open(path)
    assert len(index) == count
    query = np.zeros((1, dim), np.float32)
    query[0, -1] = 2.0
    allowed = ids[[0, 1, *marked]]
    found = index.search(query, 9, filter=allowed)
    assert found.ids.tolist() == [ids[[6000, count - 1, 4097, 0, 1]].tolist()]
    assert found.scores.tolist() == [[6.0, 4.0, 2.0, 0.0, 0.0]]
    assert index.get([ids[-1]])[0, -1] == 2.0
    mask = np.zeros(count, np.bool_)
    mask[list(marked)] = True
    assert index.search(query, 2, filter=mask).ids.tolist() == [ids[[6000, count - 1]].tolist()]
