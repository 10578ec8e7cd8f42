"""Run manifests: files `runs/*.keys` of a cache directory, which say what a run used; docs/formats.md has the bytes.

A manifest is rows of one size, each with its checksum, appended under a lock that lasts for the one write, so that
processes may share it and a kill costs at most the row it cut, which the next writer takes away.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prismem_core._native import crc32c
from prismem_core.errors import ArgumentError, CacheError

FOLDER = "runs"
FORMAT = 1
MAX_NAME = 200

# Checksum of the rest, kind, part of a name, bytes of the whole name, an id, and 40 bytes by kind: a part of a name;
# or the id of a program and a key.
_ROW = struct.Struct("<IBBH8s40s")
_HEADER, _RUN, _PROGRAM, _ENTRY = 1, 2, 3, 4
_MAGIC = b"PMRUNKEY"
_PART = 40
NO_PROGRAM = bytes(8)


def checked_name(what: str, name: object) -> str:
    """A run's or program's name; ArgumentError for anything but 1 to 200 characters."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME:
        shown = f"{len(name)} characters" if isinstance(name, str) else type(name).__name__
        raise ArgumentError(f"{what} must be a text of 1 to {MAX_NAME} characters, got {shown}")
    return name


def name_id(name: str) -> bytes:
    """8 bytes that stand for a name (of a stage, program or run) in rows."""
    return hashlib.sha256(_text(name)).digest()[:8]


def file_name(run: str) -> str:
    """The manifest's file name: what a file name can take of the run's name, and digits that tell runs apart."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", run)[:40]
    return f"{readable}-{name_id(run).hex()}.keys"


@dataclass
class Manifest:
    """What a run used: `notes` of 48 bytes (stage id, program id, key), names of `programs` by id, `damaged` rows."""

    run: str
    notes: set[bytes] = field(default_factory=set)
    programs: dict[bytes, str] = field(default_factory=dict)
    damaged: int = 0
    rows: int = 0

    def entries(self, program: str | None = None) -> set[bytes]:
        """The entries noted (`entry_id`), by any program or by that one."""
        wanted = None if program is None else name_id(program)
        return {note[:8] + note[16:] for note in self.notes if wanted is None or note[8:16] == wanted}


def entry_id(stage_id: bytes, key: bytes) -> bytes:
    """What stands for an entry in `Manifest.entries`."""
    return stage_id + key


def head_rows(run: str) -> bytes:
    """The rows that a manifest begins with."""
    return _row(_HEADER, 0, 0, _MAGIC, FORMAT.to_bytes(4, "little")) + _name_rows(_RUN, run)


def program_rows(program: str) -> bytes:
    """Rows that give the name behind a program's id."""
    return _name_rows(_PROGRAM, program)


def note_row(note: bytes) -> bytes:
    """The row of a note of 48 bytes."""
    return _row(_ENTRY, 0, 0, note[:8], note[8:])


def identity(path: Path) -> tuple[int, int] | None:
    """Which file the name stands for; None when it is gone."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def append(path: Path, run: str, rows: bytes) -> tuple[int, int]:
    """Appends rows, all or none, to a manifest that is made where there is none; OSError if it cannot be written.

    Returns what `identity` says of the file from now on.
    """
    while True:
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir()
        # No descriptor outlives the call: a child process that is forked meanwhile must not keep the lock.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            state = os.fstat(descriptor)
            if state.st_nlink == 0:  # pruned between the two calls
                continue
            whole = state.st_size - state.st_size % _ROW.size
            if whole < state.st_size:
                os.ftruncate(descriptor, whole)
            data = rows if whole else head_rows(run) + rows
            try:
                if os.write(descriptor, data) != len(data):
                    raise OSError(f"{path}: the disk is full")
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, whole)
                raise
            return state.st_dev, state.st_ino
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def read(path: Path) -> Manifest:
    """A manifest as far as it is sound; damaged rows are counted and a cut last one is nothing.

    A run whose name is damaged goes by its file name. FileNotFoundError where there is none; CacheError for a file of
    another format or one that cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CacheError(f"cannot read {path}: {error.strerror}; mend its rights or remove it") from error
    manifest = Manifest(path.stem, rows=len(data) // _ROW.size)
    names: dict[tuple[int, bytes], dict[int, bytes]] = {}
    for number in range(len(data) // _ROW.size):
        row = data[number * _ROW.size : (number + 1) * _ROW.size]
        crc, kind, part, size, name, rest = _ROW.unpack(row)
        if crc != crc32c(row[4:]):
            manifest.damaged += 1
        elif kind == _ENTRY:
            manifest.notes.add(name + rest)
        elif kind == _HEADER and name == _MAGIC:
            found = int.from_bytes(rest[:4], "little")
            if found != FORMAT:
                raise CacheError(
                    f"{path} has format {found} and this version of prismem-core reads format {FORMAT}: use a newer one"
                )
        elif kind in (_RUN, _PROGRAM):
            names.setdefault((kind, name), {})[part] = rest[: size - part * _PART]
    for (kind, name), parts in names.items():
        data = b"".join(parts[part] for part in sorted(parts))
        if hashlib.sha256(data).digest()[:8] != name:
            continue  # a part is damaged
        text = data.decode("utf-8", "surrogatepass")
        if kind == _RUN:
            manifest.run = text
        else:
            manifest.programs[name] = text
    return manifest


def read_all(directory: Path) -> Iterator[tuple[Path, Manifest]]:
    """The manifests of a cache directory by file name."""
    try:
        paths = sorted(path for path in (directory / FOLDER).iterdir() if path.suffix == ".keys")
    except OSError:  # none yet
        return
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # pruned by another process meanwhile
            manifest = read(path)
            if manifest.rows:  # else just made, by a process that is about to write to it
                yield path, manifest


def merged(manifests: Iterable[Manifest]) -> dict[str, Manifest]:
    """One manifest a run, by name."""
    result: dict[str, Manifest] = {}
    for manifest in manifests:
        whole = result.setdefault(manifest.run, Manifest(manifest.run))
        whole.notes |= manifest.notes
        whole.programs.update(manifest.programs)
        whole.damaged += manifest.damaged
    return result


def _text(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _name_rows(kind: int, name: str) -> bytes:
    text = _text(name)
    own = name_id(name)
    starts = range(0, len(text), _PART)
    return b"".join(_row(kind, start // _PART, len(text), own, text[start : start + _PART]) for start in starts)


def _row(kind: int, part: int, size: int, name: bytes, rest: bytes) -> bytes:
    row = _ROW.pack(0, kind, part, size, name, rest)
    return crc32c(row[4:]).to_bytes(4, "little") + row[4:]
