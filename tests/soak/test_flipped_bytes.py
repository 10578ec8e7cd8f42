"""A flipped byte anywhere in the files: nothing crashes, nothing wrong comes back, only the damaged entry is lost."""

from __future__ import annotations

import functools
import hashlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismem_core.cache import ExecutionCache

STAGES = ("extract", "answer", "an index of vectors")
SIZES = (24, 40, 41, 47, 64, 100, 333, 1500, 9000)
COUNT = 40
HEAD_BYTES = 56
"""A record begins with so many bytes, then the stage and the value, each filled up to a multiple of 8."""


def padded(size: int) -> int:
    return -(-size // 8) * 8


def key(number: int) -> str:
    return hashlib.sha256(f"entry {number}".encode()).hexdigest()


def stage(number: int) -> str:
    return STAGES[number % 3]


@functools.cache
def value(number: int) -> bytes:
    head = b"value %d of the test; " % number
    return (head + random.Random(number).randbytes(SIZES[number % len(SIZES)]))[: SIZES[number % len(SIZES)]]


def older(number: int) -> bytes:
    """What was stored before the value for every fourth entry."""
    return b"an older version of %d" % number


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed cache of several segments with entries, older versions of some, and one that was removed."""
    directory = tmp_path_factory.mktemp("whole") / "cache"
    with ExecutionCache(directory, segment_bytes=8 << 10) as cache, cache.tagged(run="first", program="p"):
        for number in range(0, COUNT, 4):
            cache.put(stage(number), key(number), older(number))
        cache.put("extract", key(-1), b"this one is removed again")
        for number in range(COUNT):
            cache.put(stage(number), key(number), value(number), cost=number + 0.5)
        assert cache.remove("extract", [key(-1)]) == 1
    return directory


def found(directory: Path, *, read_only: bool, rebuilt: bool = False) -> tuple[set[int], int, int]:
    """Entries that are not there, the damage counted after all were read, and what `verify` says. Wrong values fail.

    Where the index is lost as well as a record, nothing is left that says whose record it was: an entry that was stored
    twice then has its older value.
    """
    with ExecutionCache(directory, segment_bytes=8 << 10, read_only=read_only) as cache:
        values = {number: cache.get(stage(number), key(number)) for number in range(COUNT)}
        lost = {number for number, got in values.items() if got is None or (rebuilt and got == older(number))}
        assert [number for number, got in values.items() if number not in lost and got != value(number)] == []
        counted = cache.damaged
        report = cache.verify()
        assert report.entries <= COUNT + 1
        return lost, counted, report.damaged


class Places:
    """What each byte of the segments belongs to."""

    def __init__(self, directory: Path) -> None:
        self.entries: dict[str, list[tuple[int, int, int, set[int]]]] = {}
        for path in sorted(directory.glob("segment-*.log")):
            data = path.read_bytes()
            self.entries[path.name] = [
                self._entry(number, at) for number in range(COUNT) if (at := data.find(value(number))) >= 0
            ]
        assert sum(map(len, self.entries.values())) == COUNT

    def _entry(self, number: int, value_at: int) -> tuple[int, int, int, set[int]]:
        name, size = len(stage(number)), len(value(number))
        begin = value_at - HEAD_BYTES - padded(name)
        end = value_at + padded(size)
        unused = {*range(begin + HEAD_BYTES + name, value_at), *range(value_at + size, end)}
        return number, begin, end, unused

    def costs(self, name: str, offset: int) -> tuple[set[int], set[int]]:
        """The entries that a flip here must cost, and those that it may."""
        for number, begin, end, unused in self.entries.get(name, []):
            if begin <= offset < end:
                return (set(), {number}) if offset in unused else ({number}, {number})
        return set(), set()


def test_the_cache_is_whole_before_a_byte_is_flipped(whole: Path, tmp_path: Path) -> None:
    for read_only in (True, False):
        copy = shutil.copytree(whole, tmp_path / f"copy {read_only}")
        assert found(copy, read_only=read_only) == (set(), 0, 0)
    assert len(list(whole.glob("segment-*.log"))) >= 3


def offsets(path: Path, name: str, share: float) -> Iterator[int]:
    size = (path / name).stat().st_size
    rng = random.Random(name)
    wanted = max(min(size, 24), int(size * share))
    # The first bytes are headers, and every one of them counts.
    yield from sorted({*range(min(size, 16)), *rng.sample(range(size), wanted)})


def flip(path: Path, offset: int, mask: int) -> None:
    with path.open("rb+") as file:
        file.seek(offset)
        old = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([old ^ mask]))


def check(whole: Path, scratch: Path, share: float, rebuild: bool) -> None:
    places = Places(whole)
    files = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())
    for name in files:
        # An index that is rebuilt has no bytes that matter.
        if rebuild and not name.startswith("segment-"):
            continue
        for turn, offset in enumerate(offsets(whole, name, share)):
            must, may = places.costs(name, offset)
            # A reader changes nothing, so that its copy serves again; a writer may mend what it finds.
            read_only = turn % 8 != 0
            if not read_only or not scratch.exists():
                shutil.rmtree(scratch, ignore_errors=True)
                shutil.copytree(whole, scratch)
                if rebuild:
                    (scratch / "index").unlink()
            flip(scratch / name, offset, 1 << turn % 8)
            lost, counted, reported = found(scratch, read_only=read_only, rebuilt=rebuild)
            where = f"{name}, byte {offset}, bit {turn % 8}, read_only={read_only}"
            assert must <= lost <= may, where
            if lost:
                assert counted > 0, where
                if read_only:
                    assert reported > 0, where
            if read_only:
                flip(scratch / name, offset, 1 << turn % 8)
            else:
                shutil.rmtree(scratch)
        shutil.rmtree(scratch, ignore_errors=True)


@pytest.mark.parametrize("share", [0.005, pytest.param(1.0, marks=pytest.mark.soak)], ids=["some bytes", "every byte"])
@pytest.mark.parametrize("rebuild", [False, True], ids=["by the index", "by the segments alone"])
def test_a_flipped_byte_costs_exactly_what_it_damages(whole: Path, tmp_path: Path, share: float, rebuild: bool) -> None:
    check(whole, tmp_path / "scratch", share, rebuild)
