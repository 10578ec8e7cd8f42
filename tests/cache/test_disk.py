"""The disk tier: what is written, what opening makes of it, and what damage costs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from prismem_core import _native
from prismem_core.cache import ExecutionCache
from prismem_core.errors import CacheError

from .conftest import HEAD, Record, crc32c, key, read_segment

SEGMENT = "segment-00000001.log"
FILES = ["flights", "index", "lock", "prismem-cache", SEGMENT, "sessions"]


def without_index(path: Path) -> None:
    """What a new session then finds comes from the segments alone."""
    (path / "index").unlink()


def fill(path: Path, values: list[bytes], **settings: int) -> None:
    with ExecutionCache(path, **settings) as cache:
        for i, value in enumerate(values):
            cache.put(f"stage{i % 3}", key(i), value)


def found(path: Path, count: int, *, read_only: bool = False) -> tuple[list[bytes | None], int]:
    """What a new cache on `path` returns for the entries of `fill`, and the damage it has counted."""
    with ExecutionCache(path, read_only=read_only) as cache:
        return [cache.get(f"stage{i % 3}", key(i)) for i in range(count)], cache.damaged


VALUES = [b"", b"1", b"two" * 9, bytes(range(200)), b"five" * 300, b"last"]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    fill(tmp_path / "cache", VALUES)
    return tmp_path / "cache"


def test_everything_is_there_after_reopening(filled: Path) -> None:
    for _ in range(3):
        assert found(filled, 7) == ([*VALUES, None], 0)
        assert found(filled, 7, read_only=True) == ([*VALUES, None], 0)
    assert sorted(os.listdir(filled)) == FILES


def test_the_bytes_are_those_of_the_documentation(filled: Path) -> None:
    with ExecutionCache(filled) as cache:
        cache.put("stage0", key("dear"), b"dear", cost=2.5)
        cache.remove("stage1", [key(1)])
    *records, dear, gone = read_segment(filled / SEGMENT)
    assert [(r.stage, r.key, r.value) for r in records] == [(f"stage{i % 3}", key(i), v) for i, v in enumerate(VALUES)]
    assert {(r.kind, r.cost) for r in records} == {(1, 0.0)}
    assert (dear.kind, dear.cost, dear.value) == (1, 2.5, b"dear")
    assert (gone.kind, gone.stage, gone.key, gone.value) == (3, "stage1", key(1), b"")
    assert abs(dear.stored_at - time.time()) < 60
    line = b"prismem-core execution cache, format 2\n"
    assert (filled / "prismem-cache").read_bytes() == line + b"crc32c %08x\n" % crc32c(line)


@pytest.mark.parametrize("portable", [True, False])
def test_the_checksum_is_crc32c_in_both_forms(portable: bool) -> None:
    assert crc32c(b"123456789") == _native.crc32c(b"123456789", portable=portable) == 0xE3069283
    data = bytes(i * 37 % 256 for i in range(200))
    for size in (*range(70), 127, 128, 129, 191):
        for start in (0, 1, 5):
            part = data[start : start + size]
            assert _native.crc32c(part, size, portable) == crc32c(part, size)
            cut = size // 3
            assert _native.crc32c(part[cut:], _native.crc32c(part[:cut]), portable) == crc32c(part)


def test_a_new_session_appends_to_the_last_segment(filled: Path) -> None:
    before = (filled / SEGMENT).read_bytes()
    with ExecutionCache(filled) as cache:
        cache.put("stage0", key("more"), b"more")
    after = (filled / SEGMENT).read_bytes()
    assert after.startswith(before)
    assert read_segment(filled / SEGMENT)[-1].value == b"more"


def test_a_value_put_again_takes_no_room(filled: Path) -> None:
    size = (filled / SEGMENT).stat().st_size
    with ExecutionCache(filled) as cache:
        for i, value in enumerate(VALUES):
            cache.put(f"stage{i % 3}", key(i), value)
    assert (filled / SEGMENT).stat().st_size == size


def test_the_newest_value_counts_after_reopening(filled: Path) -> None:
    with ExecutionCache(filled) as cache:
        cache.put("stage1", key(1), b"2")  # of the same length
        cache.put("stage2", key(2), b"shorter")
    assert found(filled, 3)[0] == [b"", b"2", b"shorter"]


def test_full_segments_are_followed_by_new_ones(tmp_path: Path) -> None:
    values = [os.urandom(600) for _ in range(40)]
    values[20] = os.urandom(9000)  # larger than a segment
    fill(tmp_path, values, segment_bytes=4096)
    segments = sorted(tmp_path.glob("segment-*.log"))
    assert [s.name for s in segments] == [f"segment-{n:08d}.log" for n in range(1, len(segments) + 1)]
    sizes = [s.stat().st_size for s in segments]
    assert len(sizes) > 4
    assert len([size for size in sizes if size > 4096]) == 1
    assert [r.value for s in segments for r in read_segment(s)] == values
    assert found(tmp_path, 40) == (values, 0)


# Damage.


@pytest.mark.parametrize("index", [True, False])
def test_a_record_cut_anywhere_costs_only_itself(filled: Path, tmp_path: Path, index: bool) -> None:
    data = (filled / SEGMENT).read_bytes()
    last = read_segment(filled / SEGMENT)[-1]
    if not index:
        without_index(filled)
    for cut in range(1, last.size):
        path = tmp_path / "cut"
        shutil.copytree(filled, path)
        (path / SEGMENT).write_bytes(data[: last.offset + cut])
        assert found(path, 6, read_only=True)[0] == [*VALUES[:-1], None]
        assert (path / SEGMENT).stat().st_size == last.offset + cut, "a reader must not cut"
        with ExecutionCache(path) as cache:
            assert (path / SEGMENT).stat().st_size == last.offset
            assert cache.get("stage2", key(5)) is None
            cache.put("stage2", key(5), b"again")
        assert found(path, 6) == ([*VALUES[:-1], b"again"], 0)
        shutil.rmtree(path)


def covers(record: Record, place: int) -> bool:
    return record.offset <= place < record.offset + record.size


def test_a_flipped_byte_anywhere_costs_exactly_its_record(tmp_path: Path) -> None:
    """Every byte of a segment (headers, lengths, keys, stages, values, filling), each with a different bit flipped."""
    values = [b"first", b"", b"third" * 5, b"4" * 16, b"end"]
    path = tmp_path / "cache"
    fill(path, values)
    data = (path / SEGMENT).read_bytes()
    index = (path / "index").read_bytes()
    records = read_segment(path / SEGMENT)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        lost = [covers(record, place) for record in records]
        expected = [None if gone else value for gone, value in zip(lost, values, strict=True)]
        for read_only in (True, False):
            (path / SEGMENT).write_bytes(flipped)
            (path / "index").write_bytes(index)
            assert found(path, 5, read_only=read_only) == (expected, sum(lost)), f"byte {place}"


def test_a_flipped_byte_costs_no_more_when_the_index_is_lost(tmp_path: Path) -> None:
    values = [b"first", b"", b"third" * 5, b"4" * 16, b"end"]
    path = tmp_path / "cache"
    fill(path, values)
    data = (path / SEGMENT).read_bytes()
    records = read_segment(path / SEGMENT)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        lost = [covers(record, place) for record in records]
        expected = [None if gone else value for gone, value in zip(lost, values, strict=True)]
        for read_only in (True, False):
            (path / SEGMENT).write_bytes(flipped)
            (path / "index").unlink(missing_ok=True)
            values_found, damaged = found(path, 5, read_only=read_only)
            assert values_found == expected, f"byte {place}"
            # A last record whose head is damaged cannot be told from one that a kill has cut.
            assert damaged == sum(lost) or (damaged == 0 and lost[-1]), f"byte {place}"


def test_an_index_damaged_anywhere_costs_nothing(filled: Path) -> None:
    index = (filled / "index").read_bytes()
    segment = (filled / SEGMENT).read_bytes()
    places = [*range(0, 256, 3), *range(4096, len(index), 37)]
    for place in places:
        flipped = bytearray(index)
        flipped[place] ^= 1 << place % 8
        for read_only in (True, False):
            (filled / "index").write_bytes(flipped)
            assert found(filled, 7, read_only=read_only)[0] == [*VALUES, None], f"byte {place}"
            assert (filled / SEGMENT).read_bytes() == segment, f"byte {place}"
    for size in (0, 1, 4095, 4096, len(index) - 1):
        (filled / "index").write_bytes(index[:size])
        assert found(filled, 7)[0] == [*VALUES, None], f"cut to {size}"
    (filled / "index").write_bytes(os.urandom(len(index)))
    assert found(filled, 7)[0] == [*VALUES, None]


def test_damage_is_counted_for_its_stage_and_mended_by_the_next_put(filled: Path) -> None:
    record = read_segment(filled / SEGMENT)[3]
    with (filled / SEGMENT).open("r+b") as file:
        file.seek(record.value_offset + 100)
        file.write(b"\xff\xff")
    with ExecutionCache(filled) as cache:
        assert cache.get("stage0", key(3)) is None
        assert cache.get("stage0", key(3)) is None
        counted = cache.counters()["stage0"]
        assert (counted.damaged, counted.misses, counted.hits) == (1, 2, 0)
        assert cache.get_or_compute("stage0", key(3), lambda: VALUES[3]) == VALUES[3]
    assert found(filled, 6) == (VALUES, 0)


def test_damage_that_comes_while_the_cache_is_open_is_found(filled: Path) -> None:
    record = read_segment(filled / SEGMENT)[4]
    with ExecutionCache(filled) as cache:
        assert cache.get("stage1", key(4)) == VALUES[4]
        with (filled / SEGMENT).open("r+b") as file:
            file.seek(record.offset + 40)
            file.write(b"????")
        assert cache.get("stage1", key(4)) is None
        assert cache.get("stage2", key(5)) == VALUES[5]
        assert cache.get("stage0", key(3)) == VALUES[3]
        assert cache.damaged == 1
        assert not cache.verify().clean


def test_a_stretch_of_garbage_is_stepped_over(filled: Path) -> None:
    records = read_segment(filled / SEGMENT)
    with (filled / SEGMENT).open("r+b") as file:
        file.seek(records[1].offset)
        file.write(os.urandom(records[4].offset - records[1].offset))
    without_index(filled)
    assert found(filled, 6) == ([VALUES[0], None, None, None, *VALUES[4:]], 1)


def test_a_record_inside_a_value_is_never_taken_for_one(tmp_path: Path) -> None:
    """A value that looks like records of another cache, met while the search for the next record runs through it."""
    fill(tmp_path / "other", [b"forged"])
    image = (tmp_path / "other" / SEGMENT).read_bytes()[64:]
    path = tmp_path / "cache"
    fill(path, [b"true", image * 3, b"after"])
    outer = read_segment(path / SEGMENT)[1]
    assert outer.value_offset % 8 == 0
    with (path / SEGMENT).open("r+b") as file:
        file.seek(outer.offset)
        file.write(b"\0\0\0\0")
    without_index(path)
    assert found(path, 3) == ([b"true", None, b"after"], 1)


def test_a_segment_whose_header_is_lost_is_left_alone(filled: Path) -> None:
    with (filled / SEGMENT).open("r+b") as file:
        file.write(bytes(64))
    damaged = (filled / SEGMENT).read_bytes()
    without_index(filled)
    for read_only in (True, False):
        assert found(filled, 6, read_only=read_only) == ([None] * 6, 1)
    fill(filled, VALUES)
    assert (filled / SEGMENT).read_bytes() == damaged
    without_index(filled)
    assert found(filled, 6) == (VALUES, 1)
    without_index(filled)
    assert found(filled, 6, read_only=True) == (VALUES, 1)


def test_an_empty_segment_file_is_damage_and_no_crash(filled: Path) -> None:
    (filled / "segment-00000002.log").touch()
    without_index(filled)
    assert found(filled, 6) == (VALUES, 1)


def test_a_damaged_directory_header_is_mended(filled: Path) -> None:
    header = (filled / "prismem-cache").read_bytes()
    for place in range(len(header)):
        flipped = bytearray(header)
        flipped[place] ^= 4
        (filled / "prismem-cache").write_bytes(flipped)
        assert found(filled, 6, read_only=True) == (VALUES, 1)
        assert found(filled, 6) == (VALUES, 1)
        assert (filled / "prismem-cache").read_bytes() == header
    (filled / "prismem-cache").unlink()
    assert found(filled, 6) == (VALUES, 1)
    assert found(filled, 6) == (VALUES, 0)


def test_unfinished_files_of_a_killed_writer_go(filled: Path) -> None:
    (filled / "segment-00000002.log.new").write_bytes(b"PMSEG")
    (filled / "notes.new").write_bytes(b"not ours")
    assert found(filled, 6, read_only=True) == (VALUES, 0)
    assert (filled / "segment-00000002.log.new").exists()
    assert found(filled, 6) == (VALUES, 0)
    assert sorted(os.listdir(filled)) == sorted([*FILES, "notes.new"])


# Places that are no cache.


@pytest.mark.parametrize("read_only", [True, False])
def test_a_foreign_directory_is_refused_and_left_as_it_is(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CacheError, match="is not an execution cache"):
        ExecutionCache(tmp_path, read_only=read_only)
    (tmp_path / "prismem-cache").write_text("something else")
    with pytest.raises(CacheError, match="is not an execution cache"):
        ExecutionCache(tmp_path, read_only=read_only)
    assert sorted(os.listdir(tmp_path)) == ["prismem-cache", "thesis.txt"]


def test_an_empty_directory_becomes_a_cache(tmp_path: Path) -> None:
    with ExecutionCache(tmp_path, read_only=True) as reader:
        assert reader.get("s", key(1)) is None
        assert os.listdir(tmp_path) == []
        with ExecutionCache(tmp_path) as writer:
            writer.put("s", key(1), b"1")
            assert reader.get("s", key(1)) == b"1"


def test_a_directory_left_by_a_writer_killed_at_birth_becomes_a_cache(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("123\n")
    (tmp_path / "prismem-cache.new").write_text("prism")
    fill(tmp_path, VALUES)
    assert found(tmp_path, 6) == (VALUES, 0)


def test_a_file_or_a_missing_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CacheError, match="path of a directory"):
            ExecutionCache(path)
    with pytest.raises(CacheError, match="must exist"):
        ExecutionCache(tmp_path / "absent", read_only=True)
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("other", [1, 3])
@pytest.mark.parametrize("read_only", [True, False])
def test_another_format_is_refused_by_name(filled: Path, read_only: bool, other: int) -> None:
    line = b"prismem-core execution cache, format %d\n" % other
    (filled / "prismem-cache").write_bytes(line + b"crc32c %08x\n" % crc32c(line))
    with pytest.raises(CacheError, match=f"of format {other} and this version of prismem-core reads format 2"):
        ExecutionCache(filled, read_only=read_only)


def test_a_segment_of_another_format_is_refused_by_name(filled: Path) -> None:
    half = bytearray((filled / SEGMENT).read_bytes()[:32])
    half[8] = 3
    half[28:] = crc32c(bytes(half[:28])).to_bytes(4, "little")
    (filled / "segment-00000002.log").write_bytes(half * 2)
    without_index(filled)
    with pytest.raises(CacheError, match=r"segment-00000002\.log has format 3"):
        ExecutionCache(filled)


def test_records_of_kinds_to_come_are_stepped_over(filled: Path) -> None:
    """What a later version may add without a new format."""
    seed = crc32c((filled / SEGMENT).read_bytes()[16:24])

    def record(kind: int, name: str, value: bytes) -> bytes:
        stage = b"stage0"
        body = HEAD.pack(0, kind, len(stage), 0, len(value), crc32c(value, seed), 0.0, 0, bytes.fromhex(name)) + stage
        head = crc32c(body[4:], seed).to_bytes(4, "little") + body[4:] + bytes(-len(body) % 8)
        return head + value + bytes(-len(value) % 8)

    with (filled / SEGMENT).open("ab") as file:
        file.write(record(9, key("kind"), b"not a value"))
        file.write(record(1, key("after"), b"a value"))
    without_index(filled)
    for read_only in (True, False):
        with ExecutionCache(filled, read_only=read_only) as cache:
            assert cache.get("stage0", key("kind")) is None
            assert cache.get("stage0", key("after")) == b"a value"
    assert found(filled, 6) == (VALUES, 0)
