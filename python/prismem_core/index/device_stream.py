"""Rows on their way: pieces of the blocks in the order of slots, those in host memory through two alternating buffers.

While one piece is searched the next one is copied, on a stream of its own. Two rules hold (a test watches them): a
buffer is written over only when the search of what was in it is done, and searched only when the copy into it is done.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from prismem_core.index.device_blocks import Blocks
from prismem_core.index.device_memory import DeviceMemory

_BUFFERS = 2


class Streams(Protocol):
    """Work for one device in two streams: that of searches (the caller's) and that of copies."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy in the stream of copies."""
        ...

    def copied(self) -> Any:
        """An event: all copies so far."""
        ...

    def searched(self) -> Any:
        """An event: all searches so far."""
        ...

    def copy_after(self, event: Any) -> None:
        """Later copies wait for the event."""
        ...

    def search_after(self, event: Any) -> None:
        """Later searches wait for the event."""
        ...

    def settle(self) -> None:
        """Wait on the host until both streams are done."""
        ...


class CudaStreams:
    """The current stream of torch, and one for copies."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._cuda = memory.torch.cuda
        self._device = memory.device
        self._copies = self._cuda.Stream(device=memory.device)

    def copy(self, target: Any, source: Any) -> None:
        with self._cuda.stream(self._copies):
            target.copy_(source, non_blocking=True)

    def copied(self) -> Any:
        return self._copies.record_event()

    def searched(self) -> Any:
        return self._cuda.current_stream(self._device).record_event()

    def copy_after(self, event: Any) -> None:
        self._copies.wait_event(event)

    def search_after(self, event: Any) -> None:
        self._cuda.current_stream(self._device).wait_event(event)

    def settle(self) -> None:
        self._copies.synchronize()
        self._cuda.current_stream(self._device).synchronize()


class HostStreams:
    """Everything at once, where an interpreter executes the kernels."""

    def copy(self, target: Any, source: Any) -> None:
        target.copy_(source)

    def copied(self) -> Any:
        return None

    def searched(self) -> Any:
        return None

    def copy_after(self, event: Any) -> None:
        pass

    def search_after(self, event: Any) -> None:
        pass

    def settle(self) -> None:
        pass


@dataclass(frozen=True)
class Piece:
    """Rows on the device for the slots from `start` on."""

    start: int
    rows: Any

    @property
    def count(self) -> int:
        """Its rows."""
        return int(self.rows.shape[0])


@dataclass
class _Step:
    start: int
    rows: Any
    on_host: bool
    buffer: Any = None
    ready: Any = None


class Stream:
    """Makes pieces of the rows of an index; one search at a time uses the two buffers, which are kept."""

    def __init__(self, blocks: Blocks, streams: Streams | None = None) -> None:
        self._blocks = blocks
        self._streams = streams
        self._buffers: list[Any] = []
        self._lock = threading.Lock()

    def reserved(self) -> AbstractContextManager[Any]:
        """To be held around `pieces`."""
        return self._lock if any(block.on_host for block in self._blocks.blocks) else nullcontext()

    def forget(self) -> None:
        """Give the buffers back."""
        self._buffers = []

    def pieces(self, count: int, most_rows: int | None = None) -> Generator[Piece]:
        """The rows of the first `count` slots, in their order, at most `most_rows` at a time.

        What is done with a piece must be in the current stream before the next one is asked for.
        """
        steps = self._steps(count, most_rows)
        waiting = [step for step in steps if step.on_host]
        if not waiting:
            yield from (Piece(step.start, step.rows) for step in steps)
            return
        streams = self._ready_streams()
        self._make_buffers(max(int(step.rows.shape[0]) for step in waiting))
        free: list[Any] = [streams.searched()] * _BUFFERS  # what was done with the buffers before is in that stream
        sent = 0

        def send() -> None:
            nonlocal sent
            if sent == len(waiting):
                return
            step, which = waiting[sent], sent % _BUFFERS
            step.buffer = self._buffers[which][: step.rows.shape[0]]
            streams.copy_after(free[which])
            streams.copy(step.buffer, step.rows)
            step.ready = streams.copied()
            sent += 1

        try:
            for _ in range(_BUFFERS):
                send()
            taken = 0
            for step in steps:
                if not step.on_host:
                    yield Piece(step.start, step.rows)
                    continue
                streams.search_after(step.ready)
                yield Piece(step.start, step.buffer)
                free[taken % _BUFFERS] = streams.searched()
                taken += 1
                send()
        except BaseException:
            streams.settle()  # nobody writes into the buffers, or reads them, behind the back of the next search
            raise

    def _steps(self, count: int, most_rows: int | None) -> list[_Step]:
        host_rows = max(1, self._blocks.sizes.host // self._blocks.row_bytes)
        steps = []
        for block, first, last in self._blocks.parts(0, count):
            limit = min(last - first, host_rows) if block.on_host else last - first
            limit = limit if most_rows is None else min(limit, most_rows)
            for begin in range(first, last, limit):
                rows = block.rows[begin : min(begin + limit, last)]
                steps.append(_Step(block.start + begin, rows, block.on_host))
        return steps

    def _ready_streams(self) -> Streams:
        if self._streams is None:
            memory = self._blocks.memory
            self._streams = CudaStreams(memory) if memory.on_gpu else HostStreams()
        return self._streams

    def _make_buffers(self, rows: int) -> None:
        if self._buffers and self._buffers[0].shape[0] >= rows:
            return
        self._buffers = []
        memory, shape = self._blocks.memory, (rows, self._blocks.dim)
        self._buffers = [memory.empty(shape, self._blocks.dtype) for _ in range(_BUFFERS)]
