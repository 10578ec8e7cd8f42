"""What a second process does with a store: fill it, read from it, or put until it is killed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ..contest import require
from .stores import KINDS

KEY_BYTES, VALUE_BYTES = 32, 100
GROUP = 10_000
"""Entries put at a time when a store is filled."""


def start(verb: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A process of this Python that does `verb`; its output is a pipe."""
    import prismem_core

    # The folder may be part of the package by an addition to its path, which a new process must make again.
    script = (
        f"import sys; sys.path[:] = {sys.path!r}; import prismem_core; "
        f"prismem_core.__path__[:] = {list(prismem_core.__path__)!r}; from {__name__} import main; main()"
    )
    return subprocess.Popen([sys.executable, "-c", script, verb, *map(str, arguments)], stdout=subprocess.PIPE)


def answer(verb: str, *arguments: object) -> dict[str, float]:
    """What a process that does `verb` says at its end; RuntimeError where it fails."""
    child = start(verb, *arguments)
    out, _ = child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"the process that should {verb} ended with {child.returncode}")
    found: dict[str, float] = json.loads(out)
    return found


def numbered(number: int) -> tuple[bytes, bytes]:
    """The key and the value of a put that is acknowledged by its number."""
    key = hashlib.sha256(number.to_bytes(8, "little")).digest()
    return key, (key * 4)[:VALUE_BYTES]


def _groups(count: int, values: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
    rng = np.random.default_rng(0)
    for begin in range(0, count, GROUP):
        size = min(GROUP, count - begin)
        keys, data = rng.bytes(size * KEY_BYTES), rng.bytes(size * VALUE_BYTES)
        yield (
            [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)],
            [data[at : at + VALUE_BYTES] for at in range(0, len(data), VALUE_BYTES)]
            if values == "random"
            else [b"x" * VALUE_BYTES] * size,
        )


def memory() -> dict[str, float]:
    """Resident bytes of this process now, its share of pages that others map too, and the most there were."""
    found = {}
    for path, names in (("/proc/self/smaps_rollup", ("Rss", "Pss")), ("/proc/self/status", ("VmHWM",))):
        for line in Path(path).read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in names:
                found[name] = float(rest.split()[0]) * 1024
    return found


def _fill(name: str, path: str, count: str, values: str, looked_up: str) -> None:
    """Put `count` entries in groups; leave some of them, spread over all, in the file `looked_up`."""
    require(KINDS[name].module, KINDS[name].library)
    before = memory()
    cpu = wall = 0.0
    store = KINDS[name].open(Path(path))
    every = max(1, int(count) // 20_000)
    with Path(looked_up).open("wb") as chosen:
        for keys, group in _groups(int(count), values):
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            store.put_many(keys, group)
            cpu += time.process_time() - cpu_start
            wall += time.perf_counter() - wall_start
            chosen.writelines(key + value for key, value in zip(keys[::every], group[::every], strict=True))
    wall_start, cpu_start = time.perf_counter(), time.process_time()
    store.flush()
    cpu += time.process_time() - cpu_start
    wall += time.perf_counter() - wall_start
    peak = memory()["VmHWM"] - before["Rss"]
    store.close()
    print(json.dumps({"cpu": cpu, "wall": wall, "peak": peak}))


def chosen_entries(looked_up: Path) -> list[tuple[bytes, bytes]]:
    """The entries that `fill` left in a file, in random order."""
    data = looked_up.read_bytes()
    size = KEY_BYTES + VALUE_BYTES
    found = [(data[at : at + KEY_BYTES], data[at + KEY_BYTES : at + size]) for at in range(0, len(data), size)]
    return [found[i] for i in np.random.default_rng(1).permutation(len(found))]


def _read(name: str, path: str, looked_up: str) -> None:
    """Open, get the entries of `looked_up`, and tell what memory that took and how many were wrong."""
    require(KINDS[name].module, KINDS[name].library)
    entries = chosen_entries(Path(looked_up))
    before = memory()
    store = KINDS[name].open(Path(path))
    wrong = sum(store.get(key) != value for key, value in entries)
    after = memory()
    store.close()
    print(json.dumps({"rss": after["Rss"] - before["Rss"], "pss": after["Pss"] - before["Pss"], "wrong": wrong}))


def _put(name: str, path: str, first: str) -> None:
    """Put numbered entries without end, and say the number of each once its put has returned."""
    store = KINDS[name].open(Path(path))
    number = int(first)
    while True:
        store.put(*numbered(number))
        os.write(1, b"%d\n" % number)
        number += 1


def _overwrite(name: str, path: str, count: str, size: str) -> None:
    """Put new values of `size` bytes, each its key again and again, under the numbered keys in turn, without end."""
    store = KINDS[name].open(Path(path))
    keys = [numbered(number)[0] for number in range(int(count))]
    os.write(1, b"ready\n")
    turn = 0
    while True:
        turn += 1
        for key in keys:
            store.put(key, turn.to_bytes(8, "little") + key * (int(size) // KEY_BYTES))


_VERBS: dict[str, Callable[..., None]] = {"fill": _fill, "read": _read, "put": _put, "overwrite": _overwrite}


def main() -> None:
    """Do the verb of the command line."""
    _VERBS[sys.argv[1]](*sys.argv[2:])
