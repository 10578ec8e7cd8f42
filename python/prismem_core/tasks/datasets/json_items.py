"""A JSON list read item by item: files of gigabytes pass through a buffer of a few items."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from prismem_core.errors import DataError

# Above this size (as stored) a file is read item by item.
LARGE_BYTES = 48 << 20
_CHUNK_BYTES = 8 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BLANKS = " \t\r\n"


class _Hashed:
    """A file whose bytes are hashed as they are read."""

    def __init__(self, stored: BinaryIO) -> None:
        self._stored = stored
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stored.read(size)
        self._hash.update(data)
        return data

    def hexdigest(self) -> str:
        """SHA-256 of the whole file, the part that nobody asked for included."""
        while self.read(_CHUNK_BYTES):
            pass
        return self._hash.hexdigest()


def json_items(path: Path, on_end: Callable[[str], None] | None = None) -> Iterator[Any]:
    """The items of the list in a JSON file, plain or gzip; `on_end` gets the SHA-256 of the file as stored.

    Raises DataError, one line, for a file that cannot be read, is no list or ends in the middle of an item.
    """
    try:
        with path.open("rb") as stored:
            packed = stored.peek(2).startswith(_GZIP_MAGIC)
            hashed = _Hashed(stored)
            data = gzip.GzipFile(fileobj=cast(Any, hashed)) if packed else hashed
            yield from _items(lambda: data.read(_CHUNK_BYTES), path)
            if on_end is not None:
                on_end(hashed.hexdigest())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}); fetch it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _items(read: Callable[[], bytes], path: Path) -> Iterator[Any]:
    decode = codecs.getincrementaldecoder("utf-8-sig")()
    scan = json.JSONDecoder()
    buffer, position, ended = "", 0, False
    opened = False
    while True:
        position = _after_blanks(buffer, position)
        if position < len(buffer):
            if not opened:
                if buffer[position] != "[":
                    raise DataError(f"{path} is too large to be read at once and holds no JSON list")
                opened, position = True, position + 1
                continue
            if buffer[position] == "]":
                return
            if buffer[position] == ",":
                position += 1
                continue
            try:
                item, position = scan.raw_decode(buffer, position)
            except (ValueError, RecursionError) as error:
                if ended:
                    raise DataError(f"{path} is not valid JSON: {str(error).splitlines()[0]} (of one item)") from error
            else:
                yield item
                continue
        if ended:
            raise DataError(f"{path} ends in the middle of its list; fetch it again")
        data = read()
        ended = not data
        try:
            buffer, position = buffer[position:] + decode.decode(data, final=ended), 0
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text; data sets are JSON or JSON Lines") from error


def _after_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANKS:
        position += 1
    return position
