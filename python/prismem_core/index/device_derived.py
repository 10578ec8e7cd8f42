"""What is computed from rows once and kept beside them: known for the first rows of each block, up to some row."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.index.device_blocks import Block, Blocks
from prismem_core.index.device_launchers import Launchers
from prismem_core.index.device_stream import Piece

Integers = NDArray[np.int64]


class PerBlock:
    """Arrays with as many rows as a block, and of how many rows from its start on they tell.

    Searches add to it, one at a time under `lock`; only a change, while no search runs, takes anything out.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._held: dict[int, tuple[Any, int]] = {}
        self.lock = threading.Lock()

    def get(self, block: Block) -> tuple[Any, int]:
        """The arrays of a block, None where there are none, and how many rows they tell of."""
        return self._held.get(block.start, (None, 0))

    def put(self, block: Block, arrays: Any, count: int) -> None:
        """Note that the arrays tell of the first `count` rows."""
        self._held[block.start] = (arrays, count)

    def held(self) -> list[tuple[Any, int]]:
        """All of them."""
        return list(self._held.values())

    def clear(self) -> None:
        """Take out everything."""
        self._held.clear()

    def forget_from(self, slot: int) -> None:
        """The rows from a slot on have changed, and blocks behind it may be gone."""
        starts = {block.start for block in self._blocks.blocks}
        for start, (arrays, count) in list(self._held.items()):
            if start not in starts:
                del self._held[start]
            else:
                self._held[start] = (arrays, min(count, max(0, slot - start)))

    def forget_rows(self, slots: Integers) -> None:
        """The rows of some ascending slots have changed."""
        for block, first, _ in self._blocks.split(slots):
            arrays, count = self.get(block)
            if arrays is not None:
                self.put(block, arrays, min(count, int(slots[first]) - block.start))


class Scales:
    """What makes rows unit vectors (`row_scales` of the kernels), so that each search reads the rows once."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._by_backend: dict[str, PerBlock] = {}
        self._lock = threading.Lock()

    def of(self, piece: Piece, launchers: Launchers) -> tuple[Any, Any] | None:
        """Powers and inverse lengths of the rows of a piece; None where they are not known."""
        with self._lock:
            known = self._by_backend.setdefault(launchers.backend, PerBlock(self._blocks))
        block = self._blocks.holding(piece.start)
        begin, end = piece.start - block.start, piece.start - block.start + piece.count
        with known.lock:
            arrays, count = known.get(block)
            if count < begin:
                return None
            if count < end:
                memory = self._blocks.memory
                if arrays is None:
                    shape, kind = (block.capacity,), memory.torch.float32
                    arrays = (memory.empty(shape, kind), memory.empty(shape, kind))
                found = launchers.row_scales(piece.rows[count - begin :], device=memory.launch_device())
                arrays[0][count:end], arrays[1][count:end] = found
                memory.settle()  # other threads, in streams of their own, may use them from now on
                known.put(block, arrays, end)
        return arrays[0][begin:end], arrays[1][begin:end]

    def forget_from(self, slot: int) -> None:
        """The rows from a slot on have changed, and blocks behind it may be gone."""
        for known in self._by_backend.values():
            known.forget_from(slot)

    def follow_update(self, slots: Integers, rows: Any, launchers: Launchers) -> None:
        """The rows of some ascending slots are now `rows`, side by side on the device."""
        memory = self._blocks.memory
        for backend, known in self._by_backend.items():
            if backend != launchers.backend:
                known.forget_rows(slots)
                continue
            found = launchers.row_scales(rows, device=memory.launch_device())
            for block, first, last in self._blocks.split(slots):
                arrays, _ = known.get(block)
                if arrays is not None:
                    places = memory.upload(slots[first:last] - block.start)
                    for array, fresh in zip(arrays, found, strict=True):
                        array.index_copy_(0, places, fresh[first:last])
