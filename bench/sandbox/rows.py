"""Rows of embeddings on their way to another process: through the socket, or in sealed memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.program.sandbox.engine_channel import EngineChannel, Meter
from prismem_core.program.sandbox.limits import Budget
from prismem_core.program.sandbox.sealed_memory import seal

from ..contest import OURS, Competitor, Contest, Finding, Goal, Job, Run, Work
from .child import Child
from .confined import Clocks

INLINE = "prismem, through the socket"
SEALED = "prismem, sealed for each"
KEPT = "prismem, sealed once for all"
_BUDGET = Budget(cpu_seconds=1e9, wall_seconds=1e9, ask_calls=0, embed_texts=0)
_KEPT_BYTES = 32 << 20

# What arrives is read once and kept, as memories keep their rows; beyond 32 MiB the oldest goes. If all went at once, a
# virtual machine would give the pages back to its host, and what is measured would be how it gets them again.
_RECEIVER = """
from prismem_core.program.sandbox.blocking_channel import BlockingChannel
from prismem_core.program.sandbox.sealed_memory import map_rows
channel, kept = BlockingChannel(descriptor), []
while received := channel.receive():
    order, sealed = received
    rows, columns = order["shape"]
    array = channel.receive_array(rows, columns) if sealed is None else map_rows(sealed, rows, columns)
    flat = array.reshape(-1)
    if order["writes"]:
        flat *= 2
    kept.append(array)
    if len(kept) > order["kept"]:
        del kept[0]
    channel.send({"sum": float(flat @ flat)})
"""


class _Receiver:
    def __init__(self, array: NDArray[np.float32], clocks: Clocks, writes: bool) -> None:
        self.array = array
        self._clocks = clocks
        self._writes = writes
        self._children: list[Child] = []
        self._kept: int | None = None

    def run(self, way: str) -> Run:
        """The array once to a process of its own."""
        child = Child(_RECEIVER)
        self._children.append(child)
        self._clocks.watch(child.pid)
        channel = EngineChannel(socket.socket(fileno=os.dup(child.socket.fileno())))
        if way == KEPT:
            self._kept = seal(self.array)
        kept = max(1, _KEPT_BYTES // self.array.nbytes)
        message = {"shape": list(self.array.shape), "kept": kept, "writes": self._writes}

        def send() -> float:
            meter = Meter("the transfer", _BUDGET)
            if way == INLINE:
                channel.send(message, meter, rows=self.array)
            else:
                sealed = seal(self.array) if way == SEALED else self._kept
                channel.send(message, meter, sealed)
                if way == SEALED and sealed is not None:
                    os.close(sealed)
            return float(channel.receive(meter)["sum"])

        for _ in range(2 * kept):
            send()
        return send

    def close(self) -> None:
        for child in self._children:
            self._clocks.unwatch(child.pid)
            child.close()
        if self._kept is not None:
            os.close(self._kept)


def _prepare(rows: int, columns: int, writes: bool, quick: bool) -> Contest:
    rows = min(rows, 64) if quick else rows
    clocks = Clocks()
    array = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    receiver = _Receiver(array, clocks, writes)
    expected = float(np.sum(np.square(array, dtype=np.float64))) * (4 if writes else 1)

    def check(_: Competitor, found: Any) -> Finding:
        return Finding("" if abs(found - expected) < 1e-3 * expected else f"the sum is {found}, expected {expected}")

    return Contest(
        f"random rows, read{' and scaled in place' if writes else ''} once and kept by the receiver",
        {"rows": rows, "dimension": columns},
        [Competitor(way, OURS, partial(receiver.run, way)) for way in (INLINE, SEALED, KEPT)],
        check,
        Work(),
        receiver.close,
        clocks.seconds,
    )


def _job(name: str, rows: int, columns: int, writes: bool = False) -> Job:
    return Job(
        f"sandbox/rows-{name}",
        f"{rows * columns * 4 / 2**20:.3g} MiB of embeddings to a worker; processor time of both sides",
        partial(_prepare, rows, columns, writes),
        (Goal(INLINE, SEALED, 1.0),),
    )


JOBS: Sequence[Job] = (
    _job("64k", 16, 1024),
    _job("320k", 20, 4096),
    _job("4m", 256, 4096),
    _job("32m", 2000, 4096),
    _job("320k-scaled", 20, 4096, writes=True),
)
