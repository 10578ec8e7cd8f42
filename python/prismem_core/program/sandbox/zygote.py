"""The zygote: a clean interpreter that imports what programs may use, then forks one worker for each order.

The engine starts this file as a script with an empty environment and one socket. It holds no secret and reads
nothing that a worker wrote. When the engine's end of the socket closes, it ends every descendant and itself. With
namespaces it is two processes: an outer half that only waits, and the inner half, process 1 of a namespace, with
which everything in it ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any

_PACKAGES = (
    "prismem_core",
    "prismem_core.program",
    "prismem_core.program.sandbox",
    "prismem_core.program.sandbox.kernel",
    "prismem_core.program.validation",
)

_PARENT_CHECK_SECONDS = 2.0
_DYING_ORPHAN_SECONDS = 0.02
_DYING_SECONDS = 1.0


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


def _enter_namespaces(descriptor: int, without: frozenset[str]) -> tuple[str, str]:
    """Go on as process 1 of new namespaces where the kernel allows them; (state, text) of that layer."""
    from prismem_core.program.sandbox.kernel import namespaces

    if "namespaces" in without:
        return "off", "left off"
    engine = os.getppid()
    try:
        text = namespaces.enter()
    except OSError as error:
        return "missing", error.strerror or str(error)
    alive, held = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    inner = os.fork()
    if inner:
        os.close(descriptor)
        os.close(alive)
        _wait_outside(engine, inner)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    os.close(held)
    _die_with_outer_half(alive)
    return "witnessed" if os.getpid() == 1 else "missing", text


def _wait_outside(engine: int, inner: int) -> None:
    """The outer half: end with the inner one, and end that if the engine is gone."""
    while True:
        signal.sigtimedwait([signal.SIGCHLD], _PARENT_CHECK_SECONDS)
        ended, status = os.waitpid(inner, os.WNOHANG)
        if ended:
            os._exit(status and 1)
        if os.getppid() != engine:
            os.kill(inner, signal.SIGKILL)


def _die_with_outer_half(alive: int) -> None:
    from prismem_core.program.sandbox.kernel import calls

    calls.prctl(calls.PR_SET_PDEATHSIG, signal.SIGKILL)
    # From another namespace the parent's pid cannot be seen to change; its end of a pipe can.
    if select.select([alive], [], [], 0)[0]:
        os._exit(0)
    os.close(alive)


def _empty_root(inside: bool, without: frozenset[str]) -> tuple[str, str]:
    """(state, text) of the layer, which needs a mount namespace of its own."""
    from prismem_core.program.sandbox.kernel import namespaces

    if "empty_root" in without:
        return "off", "left off"
    if not inside:
        return "missing", "needs namespaces"
    try:
        return "witnessed", namespaces.empty_root()
    except OSError as error:
        return "missing", error.strerror or str(error)


class Zygote:
    def __init__(self, descriptor: int, host_paths: tuple[str, ...], layers: list[list[str]]) -> None:
        from prismem_core.program.sandbox import confinement
        from prismem_core.program.sandbox.blocking_channel import BlockingChannel

        self._confinement = confinement
        self._channel = BlockingChannel(descriptor)
        self._engine = os.getppid()
        self._workers: set[int] = set()
        self._serial = 0
        self._host_paths = host_paths
        self._layers = layers
        self._plan = _plan({name for name, state, _ in layers if state == "witnessed"})
        confinement.adopt_orphans()
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Carry out orders until the engine is gone, then leave nothing running."""
        try:
            self._channel.send({"ready": True, "layers": self._layers})
            while os.getppid() == self._engine:
                wait = _DYING_ORPHAN_SECONDS if self._sweep() else _PARENT_CHECK_SECONDS
                if not select.select([self._channel.fileno()], [], [], wait)[0]:
                    continue
                received = self._channel.receive()
                if received is None:
                    break
                order, descriptor = received
                if order["op"] == "spawn" and descriptor is not None:
                    self._channel.send(self._spawn(descriptor, order))
                else:
                    self._channel.send(self._end(order["number"], dying=order["dying"]))
        finally:
            self._end_all()

    def _spawn(self, descriptor: int, order: dict[str, Any]) -> dict[str, Any]:
        parent = os.getpid()
        self._serial += 1
        try:
            number = os.fork()
        except OSError as error:
            os.close(descriptor)
            return {"refused": error.strerror or str(error)}
        if number == 0:
            try:
                self._become_worker(parent, descriptor, order["memory_bytes"])
            finally:
                os._exit(1)
        os.close(descriptor)
        self._workers.add(number)
        return {"number": number}

    def _become_worker(self, parent: int, descriptor: int, memory_bytes: int) -> None:
        from prismem_core.program.sandbox.blocking_channel import BlockingChannel
        from prismem_core.program.sandbox.worker import Worker

        self._channel.close()
        # Copies are reaped by the kernel: their exit status would be a way to tell the worker something.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if descriptor != 3:
            os.dup2(descriptor, 3)
        os.closerange(4, max(descriptor + 1, 64))
        listener = self._confinement.enter(self._plan, parent, self._serial, memory_bytes)
        Worker(BlockingChannel(3), self._host_paths).serve(listener)
        os._exit(0)

    def _end(self, number: int, *, dying: bool) -> dict[str, Any]:
        """Kill a worker with its copies and tell how it ended: its wait status, and whether it had ended before.

        One that is `dying`, because its channel is closed, gets a moment to do so.
        """
        if number not in self._workers:
            return {"status": 0, "by_itself": False}
        by_itself = _has_ended(number, _DYING_SECONDS if dying else 0.0)
        _kill(os.killpg, number)
        _kill(os.kill, number)
        status = os.waitpid(number, 0)[1]
        self._workers.discard(number)
        # Its copies, which are in its group, were handed to this process when it ended.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-number, 0)
        return {"status": status, "by_itself": by_itself}

    def _sweep(self) -> bool:
        """Kill and reap descendants that no worker owns any more; whether one has yet to die.

        A worker that ended by itself stays a zombie until the engine asks for it, so that its pid is not given away.
        Only without seccomp can a process leave its worker's group; behind an empty root, which hides the processes
        from here, such a one ends with the namespace.
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
                _kill(os.killpg, child)
                _kill(os.kill, child)
            try:
                ended, _ = os.waitpid(-1, 0)
            except ChildProcessError:
                return
            self._workers.discard(ended)


def _plan(witnessed: set[str]) -> Any:
    from prismem_core.program.sandbox import confinement
    from prismem_core.program.sandbox.kernel import seccomp

    fork: seccomp.Fork = "plain"
    if "seccomp" in witnessed:
        fork = "notify" if "copies" in witnessed else "deny"
    return confinement.Plan(
        own_user="own_user" in witnessed,
        landlock="landlock" in witnessed,
        filter=seccomp.build_filter(fork) if "seccomp" in witnessed else None,
        fork=fork,
    )


def _has_ended(child: int, patience_seconds: float) -> bool:
    deadline = time.monotonic() + patience_seconds
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


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
    descriptor, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    without = frozenset(settings["without"])
    os.umask(0o077)
    _stand_in_packages()
    # Before the imports: a process with threads, which numpy may start, cannot make a user namespace.
    namespaces = _enter_namespaces(descriptor, without)
    from prismem_core.program.sandbox import confinement, preload
    from prismem_core.program.sandbox.kernel import witness

    confinement.prefer_in_shortage()
    preload.load(settings["numpy_folder"])
    preload.warm_up()
    host_paths = preload.host_paths(_PACKAGES)
    preload.forget_files(_PACKAGES)
    root = _empty_root(namespaces[0] == "witnessed", without)
    layers = witness.examine(without, namespaces, root)
    # Standard error served to tell why a start failed; from here on nothing may be written to it.
    os.dup2(0, 2)
    Zygote(descriptor, host_paths, layers).serve()


if __name__ == "__main__":
    main()
