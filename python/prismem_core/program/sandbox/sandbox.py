"""The way in: open workers for memory programs, read a program's interface, without running it in the engine."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection
from types import TracebackType

from prismem_core.errors import ArgumentError, CandidateError, LimitError, ProgramError, SandboxError, WorkerLost
from prismem_core.program.interface import ProgramInterface
from prismem_core.program.sandbox.describe import Refused, interface_result
from prismem_core.program.sandbox.launcher import Launcher, ZygoteGone
from prismem_core.program.sandbox.layers import LAYERS, STANDARD, STRICT, Layer, Required, Tier, tier_of
from prismem_core.program.sandbox.limits import BackendHandler, CollectionBackend, CollectionLimits, Limits
from prismem_core.program.sandbox.memory_worker import MemoryWorker
from prismem_core.program.sandbox.recovery import again_if_lost
from prismem_core.program.sandbox.worker_process import WorkerProcess

_DESCRIBE = Limits(index_cpu_seconds=10.0, index_wall_seconds=25.0)

_REFUSED = (
    "programs run only confined, and here the layer {layer} is {state}: {why}. Use Linux 5.5 or newer, a container "
    "that allows seccomp and Landlock, or WSL2 (docs/security.md); for a program that you wrote and read yourself, "
    "--unsafe-no-sandbox (Sandbox(unsafe=True)) runs it unconfined"
)


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

    A zygote that ended is started again once for an order; WorkerLost if that fails too. Where a layer that `require`
    asks for is not witnessed, it refuses to run anything (SandboxError); `unsafe` runs programs all the same, which
    then can do whatever the engine's user can. docs/security.md says what each layer holds.

    For tests and measurements: `restrict_names=False` leaves a program all builtins and every loaded module, `without`
    leaves layers off.
    """

    def __init__(
        self,
        *,
        restrict_names: bool = True,
        require: Required = "standard",
        unsafe: bool = False,
        without: Collection[str] = (),
    ) -> None:
        if unknown := set(without) - set(LAYERS):
            raise ArgumentError(f"without: expected names among {', '.join(LAYERS)}, got {', '.join(sorted(unknown))}")
        if require not in ("standard", "strict"):
            raise ArgumentError(f"require: expected 'standard' or 'strict', got {require!r}")
        if unsafe and require == "strict":
            raise ArgumentError("require: 'strict' and unsafe=True contradict each other; leave one out")
        self._restrict_names = restrict_names
        self._require: Required = require
        self._unsafe = unsafe
        self._without = frozenset(without)
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

    def layers(self) -> tuple[Layer, ...]:
        """The layers that confine programs here, as they were tried when the zygote started."""
        return self._launcher().layers

    @property
    def tier(self) -> Tier:
        """`strict`, `standard`, or `weak` where programs run unconfined because `unsafe` says so."""
        return tier_of(self.layers())

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
        try:
            return again_if_lost(lambda: self._describe(source))
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

    def _describe(self, source: str) -> ProgramInterface:
        order = {"op": "describe", "source": source, "restrict_names": self._restrict_names}
        with self._worker(_DESCRIBE, None) as worker:
            return worker.call("loading the program", order, _DESCRIBE.index, None, interface_result)[0]

    def _worker(
        self, limits: Limits, backend: BackendHandler | None, collections: CollectionLimits | None = None
    ) -> MemoryWorker:
        def plain() -> MemoryWorker:
            return MemoryWorker(self._process(limits), limits, backend, collections)

        process = self._process(limits)
        return MemoryWorker(process, limits, backend, collections, None if self._copies() else plain)

    def _process(self, limits: Limits) -> WorkerProcess:
        for _ in range(2):
            launcher = self._launcher()
            try:
                return WorkerProcess.start(launcher, limits.memory_bytes)
            except ZygoteGone:
                self._drop(launcher)
        raise WorkerLost(
            "the sandbox ended twice while a worker was being made; see the system log for the reason", killed=False
        )

    def _copies(self) -> bool:
        """Whether workers can be copied: always without a filter, with one only where it asks the engine."""
        states = {layer.name: layer.state for layer in self.layers()}
        return states["copies"] == "witnessed" or states["seccomp"] != "witnessed"

    def _launcher(self) -> Launcher:
        with self._lock:
            if self._holder.owner != os.getpid():
                raise SandboxError("a Sandbox cannot be used in a forked process; make a new one there")
            if self._closed:
                raise SandboxError("the sandbox is closed; make a new one")
            if self._holder.launcher is None:
                launcher = Launcher(self._without)
                try:
                    self._check(launcher.layers)
                except SandboxError:
                    launcher.close()
                    raise
                self._holder.launcher = launcher
            return self._holder.launcher

    def _check(self, layers: tuple[Layer, ...]) -> None:
        """SandboxError unless every layer that is required was witnessed."""
        required = STRICT if self._require == "strict" else () if self._unsafe else STANDARD
        for layer in layers:
            if layer.name in required and layer.state != "witnessed":
                raise SandboxError(_REFUSED.format(layer=layer.name, state=layer.state, why=layer.witness))

    def _drop(self, launcher: Launcher) -> None:
        with self._lock:
            if self._holder.launcher is launcher:
                self._holder.close()
