"""A memory as one file: a ZIP archive of the program, the sessions and what was paid for (docs/formats.md).

    prismem-memory.json  program.py  sessions.jsonl  cache/prismem-cache  cache/segment-00000001.log ...

Members are stored without compression, so that reading one never makes more of it than the file holds.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from prismem_core.errors import DataError, SavedMemoryError
from prismem_core.jobs.whole_file import whole_file
from prismem_core.tasks.datasets.jsonl import load_jsonl
from prismem_core.tasks.datasets.source import Source
from prismem_core.tasks.history import Session

FORMAT = "prismem-memory"
FORMAT_VERSION = 1
HEAD = "prismem-memory.json"
_PROGRAM, _SESSIONS, _CACHE = "program.py", "sessions.jsonl", "cache/"
_CACHE_FILE = re.compile(r"prismem-cache|segment-[0-9]{8,12}\.log")
_ZIP = b"PK\x03\x04"
_NAME_AT = 30  # where the name of the first member of a ZIP archive begins
_LARGEST_HEAD = 1 << 20
_DAMAGE = (
    *(zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, KeyError, TypeError, ValueError),
    *(struct.error, OverflowError, RecursionError, DataError),
)


@dataclass(frozen=True)
class SavedMemory:
    """What a file holds: the program's text, the settings it ran with, who played the roles, and the sessions.

    `models` names those beyond the embedded default, by role.
    """

    program: str
    settings: Mapping[str, Any]
    roles: Mapping[str, str]
    models: Mapping[str, str]
    sessions: tuple[Session, ...]


def is_saved_memory(path: Path) -> bool:
    """Whether a file says of itself that it is a saved memory; raises OSError where it cannot be read."""
    with path.open("rb") as file:
        head = file.read(_NAME_AT + len(HEAD))
    return head.startswith(_ZIP) and head.endswith(HEAD.encode())


def write_saved(path: Path, memory: SavedMemory, cache: Path, version: str) -> None:
    """Write the file whole or not at all, in place of an older saved memory; `cache` is the folder of a closed cache.

    Raises SavedMemoryError where the path is taken by something else or cannot be written.
    """
    try:
        if path.exists() and (not path.is_file() or not (path.stat().st_size == 0 or is_saved_memory(path))):
            raise SavedMemoryError(f"{path} is there already and is no saved memory; name another file")
        with whole_file(path, replace=True) as file:
            _write(file, memory, cache, version)
    except OSError as error:
        raise SavedMemoryError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that exists and has room "
            "(what was saved there before is kept)"
        ) from error


def _write(file: BinaryIO, memory: SavedMemory, cache: Path, version: str) -> None:
    files = sorted(one for one in cache.iterdir() if _CACHE_FILE.fullmatch(one.name))
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "prismem_core": version,
        "settings": dict(memory.settings),
        "roles": dict(memory.roles),
        "models": dict(memory.models),
        "sessions": len(memory.sessions),
        "cache": [one.name for one in files],
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_member(HEAD), json.dumps(head, indent=2, sort_keys=True) + "\n")
        archive.writestr(_member(_PROGRAM), memory.program.encode("utf-8", "surrogatepass"))
        archive.writestr(_member(_SESSIONS), sessions_text(memory.sessions))
        for one in files:
            with one.open("rb") as source, archive.open(_member(_CACHE + one.name), "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, 1 << 20)


def _member(name: str) -> zipfile.ZipInfo:
    # The time of a member would be that of the machine's clock, which says nothing of the memory.
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.external_attr = 0o644 << 16
    return member


def sessions_text(sessions: Sequence[Session]) -> bytes:
    """One line of JSON Lines with the conversation (docs/data.md), nothing where there is no session."""
    if not sessions:
        return b""
    line = {
        "type": "conversation",
        "id": "memory",
        "sessions": [
            {
                "id": session.id,
                "time": session.timestamp,
                "turns": [{"id": turn.id, "speaker": turn.speaker, "text": turn.text} for turn in session.turns],
            }
            for session in sessions
        ],
    }
    # Half a surrogate pair is written as the escape that JSON has for it.
    return (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def read_saved(path: Path, cache: Path) -> SavedMemory:
    """What `write_saved` wrote; the files of its cache go into the folder `cache`. Every byte that counts is checked.

    Raises SavedMemoryError for a file that is missing, damaged, of another format or no saved memory.
    """
    with _reading(path) as archive:
        if archive.getinfo(HEAD).file_size > _LARGEST_HEAD:
            raise ValueError("its head is too long")
        head = json.loads(_bytes(archive, HEAD))
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise ValueError("its head names another format")
        if head.get("format_version") != FORMAT_VERSION:
            version = head.get("format_version")
            raise SavedMemoryError(f"{path} has format {version!r}; this version reads format {FORMAT_VERSION}")
        settings, roles, models = (dict(head[key]) for key in ("settings", "roles", "models"))
        program = _bytes(archive, _PROGRAM).decode("utf-8", "surrogatepass")
        sessions = _sessions(path, _bytes(archive, _SESSIONS).decode("utf-8"))
        if len(sessions) != head["sessions"]:
            raise ValueError(f"it has {len(sessions)} sessions, not {head['sessions']}")
        for name in head["cache"]:
            if not _CACHE_FILE.fullmatch(name):
                raise ValueError(f"{name!r} is no file of a cache")
            with _open(archive, _CACHE + name) as source, (cache / name).open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        return SavedMemory(program, settings, roles, models, sessions)


@contextmanager
def _reading(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; whatever is wrong with it inside the block is damage, told with what to do."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGE as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else f"{error}"
        raise SavedMemoryError(f"{path} is a damaged saved memory ({what}); restore it from a copy") from None
    except OSError as error:
        raise SavedMemoryError(f"cannot read {path}: {error.strerror or error}") from error


def _open(archive: zipfile.ZipFile, name: str) -> Any:
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    return archive.open(name)


def _bytes(archive: zipfile.ZipFile, name: str) -> bytes:
    with _open(archive, name) as member:
        data: bytes = member.read()
    return data


def _sessions(path: Path, text: str) -> tuple[Session, ...]:
    if not text:
        return ()
    source = Source(path.parent)
    histories = load_jsonl([(path.with_name(f"{path.name}, {_SESSIONS}"), text)], FORMAT, source).histories
    return tuple(session for history in histories.values() for session in history.sessions)
