"""A worker that holds one built memory: index in it, retrieve in throw-away copies of it."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from prismem_core.errors import ArgumentError, CandidateError, LimitError, SandboxError
from prismem_core.program.sandbox.call import Call, none_result, text_result
from prismem_core.program.sandbox.collection_calls import Collections
from prismem_core.program.sandbox.engine_channel import ChannelClosed, EngineChannel, Meter, WatchedProcess
from prismem_core.program.sandbox.frames import FrameError
from prismem_core.program.sandbox.launcher import Launcher, ZygoteGone
from prismem_core.program.sandbox.limits import BackendHandler, Budget, CallReport, CollectionLimits, Limits

Result = TypeVar("Result")

_START = Budget(cpu_seconds=30.0, wall_seconds=60.0, ask_calls=0, embed_texts=0)


class MemoryWorker:
    """One worker process; made by `Sandbox.open`. `retrieve` may run in several threads, `index` in one at a time.

    A failure that the program reports (CandidateError `error`, `invalid`) leaves the worker usable; a limit, a death
    or a breach of the protocol in `index` ends it, and every later call says so. In `retrieve` it ends the copy alone.
    """

    def __init__(
        self,
        launcher: Launcher,
        limits: Limits,
        backend: BackendHandler | None,
        collections: CollectionLimits | None = None,
    ) -> None:
        self._launcher = launcher
        self._limits = limits
        self._backend = backend
        self._collections = None if collections is None else Collections(collections)
        # Held for whole calls in the worker itself, and for the order of a copy.
        self._lock = threading.Lock()
        self._ending = threading.Lock()
        self._ended: str | None = None
        self._owner = os.getpid()
        self._serials = itertools.count(1)
        pid, connection = launcher.spawn(limits.memory_bytes)
        self._pid = pid
        self._process = WatchedProcess(pid)
        self._channel = EngineChannel(connection)
        self._await_confinement()

    def __enter__(self) -> MemoryWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._pid

    def load(self, source: str, *, restrict_names: bool = True) -> CallReport:
        """Execute the program and build its `Memory`."""
        order = {
            "op": "open",
            "source": source,
            "restrict_names": restrict_names,
            "collections": self._collections is not None,
        }
        return self._build("loading the program", order)

    def index(self, units: Sequence[Mapping[str, Any]], raw_text: str) -> CallReport:
        """`Memory.index` with fresh `MemoryUnit`s of `units` and one session's text."""
        order = {"op": "index", "units": [dict(unit) for unit in units], "raw_text": raw_text}
        return self._build("index()", order)

    def retrieve(
        self, query: Mapping[str, Any], backend: BackendHandler | None = None, *, in_place: bool = False
    ) -> tuple[str, CallReport]:
        """`Memory.retrieve` in a copy of the worker as the last `index` left it; `backend` instead of the worker's own.

        `in_place` runs it in the worker itself, so that what one query does to the state is seen by the next.
        """
        order = {"op": "retrieve", "query": dict(query)}
        backend, budget = backend or self._backend, self._limits.retrieve
        if self._collections is not None:
            budget = self._collections.limits.of_retrieve(budget)
        if in_place:
            return self.call("retrieve()", order, budget, backend, text_result)
        return self._in_copy("retrieve()", order, budget, backend, text_result)

    def close(self) -> None:
        """End the worker and its copies."""
        self._end("it was closed")

    def _build(self, what: str, order: Mapping[str, Any]) -> CallReport:
        """A call that makes or changes the memory, and may add to its collections."""
        budget = self._limits.index
        if self._collections is not None:
            budget = self._collections.limits.of_index(budget)
        return self.call(what, order, budget, self._backend, none_result, building=True)[1]

    def call(
        self,
        what: str,
        order: Mapping[str, Any],
        budget: Budget,
        backend: BackendHandler | None,
        result: Callable[[dict[str, Any]], Result],
        *,
        building: bool = False,
    ) -> tuple[Result, CallReport]:
        """Run one order in the worker itself; `result` checks the answer and turns it into a value."""
        with self._lock:
            self._check_usable()
            meter = Meter(what, budget)
            meter.watch(self._process, fresh=False)
            call = Call(what, next(self._serials), self._channel, meter, budget, self._collections, building=building)
            try:
                self._channel.expect_silence()
                call.order(order)
                answer = call.answer(backend)
                report = call.report()
                return result(answer), report
            except ChannelClosed:
                raise self._death(what) from None
            except FrameError as error:
                self._end(str(error))
                raise CandidateError("protocol", f"{what}: {error}") from None
            except LimitError as error:
                self._end(str(error))
                raise
            except (CandidateError, ArgumentError):
                raise
            except BaseException:
                self._end("the engine's own side failed")
                raise

    def _await_confinement(self) -> None:
        """Return once the worker, which has seen no program yet, says that it has confined itself."""
        try:
            ready = self._channel.receive(Meter("starting a worker", _START)) == {"ready": True}
        except (ChannelClosed, FrameError, LimitError):
            ready = False
        if not ready:
            self._end("it could not confine itself")
            if not self._launcher.alive():
                raise ZygoteGone("the zygote ended while a worker was starting")
            raise SandboxError(
                "a worker could not confine itself: the limits of its process could not be set; "
                "check that the memory limit is at least 512 MiB"
            )

    def _in_copy(
        self,
        what: str,
        order: Mapping[str, Any],
        budget: Budget,
        backend: BackendHandler | None,
        result: Callable[[dict[str, Any]], Result],
    ) -> tuple[Result, CallReport]:
        mine, theirs = socket.socketpair()
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        channel = EngineChannel(mine)
        copy: WatchedProcess | None = None
        meter = Meter(what, budget)
        call = Call(what, next(self._serials), channel, meter, budget, self._collections)
        try:
            self._order_copy(what, theirs, meter)
            call.order(order)
            hello, pid = channel.receive_from(meter)
            if hello == {"unforked": True}:
                raise self._unforked()
            if hello != {"ready": True} or pid == self._pid:
                raise FrameError("a copy did not announce itself")
            copy = WatchedProcess(pid)
            meter.watch(copy, fresh=True)
            answer = call.answer(backend)
            report = call.report()
            return result(answer), report
        except ChannelClosed:
            if not self._launcher.alive():
                raise SandboxError("the sandbox ended while a memory program was running") from None
            raise CandidateError("died", f"the process ended by itself during {what}") from None
        except FrameError as error:
            raise CandidateError("protocol", f"{what}: {error}") from None
        finally:
            theirs.close()
            if copy is not None:
                copy.kill()
            channel.close()

    def _order_copy(self, what: str, connection: socket.socket, meter: Meter) -> None:
        with meter.engine_time():
            # A running index() is no part of this call.
            self._lock.acquire()
        try:
            self._check_usable()
            try:
                self._channel.expect_silence()
                self._channel.send({"op": "copy"}, meter, connection.fileno())
            except ChannelClosed:
                raise self._death(what) from None
            except FrameError as error:
                self._end(str(error))
                raise CandidateError("protocol", f"{what}: {error}") from None
        finally:
            self._lock.release()
        connection.close()

    def _unforked(self) -> Exception:
        """Whose fault it is that the worker could not fork: the machine's if the zygote cannot either."""
        try:
            pid, connection = self._launcher.spawn(self._limits.memory_bytes)
            connection.close()
            self._launcher.end(pid)
        except (SandboxError, ZygoteGone) as error:
            return SandboxError(f"no copy of a worker could be made: {error}")
        return CandidateError("died", "the program's process could not be copied: it used up its processes or memory")

    def _check_usable(self) -> None:
        if self._owner != os.getpid():
            raise SandboxError("a worker cannot be used in a forked process; open a new Sandbox there")
        if self._ended is not None:
            raise CandidateError("died", f"the worker ended earlier: {self._ended}")

    def _death(self, what: str) -> Exception:
        """The failure that stands for a worker which ended by itself."""
        status = self._end("it ended by itself")
        if status is None:
            return SandboxError("the sandbox ended while a memory program was running")
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGXCPU:
                return LimitError("limit:cpu", f"{what} used more than its processor time")
            how = f"killed by {signal.Signals(number).name}"
            if number == signal.SIGKILL:
                how += " (most often because the machine ran out of memory)"
        else:
            how = f"exit status {os.waitstatus_to_exitcode(status)}"
        return CandidateError("died", f"the process ended by itself during {what}: {how}")

    def _end(self, reason: str) -> int | None:
        """Kill the worker once; its wait status, or None if it had been ended before or the zygote is gone."""
        with self._ending:
            if self._ended is not None:
                return None
            self._ended = reason
        if self._owner != os.getpid():
            return None
        try:
            return self._launcher.end(self._pid)[0]
        except ZygoteGone:
            return None
        finally:
            self._process.kill()
            self._channel.close()
