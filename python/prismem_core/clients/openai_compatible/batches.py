"""Many calls on a bounded number of slots, handed over as they end."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from prismem_core.clients.openai_compatible.event_loop import EventLoop
from prismem_core.errors import RoleError

T = TypeVar("T")
_CLOSED = "the client was closed while calls were under way; open it anew"
_LOOK_SECONDS = 5.0
Work = Callable[[int, asyncio.Event], Awaitable[T]]


class Stopped(Exception):
    """A call was given up because another one of its batch failed."""


class _End:
    """What follows the last result of a batch."""


class Slots:
    """`width` slots that all batches of a client share, whichever threads they come from.

    A batch keeps at most `width` tasks alive, however many calls it holds, so that memory stays flat.
    """

    def __init__(self, loop: EventLoop, width: int) -> None:
        self._loop = loop
        self._width = width
        self._free = asyncio.Semaphore(width)
        self._open: set[_Batch[object]] = set()

    def each(self, count: int, work: Work[T]) -> Iterator[tuple[int, T]]:
        """(position, result) of `count` calls in the order in which they end.

        `work(position, stopped)` makes one. After the first failure no further call begins, the results of those under
        way are given, and then the failure is raised. Closing the iterator early ends the calls under way.
        """
        if count == 0:
            return
        loop = self._loop.start()
        batch = _Batch(count, work, self._free)
        try:
            loop.call_soon_threadsafe(self._begin, batch, min(count, self._width))
        except RuntimeError:
            raise RoleError(_CLOSED) from None
        ended = False
        try:
            while True:
                try:
                    item = batch.results.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    if loop.is_closed():
                        raise RoleError(_CLOSED) from None
                    continue
                if isinstance(item, _End):
                    ended = True
                    break
                yield item
        finally:
            if not ended and not loop.is_closed():
                loop.call_soon_threadsafe(batch.abandon)
        if batch.failure is not None:
            raise batch.failure

    def _begin(self, batch: _Batch[T], width: int) -> None:
        kept: _Batch[object] = batch  # type: ignore[assignment]
        self._open.add(kept)
        batch.begin(width, lambda: self._open.discard(kept))

    def stop_all(self) -> None:
        """Begin no further call of any batch; those under way are handed over. To be called in the loop."""
        for batch in list(self._open):
            batch.stop(RoleError("the job was stopped: no further call is made"))

    def fail_all(self) -> None:
        """End every batch; to be called in the loop."""
        for batch in list(self._open):
            batch.failure = batch.failure or RoleError(_CLOSED)
            batch.abandon()


class _Batch(Generic[T]):
    """The calls of one batch; everything but `results` belongs to the loop's thread."""

    def __init__(self, count: int, work: Work[T], free: asyncio.Semaphore) -> None:
        self.results: queue.SimpleQueue[tuple[int, T] | _End] = queue.SimpleQueue()
        self.failure: BaseException | None = None
        self._count = count
        self._work = work
        self._free = free
        self._next = 0
        self._stopped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._calling: set[asyncio.Task[None] | None] = set()

    def begin(self, width: int, on_end: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._serve()) for _ in range(width)]
        self._whole = loop.create_task(self._finish(on_end))

    def abandon(self) -> None:
        """End the calls under way."""
        self._stopped.set()
        for task in self._tasks:
            task.cancel()

    async def _finish(self, on_end: Callable[[], None]) -> None:
        try:
            await asyncio.wait(self._tasks)
        finally:
            on_end()
            self.results.put(_End())

    async def _serve(self) -> None:
        own = asyncio.current_task()
        while self._left():
            async with self._free:
                if not self._left():
                    return
                position = self._next
                self._next += 1
                self._calling.add(own)
                try:
                    result = await self._work(position, self._stopped)
                except Stopped:
                    return
                except Exception as failure:
                    self.stop(failure)
                    return
                finally:
                    self._calling.discard(own)
                self.results.put((position, result))

    def _left(self) -> bool:
        return self._next < self._count and not self._stopped.is_set()

    def stop(self, failure: BaseException) -> None:
        """Begin no further call."""
        self.failure = self.failure or failure
        self._stopped.set()
        for task in self._tasks:
            # Those that wait for a slot would wait for nothing.
            if task not in self._calling:
                task.cancel()
