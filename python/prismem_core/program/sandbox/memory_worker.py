"""A worker that holds one built memory: index in it, retrieve in throw-away copies of it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from prismem_core.errors import ArgumentError, CandidateError, LimitError, SandboxError
from prismem_core.program.grafting import Graft
from prismem_core.program.sandbox.call import Call, none_result, text_result
from prismem_core.program.sandbox.collection_calls import Collections
from prismem_core.program.sandbox.engine_channel import ChannelClosed, Meter
from prismem_core.program.sandbox.frames import FrameError
from prismem_core.program.sandbox.limits import BackendHandler, Budget, CallReport, CollectionLimits, Limits
from prismem_core.program.sandbox.worker_process import WorkerProcess

Result = TypeVar("Result")

Again = Callable[[], "MemoryWorker"]


class MemoryWorker:
    """One worker process; made by `Sandbox.open`. `retrieve` may run in several threads, `index` in one at a time.

    A failure that the program reports (CandidateError `error`, `invalid`) leaves the worker usable; a limit, a death
    or a breach of the protocol in `index` ends it, and every later call says so. In `retrieve` it ends the copy alone.
    """

    def __init__(
        self,
        process: WorkerProcess,
        limits: Limits,
        backend: BackendHandler | None,
        collections: CollectionLimits | None = None,
        again: Again | None = None,
    ) -> None:
        """`again` makes a further worker without a program: where it is given, memories are built anew for a query."""
        self._process = process
        self._limits = limits
        self._backend = backend
        self._collections = None if collections is None else Collections(collections)
        self._again = again
        self._built_by: list[Callable[[MemoryWorker], object]] = []
        self._serials = itertools.count(1)
        self._finalizer = weakref.finalize(self, process.drop)

    def __enter__(self) -> MemoryWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    @property
    def copies(self) -> bool:
        """Whether the worker can be copied; where it cannot, each query builds the memory again."""
        return self._again is None

    def load(self, source: str, *, restrict_names: bool = True) -> CallReport:
        """Execute the program and build its `Memory`."""
        order = {
            "op": "open",
            "source": source,
            "restrict_names": restrict_names,
            "collections": self._collections is not None,
        }
        report = self._build("loading the program", order)
        self._remember(lambda worker: worker.load(source, restrict_names=restrict_names))
        return report

    def index(self, units: Sequence[Mapping[str, Any]], raw_text: str) -> CallReport:
        """`Memory.index` with fresh `MemoryUnit`s of `units` and one session's text."""
        order = {"op": "index", "units": [dict(unit) for unit in units], "raw_text": raw_text}
        report = self._build("index()", order)
        self._remember(lambda worker: worker.index(order["units"], raw_text))  # type: ignore[arg-type]
        return report

    def retrieve(
        self, query: Mapping[str, Any], backend: BackendHandler | None = None, *, in_place: bool = False
    ) -> tuple[str, CallReport]:
        """`Memory.retrieve` in a copy of the worker as the last `index` left it; `backend` instead of the worker's own.

        `in_place` runs it in the worker itself, so that what one query does to the state is seen by the next.
        """
        what, order = "retrieve()", {"op": "retrieve", "query": dict(query)}
        backend, budget = backend or self._backend, self._limits.retrieve
        if self._collections is not None:
            budget = self._collections.limits.of_retrieve(budget)
        if in_place:
            return self.call(what, order, budget, backend, text_result)
        if self._again is not None:
            with self._rebuilt(self._again) as fresh:
                return fresh.call(what, order, budget, backend, text_result)
        meter = Meter(what, budget)
        copy = self._process.copy(what, meter)
        return self._only_call(copy, meter, what, order, budget, backend)

    def attach(self, graft: Graft, backend: BackendHandler | None = None) -> MemoryWorker:
        """A copy of the worker that has taken in a retrieval-only revision, as `graft` plans it.

        It lives no longer than this worker, and is closed by the caller. Raises CandidateError or LimitError if the
        revision's code fails.
        """
        if not self.copies:
            raise SandboxError("a revision cannot be attached where workers cannot be copied; index again")
        what, budget = "attaching a revision", self._limits.index
        process = self._process.copy(what, Meter(what, budget))
        attached = MemoryWorker(process, self._limits, backend or self._backend)
        attached._collections = self._collections
        try:
            attached.call(what, graft.order(), budget, None, none_result)
        except BaseException:
            attached.close()
            raise
        return attached

    def freeze(self) -> None:
        """Stop the process until `thaw`: a memory that nobody uses can do nothing."""
        self._process.pause()

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._process.resume()

    def private_bytes(self) -> int:
        """Memory that the worker shares with no other process, in bytes; more where the kernel is not exact."""
        return self._process.private_bytes()

    def close(self) -> None:
        """End the worker and its copies."""
        self._finalizer.detach()
        self._process.end("it was closed")

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
        process = self._process
        with process.lock:
            process.check_usable()
            meter = Meter(what, budget)
            call = self._call(process, what, meter, budget, building=building)
            try:
                process.begin(meter)
                call.order(order)
                answer = call.answer(backend)
                report = call.report()
                return result(answer), report
            except ChannelClosed:
                raise process.death(what) from None
            except FrameError as error:
                process.end(str(error))
                raise CandidateError("protocol", f"{what}: {error}") from None
            except LimitError as error:
                process.end(str(error))
                raise
            except (CandidateError, ArgumentError):
                raise
            except BaseException:
                process.end("the engine's own side failed")
                raise
            finally:
                process.settle()

    def _build(self, what: str, order: Mapping[str, Any]) -> CallReport:
        """A call that makes or changes the memory, and may add to its collections."""
        budget = self._limits.index
        if self._collections is not None:
            budget = self._collections.limits.of_index(budget)
        return self.call(what, order, budget, self._backend, none_result, building=True)[1]

    def _call(self, process: WorkerProcess, what: str, meter: Meter, budget: Budget, *, building: bool = False) -> Call:
        serial = next(self._serials)
        return Call(what, serial, process.channel, meter, budget, process.sealed, self._collections, building=building)

    def _only_call(
        self,
        copy: WorkerProcess,
        meter: Meter,
        what: str,
        order: Mapping[str, Any],
        budget: Budget,
        backend: BackendHandler | None,
    ) -> tuple[str, CallReport]:
        """Run one order in a copy and end it; ArgumentError, CandidateError, LimitError or WorkerLost."""
        call = self._call(copy, what, meter, budget)
        try:
            copy.begin(meter, fresh=True)
            call.order(order)
            answer = call.answer(backend)
            report = call.report()
            return text_result(answer), report
        except ChannelClosed:
            raise copy.death(what) from None
        except FrameError as error:
            raise CandidateError("protocol", f"{what}: {error}") from None
        finally:
            copy.end("its query is answered")

    def _remember(self, step: Callable[[MemoryWorker], object]) -> None:
        if self._again is not None:
            self._built_by.append(step)

    def _rebuilt(self, again: Again) -> MemoryWorker:
        """A further worker in which everything was done that was done in this one."""
        fresh = again()
        try:
            for step in self._built_by:
                step(fresh)
        except BaseException:
            fresh.close()
            raise
        return fresh
