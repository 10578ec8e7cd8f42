"""The CUDA kernels compiled by g++ for the emulator, and calls of them on arrays of numpy."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock

from prismem_core.arrays.device import HostDevice
from prismem_core.kernels import cuda
from prismem_core.kernels.cuda import library
from prismem_core.ops.registry import Op

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "kernels" / "cuda"
FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffp-contract=off")
WARNINGS = ("-Wall", "-Wextra", "-Wno-unknown-pragmas")
LARGEST = np.iinfo(np.int64).max


def compiler() -> str | None:
    """g++, or None where there is none."""
    return shutil.which("g++")


def build(
    *flags: str, link: tuple[str, ...] = ("-shared",), extra: tuple[Path, ...] = (), name: str = "library"
) -> Path:
    """The kernels and `extra` files for the emulator, with more flags; built once for each state of the sources."""
    files = [*sorted(SOURCES.glob("*.cu")), SOURCES / "emulator" / "machine.cpp", *extra]
    headers = [path for path in sorted(SOURCES.rglob("*")) if path.suffix in (".cuh", ".hpp", ".h")]
    state = hashlib.sha256(repr((flags, link, name)).encode())
    for path in (*files, *headers):
        state.update(path.read_bytes())
    folder = ROOT / "build" / "cuda-emulator" / state.hexdigest()[:16]
    target = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if target.is_file():
            return target
        objects = []
        for path in files:
            objects.append(folder / f"{path.name}.o")
            include = ("-I", str(SOURCES), "-I", str(SOURCES / "include"))
            command = [str(compiler()), *FLAGS, *WARNINGS, *flags, *include, "-x", "c++", "-c", str(path)]
            run([*command, "-o", str(objects[-1])])
        run([str(compiler()), *flags, *link, *map(str, objects), "-o", str(target)])
        for path in objects:
            path.unlink()
    return target


def run(command: list[str]) -> str:
    """Run a command and return what it prints; AssertionError with its output where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Counted(NamedTuple):
    """What the emulator has counted; bytes of global memory, and of them those read from the watched array."""

    read: int
    written: int
    watched: int
    tensor_operations: int
    launches: int


@contextmanager
def machine(seed: int = 1, removed: int = -1, watched: np.ndarray[Any, Any] | None = None) -> Iterator[list[Counted]]:
    """Settings of the emulator for a block; the list holds what was counted when the block ends."""
    loaded = library.library()
    start, size = (0, 0) if watched is None else (watched.ctypes.data, watched.nbytes)
    numbers = (ctypes.c_int64 * 5)()
    loaded.prismem_emulator_configure(
        ctypes.c_uint64(seed), ctypes.c_int(removed), ctypes.c_void_p(start), ctypes.c_uint64(size)
    )
    loaded.prismem_emulator_counters(numbers)
    counted: list[Counted] = []
    try:
        yield counted
    finally:
        loaded.prismem_emulator_counters(numbers)
        counted.append(Counted(*numbers))
        loaded.prismem_emulator_configure(ctypes.c_uint64(1), ctypes.c_int(-1), ctypes.c_void_p(0), ctypes.c_uint64(0))


def sync_counts() -> list[int]:
    """How often each barrier or wait was met so far."""
    numbers = (ctypes.c_int64 * 256)()
    library.library().prismem_emulator_sync_counts(numbers)
    return list(numbers)


def call(op: Op[Any, Any], arguments: dict[str, Any], **how: Any) -> tuple[Any, Any]:
    """The result of an op on the emulator, and the checked call; `how` is for the launcher."""
    checked = op.check(**arguments)

    def implementation(*given: Any) -> tuple[str, int, int]:
        values = list(given)
        if op.name == "segment_mean":
            cuda.segment_mean(*values, device=HostDevice())
            return "cuda", -1, -1
        for i in (0, 1):
            values[i] = values[i].view("uint16" if values[i].dtype.name == "bfloat16" else values[i].dtype)
        flag = np.full(1, LARGEST) if checked.raises else None
        launcher = getattr(cuda, op.name)
        launcher(*values, flag, device=HostDevice(), **how)
        if flag is None or flag[0] == LARGEST:
            return "cuda", -1, -1
        row, key = divmod(int(flag[0]), len(values[1]))
        ranges, groups = (None, None) if op.name == "similarity" else values[2:4]
        begin = 0 if ranges is None else int(ranges[row if groups is None else groups[row]][0])
        return "cuda", row, key - begin

    return op.launch(checked, implementation), checked
