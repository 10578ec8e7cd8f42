"""The zygote: a clean interpreter that imports what programs may use, then forks one worker for each order.

The engine starts this file as a script with an empty environment and one socket. It holds no secret and reads
nothing that a worker wrote. When the engine's end of the socket closes, it ends every descendant and itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

_PACKAGES = (
    "prismem_core",
    "prismem_core.program",
    "prismem_core.program.sandbox",
    "prismem_core.program.validation",
)

# What programs import, and what those modules import on first use.
_PRELOAD = [
    "json",
    "re",
    "math",
    "hashlib",
    "collections",
    "collections.abc",
    "dataclasses",
    "typing",
    "datetime",
    "textwrap",
    "numpy",
    "numpy.linalg",
    "numpy.typing",
    "numpy.fft",
    "numpy.random",
    "numpy.ma",
    "numpy.polynomial",
    "numpy.char",
    "numpy.rec",
    "numpy.lib.stride_tricks",
    "_strptime",
    "calendar",
    "locale",
    "linecache",
    "traceback",
    "unicodedata",
    "stringprep",
    "heapq",
    "bisect",
    "copy",
    "string",
    "encodings.ascii",
    "encodings.latin_1",
    "encodings.utf_8",
    "encodings.utf_8_sig",
    "encodings.utf_16",
    "encodings.utf_16_le",
    "encodings.utf_32",
    "encodings.cp1252",
    "encodings.cp437",
    "encodings.idna",
    "encodings.punycode",
    "encodings.unicode_escape",
    "encodings.raw_unicode_escape",
]
_PRELOAD_WHERE_PRESENT = ["numpy.exceptions", "numpy.dtypes", "numpy.strings", "numpy._core._dtype_ctypes"]

_ORPHAN_CHECK_SECONDS = 2.0
_DYING_ORPHAN_SECONDS = 0.02


def _stand_in_packages() -> None:
    """Enter packages without running their `__init__`, so that only the few modules needed here are loaded."""
    root = os.path.abspath(__file__)
    for _ in range(4):
        root = os.path.dirname(root)
    for name in _PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(root, *name.split("."))]
        sys.modules[name] = package
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, package)


def _preload(numpy_folder: str) -> None:
    if numpy_folder not in sys.path:
        sys.path.append(numpy_folder)
    for name in _PRELOAD:
        importlib.import_module(name)
    for name in _PRELOAD_WHERE_PRESENT:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("prismem_core.program.sandbox.worker")
    importlib.import_module("prismem_core.program.validation.inspect_module")


def _warm_up() -> None:
    """Run once what imports or allocates on first use, so that every worker shares it."""
    import datetime
    import json

    import numpy as np

    datetime.datetime.strptime("2024-01-01", "%Y-%m-%d")
    square = np.ones((64, 64), np.float32)
    _ = square @ square
    np.linalg.svd(square)
    np.linalg.norm(square, axis=1)
    np.einsum("ij,jk->ik", square, square)
    np.argsort(square[0], kind="stable")
    np.argpartition(square[0], 3)
    np.unique(square)
    np.sort(np.array(["a"]))
    np.random.default_rng(0).standard_normal(2)
    repr(square)
    json.loads(json.dumps({"a": 1.5}, indent=1))


def _host_paths() -> tuple[str, ...]:
    """Folders of this machine that messages must not name, longest first."""
    import numpy as np

    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
    found.add(os.path.dirname(os.path.dirname(np.__file__)))
    found.update(next(iter(sys.modules[name].__path__)) for name in _PACKAGES)
    return tuple(sorted((path for path in found if len(path) > 1), key=lambda path: (-len(path), path)))


def _forget_files() -> None:
    """Leave no way to import from files: what is loaded now is all there is."""
    from importlib.machinery import BuiltinImporter, FrozenImporter

    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
    sys.path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()
    for name in _PACKAGES:
        sys.modules[name].__path__ = []


class Zygote:
    def __init__(self, descriptor: int) -> None:
        from prismem_core.program.sandbox import confinement
        from prismem_core.program.sandbox.blocking_channel import BlockingChannel

        self._confinement = confinement
        self._channel = BlockingChannel(descriptor)
        self._engine = os.getppid()
        self._workers: set[int] = set()
        self._serial = 0
        self._host_paths = _host_paths()
        _forget_files()
        confinement.adopt_orphans()
        confinement.prefer_in_shortage()
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Carry out orders until the engine is gone, then leave nothing running."""
        try:
            self._channel.send({"ready": True})
            while os.getppid() == self._engine:
                wait = _DYING_ORPHAN_SECONDS if self._sweep() else _ORPHAN_CHECK_SECONDS
                if not select.select([self._channel.fileno()], [], [], wait)[0]:
                    continue
                received = self._channel.receive()
                if received is None:
                    break
                order, descriptor = received
                if order["op"] == "spawn" and descriptor is not None:
                    self._channel.send(self._spawn(descriptor, order))
                else:
                    self._channel.send(self._end(order["pid"]))
        finally:
            self._end_all()

    def _spawn(self, descriptor: int, order: dict[str, Any]) -> dict[str, Any]:
        parent = os.getpid()
        self._serial += 1
        try:
            pid = os.fork()
        except OSError as error:
            os.close(descriptor)
            return {"refused": error.strerror or str(error)}
        if pid == 0:
            try:
                self._become_worker(parent, descriptor, order["memory_bytes"])
            finally:
                os._exit(1)
        os.close(descriptor)
        self._workers.add(pid)
        return {"pid": pid}

    def _become_worker(self, parent: int, descriptor: int, memory_bytes: int) -> None:
        from prismem_core.program.sandbox.blocking_channel import BlockingChannel
        from prismem_core.program.sandbox.worker import Worker

        self._channel.close()
        # Copies are reaped by the kernel: their exit status would be a way to tell the worker something.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if descriptor != 3:
            os.dup2(descriptor, 3)
        os.closerange(4, max(descriptor + 1, 64))
        self._confinement.enter(parent, self._serial, memory_bytes)
        Worker(BlockingChannel(3), self._host_paths).serve()
        os._exit(0)

    def _end(self, pid: int) -> dict[str, Any]:
        """Kill a worker with its process group and tell how it ended: wait status and processor seconds."""
        if pid not in self._workers:
            return {"status": 0, "cpu_seconds": 0.0}
        _kill(os.killpg, pid)
        _kill(os.kill, pid)
        _, status, usage = os.wait4(pid, 0)
        self._workers.discard(pid)
        return {"status": status, "cpu_seconds": usage.ru_utime + usage.ru_stime}

    def _sweep(self) -> bool:
        """Kill and reap descendants that no worker owns any more; whether one has yet to die.

        A worker that ended by itself stays a zombie until the engine asks for it, so that its pid is not given away.
        """
        dying = False
        for orphan in _children() - self._workers:
            _kill(os.kill, orphan)
            with contextlib.suppress(ChildProcessError):
                dying |= os.waitpid(orphan, os.WNOHANG)[0] == 0
        return dying

    def _end_all(self) -> None:
        while living := _children() | self._workers:
            for child in living:
                _kill(os.kill, child)
            try:
                ended, _ = os.waitpid(-1, 0)
            except ChildProcessError:
                return
            self._workers.discard(ended)


def _kill(how: Callable[[int, int], None], pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        how(pid, signal.SIGKILL)


def _children() -> set[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return {int(word) for word in file.read().split()}
    except OSError:
        return set()


def main() -> None:
    os.umask(0o077)
    _stand_in_packages()
    _preload(sys.argv[2])
    _warm_up()
    # Standard error served to tell why a start failed; from here on nothing may be written to it.
    os.dup2(0, 2)
    Zygote(int(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
