"""The way in: open workers for memory programs, read a program's interface, without running it in the engine."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType

from prismem_core.errors import ArgumentError, CandidateError, LimitError, ProgramError, SandboxError
from prismem_core.program.interface import ProgramInterface
from prismem_core.program.sandbox.describe import Refused, interface_result
from prismem_core.program.sandbox.launcher import Launcher, ZygoteGone
from prismem_core.program.sandbox.limits import BackendHandler, CollectionBackend, CollectionLimits, Limits
from prismem_core.program.sandbox.memory_worker import MemoryWorker

_DESCRIBE = Limits(index_cpu_seconds=10.0, index_wall_seconds=25.0)


class _Holder:
    """The present launcher, apart from the Sandbox so that a finalizer can end it."""

    def __init__(self) -> None:
        self.launcher: Launcher | None = None
        self.owner = os.getpid()

    def close(self) -> None:
        launcher, self.launcher = self.launcher, None
        if launcher is None:
            return
        if self.owner == os.getpid():
            launcher.close()
        else:
            launcher.abandon()


class Sandbox:
    """Runs memory programs in confined processes; safe to share between threads; starts its zygote when first used.

    A zygote that ended is started again once for an order; SandboxError if that fails too. See docs/security.md for
    what the confinement holds and what it does not. `restrict_names=False` leaves a program all builtins and every
    loaded module, which shows what the process around it holds by itself; it is meant for tests of that.
    """

    def __init__(self, *, restrict_names: bool = True) -> None:
        self._restrict_names = restrict_names
        self._lock = threading.Lock()
        self._holder = _Holder()
        self._closed = False
        self._finalizer = weakref.finalize(self, self._holder.close)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def zygote_pid(self) -> int | None:
        """Process id of the zygote, None while there is none."""
        launcher = self._holder.launcher
        return launcher.pid if launcher else None

    def open(
        self,
        source: str,
        backend: BackendHandler,
        limits: Limits | None = None,
        collections: CollectionLimits | None = None,
    ) -> MemoryWorker:
        """A worker that has executed `source` and built its `Memory`; the caller closes it.

        With `collections` the program's backend has `collection` (interface "engine"), which `backend` must serve.
        Raises CandidateError or LimitError if the program fails, SandboxError if no worker can be made.
        """
        if collections is not None and not isinstance(backend, CollectionBackend):
            raise ArgumentError(
                f"backend: expected a CollectionBackend where collections are allowed, got {type(backend).__name__}"
            )
        worker = self._worker(limits or Limits(), backend, collections)
        try:
            worker.load(source, restrict_names=self._restrict_names)
        except BaseException:
            worker.close()
            raise
        return worker

    def describe(self, source: str) -> ProgramInterface:
        """The interface of a program, read in a throw-away process.

        ProgramError with the code of the failing check: what the inspection finds, `load_error` if executing the module
        fails, `too_slow` if it does not end.
        """
        with self._worker(_DESCRIBE, None) as worker:
            try:
                order = {"op": "describe", "source": source, "restrict_names": self._restrict_names}
                return worker.call("loading the program", order, _DESCRIBE.index, None, interface_result)[0]
            except Refused as refusal:
                raise ProgramError(refusal.code, str(refusal), refusal.line) from None
            except LimitError as error:
                code = "too_slow" if error.kind in ("limit:cpu", "limit:wall") else "load_error"
                raise ProgramError(code, str(error), error.line) from None
            except CandidateError as error:
                raise ProgramError("load_error", str(error), error.line) from None

    def close(self) -> None:
        """End every process of this sandbox."""
        with self._lock:
            self._closed = True
            self._holder.close()

    def _worker(
        self, limits: Limits, backend: BackendHandler | None, collections: CollectionLimits | None = None
    ) -> MemoryWorker:
        return self._with_launcher(lambda launcher: MemoryWorker(launcher, limits, backend, collections))

    def _with_launcher(self, order: Callable[[Launcher], MemoryWorker]) -> MemoryWorker:
        for _ in range(2):
            launcher = self._launcher()
            try:
                return order(launcher)
            except ZygoteGone:
                self._drop(launcher)
        raise SandboxError("the sandbox ended twice while a worker was being made; see the system log for the reason")

    def _launcher(self) -> Launcher:
        with self._lock:
            if self._holder.owner != os.getpid():
                raise SandboxError("a Sandbox cannot be used in a forked process; make a new one there")
            if self._closed:
                raise SandboxError("the sandbox is closed; make a new one")
            if self._holder.launcher is None:
                self._holder.launcher = Launcher()
            return self._holder.launcher

    def _drop(self, launcher: Launcher) -> None:
        with self._lock:
            if self._holder.launcher is launcher:
                self._holder.close()
