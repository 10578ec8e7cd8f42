"""Reading source files: gzip or plain, one clear line for what is wrong, and the digest of what was read."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prismem_core.digests import digest, digest_bytes
from prismem_core.errors import DataError
from prismem_core.tasks.datasets.json_items import json_items

_GZIP_MAGIC = b"\x1f\x8b"
_TELLING = 20


class Source:
    """The files of one data set; every file read counts towards `digest` (as stored, packed or not)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: list[tuple[str, str]] = []

    @property
    def digest(self) -> str:
        """SHA-256 of the file; of the list of (name below the root, SHA-256) where there are several."""
        if len(self._files) == 1:
            return self._files[0][1]
        return digest("files", [list(entry) for entry in self._files])

    def text(self, path: Path) -> str:
        """The UTF-8 text of a file, unpacked if it is gzip whatever its name; DataError if it cannot be had."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        self._files.append((self.name(path), digest_bytes(data)))
        if data.startswith(_GZIP_MAGIC):
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(f"{path} is a damaged gzip file ({error}); fetch it again") from error
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is not UTF-8 text (byte {error.start}); data sets are JSON or JSON Lines"
            ) from error

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """(name below the root, SHA-256) of each file read so far."""
        return tuple(self._files)

    def name(self, path: Path) -> str:
        """The name of a file below the root of the data set."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.name

    def add(self, path: Path, sha256: str) -> None:
        """Count a file that a loader has read by other means."""
        self._files.append((self.name(path), sha256))

    def items(self, path: Path) -> Iterator[Any]:
        """The items of a file with one JSON list, one in memory at a time; the digest counts once all are read."""
        yield from json_items(path, lambda sha256: self.add(path, sha256))

    def json(self, path: Path) -> Any:
        """The parsed JSON of a file; DataError names line and column of a syntax error."""
        return parse_json(self.text(path), path)


def parse_json(text: str, path: Path, first_line: int = 1) -> Any:
    """The parsed JSON text; DataError with path, line and column (lines counted from `first_line`) if it is broken."""
    if not text.strip():
        raise DataError(f"{path} is empty; expected a data set")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = error.lineno + first_line - 1
        what = error.msg.removesuffix(" at")
        raise DataError(f"{path} is not valid JSON: {what} at line {line}, column {error.colno}") from error
    except ValueError as error:
        raise DataError(f"{path} is not a data set: it holds a number of thousands of digits") from error
    except RecursionError as error:
        raise DataError(f"{path} is not a data set: its JSON is nested too deeply") from error


def first_items(value: Any) -> list[Any]:
    """The first items of a list, or the value itself: enough to tell a format though one record is damaged."""
    return value[:_TELLING] if isinstance(value, list) else [value]
