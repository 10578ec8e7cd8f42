"""The file of an index (docs/formats.md, "Vector index"), written and read without the C++ core.

The bytes are those that the C++ core writes for an index without codes; codes in a file are stepped over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import VectorIndexError
from prismem_core.index.checksums import crc32c
from prismem_core.index.device_memory import DTYPES, element_bytes

_MAGIC = b"PMVECIDX"
_FORMAT = 1
_PAGE = 4096
_HEAD = struct.Struct("<8sIIIIqqqq8x")
_SECTION = struct.Struct("<IIqq8x")
_TABLE = 64
_MOST_SECTIONS = (_PAGE - 4 - _TABLE) // _SECTION.size
_METRICS = ("inner_product", "cosine")
_ROWS, _IDS = 1, 2
_MOST_DIM = 1 << 24
_MOST_BYTES = 1 << 46


@dataclass(frozen=True)
class Header:
    """What a file says of its rows."""

    dtype: str
    metric: str
    dim: int
    count: int
    next_id: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * element_bytes(self.dtype)


@dataclass(frozen=True)
class _Section:
    kind: int
    crc: int
    offset: int
    size: int


def _view(data: Any) -> memoryview:
    return memoryview(data)


def _padding(size: int) -> int:
    return -size % _PAGE


def write(path: bytes, header: Header, rows: Iterable[NDArray[np.uint8]], ids: NDArray[np.int64]) -> None:
    """Write a file that takes its name when it is whole on the disk; VectorIndexError leaves what was there.

    `rows` yields the bytes of all rows, in their order.
    """
    name = os.fsdecode(path)
    try:
        descriptor = _created(path + b".new")
    except OSError as error:
        raise _unsaved(name, error) from error
    done = False
    try:
        sections = [_written(descriptor, _ROWS, _PAGE, rows)]
        offset = _PAGE + sections[0].size + _padding(sections[0].size)
        sections.append(_written(descriptor, _IDS, offset, [ids.astype("<i8").view(np.uint8)]))
        offset += sections[1].size + _padding(sections[1].size)
        os.pwrite(descriptor, _page(header, sections, offset), 0)
        os.fsync(descriptor)
        os.rename(path + b".new", path)
        done = True
        _sync_folder(path)
    except OSError as error:
        raise _unsaved(name, error) from error
    finally:
        if not done:
            os.unlink(path + b".new")
        os.close(descriptor)


def _unsaved(name: str, error: OSError) -> VectorIndexError:
    busy = error.errno == errno.EWOULDBLOCK
    why = "it is being saved there by another thread or process" if busy else "what was there before is as it was"
    return VectorIndexError(f"the index cannot be saved as {name} ({error.strerror or error}); {why}")


def _created(path: bytes) -> int:
    """The unfinished file, empty and locked."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _names(path, descriptor):
                os.ftruncate(descriptor, 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _names(path: bytes, descriptor: int) -> bool:
    """Whether `path` still names the open file: its last holder may have renamed it before the lock came free."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _sync_folder(path: bytes) -> None:
    folder = os.open(os.path.dirname(path) or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _written(descriptor: int, kind: int, offset: int, parts: Iterable[NDArray[np.uint8]]) -> _Section:
    crc, size = 0, 0
    for part in parts:
        view = _view(np.ascontiguousarray(part).reshape(-1))
        crc = crc32c(view, crc)
        _put(descriptor, view, offset + size)
        size += len(view)
    filling = bytes(_padding(size))
    _put(descriptor, memoryview(filling), offset + size)
    return _Section(kind, crc32c(filling, crc), offset, size)


def _put(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count


def _page(header: Header, sections: list[_Section], size: int) -> bytes:
    page = _HEAD.pack(
        _MAGIC,
        _FORMAT,
        DTYPES.index(header.dtype),
        _METRICS.index(header.metric),
        len(sections),
        header.dim,
        header.count,
        header.next_id,
        size,
    )
    page += b"".join(_SECTION.pack(part.kind, part.crc, part.offset, part.size) for part in sections)
    page = page.ljust(_PAGE - 4, b"\0")
    return page + struct.pack("<I", crc32c(page))


class Reader:
    """An open file whose header is sound: sizes fit together, every section lies within; VectorIndexError otherwise."""

    def __init__(self, path: bytes) -> None:
        self._name = os.fsdecode(path)
        self._descriptor = -1
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            state = os.fstat(self._descriptor)
            if not stat.S_ISREG(state.st_mode):
                raise VectorIndexError(
                    f"{self._name} is not a vector index: it is no file; name the file that save() wrote"
                )
            self._size = state.st_size
            page = os.pread(self._descriptor, _PAGE, 0)
            if page[:8] != _MAGIC:
                raise VectorIndexError(
                    f"{self._name} is not a vector index: it does not begin like one; name the file that save() wrote"
                )
            if len(page) < _PAGE:
                self._refuse("it ends within its header")
            self._parse(page)
        except OSError as error:
            self.close()
            raise VectorIndexError(
                f"the vector index {self._name} cannot be opened: cannot open it: {error.strerror}"
            ) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _refuse(self, why: str) -> None:
        raise VectorIndexError(f"the vector index {self._name} is damaged: {why}; save it again or take another copy")

    def refuse_id(self, id: int) -> None:
        """VectorIndexError: the id stands there twice."""
        self._refuse(f"id {id} stands in it twice")

    def _parse(self, page: bytes) -> None:
        if struct.unpack("<I", page[-4:])[0] != crc32c(page[:-4]):
            self._refuse("its header does not match its checksum")
        _, form, kind, metric, listed, dim, count, next_id, size = _HEAD.unpack(page[:_TABLE])
        if form != _FORMAT:
            raise VectorIndexError(
                f"the vector index {self._name} has format {form} and this version of prismem-core reads format "
                f"{_FORMAT}: use the version that wrote it"
            )
        if kind >= len(DTYPES):
            self._refuse("it names an unknown kind of rows")
        if metric >= len(_METRICS):
            self._refuse("it names an unknown metric")
        if listed > _MOST_SECTIONS:
            self._refuse("it lists too many sections")
        if not 1 <= dim <= _MOST_DIM:
            self._refuse(f"it claims rows of {dim} dimensions")
        self.header = Header(DTYPES[kind], _METRICS[metric], dim, count, next_id)
        if not 0 <= count <= _MOST_BYTES // self.header.row_bytes:
            self._refuse(f"it claims {count} rows")
        if size != self._size:
            self._refuse(f"it should have {size % (1 << 64)} bytes and has {self._size}")
        sections: dict[int, _Section] = {}
        for number in range(listed):
            section = _Section(*_SECTION.unpack_from(page, _TABLE + number * _SECTION.size))
            if not self._holds(section):
                self._refuse("a section lies outside of it")
            sections.setdefault(section.kind, section)
        self._sections = sections
        for part, expected, what in ((_ROWS, count * self.header.row_bytes, "rows"), (_IDS, 8 * count, "ids")):
            if part not in sections:
                self._refuse("a section is missing")
            if sections[part].size != expected:
                self._refuse(f"its {what} do not have the size that its header claims")

    def _holds(self, section: _Section) -> bool:
        if section.offset < _PAGE or section.offset % _PAGE or section.size < 0:
            return False
        return section.offset + section.size + _padding(section.size) <= self._size

    def rows(self, count: int, verify: bool) -> Iterator[NDArray[np.uint8]]:
        """The bytes of all rows, of `count` at a time; a checksum that does not fit is found at the end."""
        yield from self._parts(self._sections[_ROWS], count * self.header.row_bytes, verify)

    def ids(self, verify: bool) -> NDArray[np.int64]:
        """The ids."""
        section = self._sections[_IDS]
        parts: list[Any] = list(self._parts(section, 1 << 26, verify))
        return np.concatenate([np.empty(0, np.uint8), *parts]).view("<i8").astype(np.int64)

    def _parts(self, section: _Section, step: int, verify: bool) -> Iterator[NDArray[np.uint8]]:
        crc = 0
        for begin in range(0, section.size, step):
            data = self._read(section.offset + begin, min(step, section.size - begin))
            crc = crc32c(_view(data), crc) if verify else 0
            yield data
        if verify and crc32c(self._read(section.offset + section.size, _padding(section.size)), crc) != section.crc:
            self._refuse(f"the section at byte {section.offset} does not match its checksum")

    def _read(self, offset: int, size: int) -> NDArray[np.uint8]:
        data = np.empty(size, np.uint8)
        view, done = _view(data), 0
        try:
            while done < size:
                count = os.preadv(self._descriptor, [view[done:]], offset + done)
                if not count:
                    self._refuse("it has become shorter")
                done += count
        except OSError as error:
            raise VectorIndexError(f"the vector index {self._name} cannot be read: {error.strerror}") from error
        return data
