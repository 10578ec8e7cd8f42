"""The disk tier: what is written, what opening makes of it, and what damage costs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from prismem_core import _native
from prismem_core.cache import ExecutionCache
from prismem_core.errors import CacheError

from .conftest import Record, crc32c, key, read_segment

SEGMENT = "segment-00000001.log"


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
    assert sorted(os.listdir(filled)) == ["lock", "prismem-cache", SEGMENT]


def test_the_bytes_are_those_of_the_documentation(filled: Path) -> None:
    records = read_segment(filled / SEGMENT)
    assert [(r.stage, r.key, r.value) for r in records] == [(f"stage{i % 3}", key(i), v) for i, v in enumerate(VALUES)]
    line = b"prismem-core execution cache, format 1\n"
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
    values = [os.urandom(300) for _ in range(40)]
    values[20] = os.urandom(9000)  # larger than a segment
    fill(tmp_path, values, segment_bytes=2000)
    segments = sorted(tmp_path.glob("segment-*.log"))
    assert [s.name for s in segments] == [f"segment-{n:08d}.log" for n in range(1, len(segments) + 1)]
    sizes = [s.stat().st_size for s in segments]
    assert len([size for size in sizes if size > 2000]) == 1
    assert [r.value for s in segments for r in read_segment(s)] == values
    assert found(tmp_path, 40) == (values, 0)


# Damage.


def test_a_record_cut_anywhere_costs_only_itself(filled: Path, tmp_path: Path) -> None:
    data = (filled / SEGMENT).read_bytes()
    last = read_segment(filled / SEGMENT)[-1]
    for cut in range(1, last.size):
        path = tmp_path / "cut"
        shutil.copytree(filled, path)
        (path / SEGMENT).write_bytes(data[: last.offset + cut])
        assert found(path, 6, read_only=True) == ([*VALUES[:-1], None], 0)
        assert (path / SEGMENT).stat().st_size == last.offset + cut, "a reader must not cut"
        with ExecutionCache(path) as cache:
            assert (path / SEGMENT).stat().st_size == last.offset
            assert cache.get("stage2", key(5)) is None
            cache.put("stage2", key(5), b"again")
        assert found(path, 6) == ([*VALUES[:-1], b"again"], 0)
        shutil.rmtree(path)


def covers(record: Record, place: int) -> bool:
    """Whether a byte of the file is part of what a record means (not the zeros that fill it up)."""
    named = record.offset <= place < record.offset + 64 + len(record.stage)
    return named or record.value_offset <= place < record.value_offset + len(record.value)


def test_a_flipped_byte_anywhere_costs_exactly_its_record(tmp_path: Path) -> None:
    """Every byte of a segment (headers, lengths, keys, stages, values, filling), each with a different bit flipped."""
    values = [b"first", b"", b"third" * 5, b"4" * 16, b"end"]
    path = tmp_path / "cache"
    fill(path, values)
    data = (path / SEGMENT).read_bytes()
    records = read_segment(path / SEGMENT)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        (path / SEGMENT).write_bytes(flipped)
        lost = [covers(record, place) for record in records]
        expected = [None if gone else value for gone, value in zip(lost, values, strict=True)]
        for read_only in (True, False):
            assert found(path, 5, read_only=read_only) == (expected, sum(lost)), f"byte {place}"


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
    with ExecutionCache(filled, memory_bytes=0) as cache:
        assert cache.get("stage1", key(4)) == VALUES[4]
        with (filled / SEGMENT).open("r+b") as file:
            file.seek(record.offset + 40)
            file.write(b"????")
        assert cache.get("stage1", key(4)) is None
        os.truncate(filled / SEGMENT, record.offset)
        assert cache.get("stage2", key(5)) is None
        assert cache.get("stage0", key(3)) == VALUES[3]
        assert cache.damaged == 2


def test_a_stretch_of_garbage_is_stepped_over(filled: Path) -> None:
    records = read_segment(filled / SEGMENT)
    with (filled / SEGMENT).open("r+b") as file:
        file.seek(records[1].offset)
        file.write(os.urandom(records[4].offset - records[1].offset))
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
        file.seek(outer.offset + 4)
        file.write(b"\0\0\0\0")
    assert found(path, 3) == ([b"true", None, b"after"], 1)


def test_a_segment_whose_header_is_lost_is_left_alone(filled: Path) -> None:
    with (filled / SEGMENT).open("r+b") as file:
        file.write(bytes(64))
    damaged = (filled / SEGMENT).read_bytes()
    for read_only in (True, False):
        assert found(filled, 6, read_only=read_only) == ([None] * 6, 1)
    fill(filled, VALUES)
    assert (filled / SEGMENT).read_bytes() == damaged
    assert found(filled, 6) == (VALUES, 1)
    assert found(filled, 6, read_only=True) == (VALUES, 1)


def test_an_empty_segment_file_is_damage_and_no_crash(filled: Path) -> None:
    (filled / "segment-00000002.log").touch()
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
    assert sorted(os.listdir(filled)) == ["lock", "notes.new", "prismem-cache", SEGMENT]


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


@pytest.mark.parametrize("read_only", [True, False])
def test_another_format_is_refused_by_name(filled: Path, read_only: bool) -> None:
    line = b"prismem-core execution cache, format 2\n"
    (filled / "prismem-cache").write_bytes(line + b"crc32c %08x\n" % crc32c(line))
    with pytest.raises(CacheError, match="of format 2 and this version of prismem-core reads format 1"):
        ExecutionCache(filled, read_only=read_only)


def test_a_segment_of_another_format_is_refused_by_name(filled: Path) -> None:
    half = bytearray((filled / SEGMENT).read_bytes()[:32])
    half[8] = 3
    half[28:] = crc32c(bytes(half[:28])).to_bytes(4, "little")
    (filled / "segment-00000002.log").write_bytes(half * 2)
    with pytest.raises(CacheError, match=r"segment-00000002\.log has format 3"):
        ExecutionCache(filled)


def test_records_of_kinds_to_come_and_metadata_are_stepped_over(filled: Path) -> None:
    """What a later version may add without a new format: a record of kind 9, and a value with metadata before it."""
    seed = crc32c((filled / SEGMENT).read_bytes()[16:24])

    def record(kind: int, name: str, meta: bytes, value: bytes) -> bytes:
        stage = b"stage0"
        checked = bytes([kind, 0, len(stage), 0]) + len(meta).to_bytes(4, "little") + len(value).to_bytes(8, "little")
        checked += crc32c(meta + value, seed).to_bytes(4, "little") + bytes(4) + bytes.fromhex(name) + stage
        head = b"PMR1" + crc32c(checked, seed).to_bytes(4, "little") + checked + meta
        body = head + bytes(-len(head) % 8) + value
        return body + bytes(-len(body) % 8)

    with (filled / SEGMENT).open("ab") as file:
        file.write(record(9, key("kind"), b"", b"not a value"))
        file.write(record(1, key("meta"), b"cost=3;", b"with metadata"))
    for read_only in (True, False):
        with ExecutionCache(filled, read_only=read_only) as cache:
            assert cache.get("stage0", key("kind")) is None
            assert cache.get("stage0", key("meta")) == b"with metadata"
    assert found(filled, 6) == (VALUES, 0)
