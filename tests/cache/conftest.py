"""What the cache's tests share: child processes, keys, and a reader of segments written from docs/formats.md alone."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import prismem_core
from prismem_core.digests import digest

PRELUDE = """
import os, signal, sys, threading, time, warnings
from prismem_core.cache import CacheWarning, ExecutionCache
from prismem_core.digests import digest
from prismem_core.errors import CacheError, PrismemError
"""


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python process that runs a script after PRELUDE; all are gone when the test ends."""
    children: list[subprocess.Popen[str]] = []
    path = str(Path(prismem_core.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def run(spawn: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Runs a script to its end and returns what it printed; fails with its error text when it fails."""

    def finish(script: str, *arguments: object) -> str:
        child = spawn(script, *arguments)
        out, error = child.communicate(timeout=60)
        assert child.returncode == 0, error
        return out

    return finish


def key(*parts: Any) -> str:
    return digest(*parts)


@dataclass(frozen=True)
class Record:
    offset: int
    size: int
    kind: int
    stage: str
    key: str
    cost: float
    stored_at: int
    value: bytes
    value_offset: int


# Of a record: CRC of the rest and the stage, kind, bytes of the stage, bytes of the value (high 16 bits, low 32), CRC
# of the value, cost, when it was stored, key.
HEAD = struct.Struct("<IBBHIIfI32s")


def crc32c(data: bytes, previous: int = 0) -> int:
    crc = previous ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def read_segment(path: Path) -> list[Record]:
    """All records of an undamaged segment file, every checksum and filling byte verified."""
    data = path.read_bytes()
    assert data[:32] == data[32:64]
    magic, version, salt, check = struct.unpack("<8sI4x8s4xI", data[:32])
    assert (magic, version, check) == (b"PMSEGMNT", 2, crc32c(data[:28]))
    seed = crc32c(salt)
    records = []
    offset = 64
    while offset < len(data):
        head_crc, kind, stage_size, high, low, value_crc, cost, stored_at, name = HEAD.unpack_from(data, offset)
        stage_end = offset + HEAD.size + stage_size
        assert head_crc == crc32c(data[offset + 4 : stage_end], seed)
        value_offset = -(-stage_end // 8) * 8
        value_end = value_offset + (high << 32 | low)
        value = data[value_offset:value_end]
        assert value_crc == crc32c(value, seed)
        end = -(-value_end // 8) * 8
        assert not any(data[stage_end:value_offset]) and not any(data[value_end:end])
        stage = data[offset + HEAD.size : stage_end].decode("ascii")
        records.append(Record(offset, end - offset, kind, stage, name.hex(), cost, stored_at, value, value_offset))
        offset = end
    assert offset == len(data)
    return records
