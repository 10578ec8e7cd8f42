"""Sealed memory: the same bytes for everyone, private changes, nothing left behind."""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import resource
import socket
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.program.sandbox.sealed_memory import map_rows, seal

# Awkward on purpose: less than a page, exactly one, a little more, and many.
SHAPES = [(1, 1), (1, 1024), (3, 341), (1025, 1), (7, 4096), (33, 1023)]


def rows(shape: tuple[int, int]) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def mappings() -> int:
    with open("/proc/self/maps", encoding="ascii") as file:
        return sum("memfd:rows" in line for line in file)


@pytest.fixture
def sealed() -> Iterator[int]:
    descriptor = seal(rows((5, 700)))
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_sealed_is_what_is_mapped(shape: tuple[int, int]) -> None:
    array = rows(shape)
    mapped = map_rows(seal(array), *shape)
    assert (mapped.dtype, mapped.shape) == (np.dtype(np.float32), shape)
    assert mapped.flags.c_contiguous and mapped.flags.writeable
    np.testing.assert_array_equal(mapped, array)


@pytest.mark.parametrize("shape", [(0, 384), (0, 0), (4, 0)])
def test_nothing_is_sealed_and_mapped_too(shape: tuple[int, int]) -> None:
    before = descriptors()
    mapped = map_rows(seal(np.empty(shape, np.float32)), *shape)
    assert (mapped.dtype, mapped.shape, mapped.flags.writeable) == (np.dtype(np.float32), shape, True)
    assert descriptors() == before


def test_writes_are_private_to_each_mapping_and_leave_the_array_as_it_was() -> None:
    array = rows((8, 512))
    original = array.copy()
    descriptor = seal(array)
    first, second = (map_rows(os.dup(descriptor), 8, 512) for _ in range(2))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    first[3] = 0
    np.testing.assert_array_equal(second, original)
    np.testing.assert_array_equal(array, original)
    array[:] = 1
    np.testing.assert_array_equal(map_rows(descriptor, 8, 512), original)


def test_the_file_can_neither_change_nor_be_mapped_to_be_changed(sealed: int) -> None:
    size = os.fstat(sealed).st_size
    assert size == 5 * 700 * 4
    for change in (
        lambda: os.ftruncate(sealed, size - 1),
        lambda: os.ftruncate(sealed, size + 1),
        lambda: os.pwrite(sealed, b"x", 0),
        lambda: os.pwrite(sealed, b"x", size),
        lambda: mmap.mmap(sealed, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
        lambda: fcntl.fcntl(sealed, 1033, 0),
    ):
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EPERM
    np.testing.assert_array_equal(map_rows(os.dup(sealed), 5, 700), rows((5, 700)))


def test_a_view_outlives_the_array_it_was_taken_from() -> None:
    array = rows((40, 1024))
    mapped = map_rows(seal(array), 40, 1024)
    row, again = mapped[7], np.reshape(mapped, -1)[1024:2048].view()
    del mapped
    gc.collect()
    assert mappings() == 1
    np.testing.assert_array_equal(row, array[7])
    del row
    gc.collect()
    np.testing.assert_array_equal(again, array[1])
    del again
    gc.collect()
    assert mappings() == 0


def test_a_thousand_rounds_leave_no_descriptor_and_no_mapping() -> None:
    array = rows((2, 4096))
    before = descriptors()
    for number in range(1000):
        mapped = map_rows(seal(array), 2, 4096)
        mapped[0, 0] = number
    assert mappings() == 1
    del mapped
    assert mappings() == 0
    assert descriptors() == before


def test_a_file_that_cannot_be_mapped_is_out_of_memory_and_its_descriptor_is_closed() -> None:
    before = descriptors()
    ours, theirs = socket.socketpair()
    # A socket has no pages.
    with ours, theirs, pytest.raises(MemoryError, match="3 embeddings of 5 dimensions cannot be mapped: "):
        map_rows(os.dup(ours.fileno()), 3, 5)
    assert descriptors() == before


def test_an_address_space_that_is_too_small_is_out_of_memory() -> None:
    array = np.zeros((64, 1 << 18), np.float32)
    descriptor = seal(array)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + array.nbytes // 2, hard))
    try:
        with pytest.raises(MemoryError, match="64 embeddings"):
            map_rows(descriptor, *array.shape)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert mappings() == 0


def test_a_system_without_descriptors_left_says_so_and_nothing_leaks() -> None:
    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What listing the folder opened stands among the descriptors, and is free now.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError) as caught:
            seal(rows((1, 1)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE
    assert descriptors() == before


def test_a_file_that_may_not_grow_is_closed_half_written() -> None:
    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError) as caught:
            seal(rows((2, 1024)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert descriptors() == before


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 2)),
        np.zeros((2, 2), ">f4"),
        np.zeros((4, 4), np.float32)[:, ::2],
        np.zeros((4, 4), np.float32).T[:2],
    ],
    ids=["float64", "big-endian", "strided", "transposed"],
)
def test_only_contiguous_float32_can_be_sealed(array: NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match="only contiguous float32 arrays can be sealed, got "):
        seal(array)
