"""The rows of an index on a device: blocks that are never moved, on the device or in host memory that it can read."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.index.device_memory import DeviceMemory, element_bytes

Integers = NDArray[np.int64]

_STAGING_BYTES = 16 << 20


@dataclass(frozen=True)
class BlockSizes:
    """Bytes: a block takes at least `least`, at most `most`, and on the host `host`.

    The first is what growing by single rows costs at a time; few large blocks keep launches few, so a block grows with
    the index (a quarter of it), and many rows that are added at once lie in one.
    """

    least: int = 64 << 20
    most: int = 4 << 30
    host: int = 64 << 20


@dataclass
class Block:
    """Rows (capacity, dim) for the slots from `start` on; in pinned host memory where `on_host`."""

    start: int
    rows: Any
    on_host: bool

    @property
    def capacity(self) -> int:
        """Slots that it has room for."""
        return int(self.rows.shape[0])

    @property
    def end(self) -> int:
        """The slot behind its last one."""
        return self.start + self.capacity


def planned(
    rows: int, capacity: int, row_bytes: int, room: int, sizes: BlockSizes, beside: int = 0
) -> list[tuple[int, bool]]:
    """Blocks for `rows` more rows in an index with room for `capacity`: (rows, on the host) of each.

    On the device a row takes `beside` bytes more, for what is kept beside it.
    """
    blocks: list[tuple[int, bool]] = []
    least, most, host = (max(1, size // row_bytes) for size in (sizes.least, sizes.most, sizes.host))
    while rows > 0:
        fits = room // (row_bytes + beside)
        if fits >= min(rows, least):
            size = min(max(rows, least, capacity // 4), most, fits)
            room -= size * (row_bytes + beside)
            blocks.append((size, False))
        else:
            size = host
            room = 0  # what follows is on the host too
            blocks.append((size, True))
        rows -= size
        capacity += size
    return blocks


class Blocks:
    """Slots of rows; knows nothing of ids, and of which slots are in use."""

    def __init__(self, memory: DeviceMemory, dim: int, dtype: str, sizes: BlockSizes | None = None) -> None:
        self.memory = memory
        self.dim = dim
        self.sizes = BlockSizes() if sizes is None else sizes
        self.row_bytes = dim * element_bytes(dtype)
        # Of a row, for what is kept beside it on the device, and in all, for rows that do not have it yet.
        self.beside_bytes = 0
        self.beside_missing: Callable[[], int] = lambda: 0
        self.dtype = memory.dtype(dtype)
        self.blocks: list[Block] = []

    @property
    def capacity(self) -> int:
        """Slots there is room for."""
        return self.blocks[-1].end if self.blocks else 0

    @property
    def bytes(self) -> int:
        """Memory of all rows."""
        return self.capacity * self.row_bytes

    @property
    def streamed_bytes(self) -> int:
        """Memory of those in host memory."""
        return sum(block.capacity for block in self.blocks if block.on_host) * self.row_bytes

    def grow(self, slots: int) -> int:
        """Make room for `slots` in all and return how many blocks were added; after a MemoryError none was."""
        before = len(self.blocks)
        try:
            self._append(slots - self.capacity, max(0, self.memory.room() - self.beside_missing()))
        except Exception as error:
            if not self.memory.is_shortage(error):
                self.shrink(before)
                raise
            # The device has less than it said; the host takes the rest.
            self.memory.collect()
            self._append_on_host(slots, before)
        return len(self.blocks) - before

    def _append(self, rows: int, room: int) -> None:
        for size, on_host in planned(rows, self.capacity, self.row_bytes, room, self.sizes, self.beside_bytes):
            make = self.memory.pinned if on_host else self.memory.empty
            tensor = make((size, self.dim), self.dtype)
            self.blocks.append(Block(self.capacity, tensor, on_host))
            self.memory.held += 0 if on_host else size * self.row_bytes

    def _append_on_host(self, slots: int, before: int) -> None:
        try:
            self._append(slots - self.capacity, 0)
        except Exception as error:
            self.shrink(before)
            if not self.memory.is_shortage(error):
                raise
            raise MemoryError(
                f"{slots} rows of {self.row_bytes} bytes fit neither into the memory of {self.memory.device} nor into "
                "that of the host; nothing was changed: add fewer rows, or keep them as float16"
            ) from error

    def shrink(self, count: int) -> None:
        """Give back the blocks behind the first `count`."""
        for block in self.blocks[count:]:
            self.memory.held -= 0 if block.on_host else block.capacity * self.row_bytes
        del self.blocks[count:]

    def trim(self, slots: int) -> None:
        """Give back blocks that lie behind the first `slots`."""
        self.shrink(sum(block.start < slots for block in self.blocks))

    def parts(self, begin: int, end: int) -> list[tuple[Block, int, int]]:
        """Blocks that hold the slots [begin, end), with the first and the last slot, counted in the block."""
        found = []
        for block in self.blocks:
            first, last = max(begin, block.start), min(end, block.end)
            if first < last:
                found.append((block, first - block.start, last - block.start))
        return found

    def holding(self, slot: int) -> Block:
        """The block that has a place for a slot."""
        return self.blocks[bisect.bisect_right(self.blocks, slot, key=lambda block: block.start) - 1]

    def split(self, slots: Integers) -> list[tuple[Block, int, int]]:
        """Blocks that hold the ascending `slots`, with the first and the last position among `slots`."""
        found = []
        for block in self.blocks:
            first, last = (int(edge) for edge in np.searchsorted(slots, (block.start, block.end)))
            if first < last:
                found.append((block, first, last))
        return found

    def gather(self, slots: Integers) -> Any:
        """The rows of ascending slots, side by side on the device."""
        out = self.memory.empty((slots.shape[0], self.dim), self.dtype)
        for block, first, last in self.split(slots):
            self._take(block, slots[first:last] - block.start, out[first:last])
        return out

    def _take(self, block: Block, places: Integers, out: Any) -> None:
        begin, count = int(places[0]), places.shape[0]
        if int(places[-1]) - begin == count - 1:
            out.copy_(block.rows[begin : begin + count])
        elif block.on_host:
            out.copy_(block.rows[self.memory.torch.from_numpy(places)])
        else:
            self.memory.torch.index_select(block.rows, 0, self.memory.upload(places), out=out)

    def scatter(self, slots: Integers, rows: Any) -> None:
        """Put rows (n, dim), of the same dtype and on the device, into ascending slots; after an error none was."""
        steps = []
        for block, first, last in self.split(slots):
            places, values = slots[first:last] - block.start, rows[first:last]
            if block.on_host:
                steps.append((block, self.memory.torch.from_numpy(places), values.cpu()))
            else:
                steps.append((block, self.memory.upload(places), values))
        for block, index, values in steps:
            block.rows.index_copy_(0, index, values)

    def close_gaps(self, kept: Integers) -> bool:
        """Move the rows of the ascending slots `kept` to the slots from 0 on; False, and nothing done, without memory.

        A row moves only to a lower slot, and what a step overwrites has moved before it: one small buffer is enough.
        """
        rows = max(1, _STAGING_BYTES // self.row_bytes)
        first = int(np.argmax(kept != np.arange(kept.shape[0]))) if kept.shape[0] else 0
        if not kept.shape[0] or int(kept[first]) == first:
            return True
        try:
            staging = self.memory.empty((min(rows, kept.shape[0] - first), self.dim), self.dtype)
            index = self.memory.empty((staging.shape[0],), self.memory.torch.int64)
        except Exception as error:
            if self.memory.is_shortage(error):
                return False
            raise
        for begin in range(first, kept.shape[0], rows):
            end = min(begin + rows, kept.shape[0])
            for block, low, high in self.split(kept[begin:end]):
                places, out = kept[begin + low : begin + high] - block.start, staging[low:high]
                if block.on_host:
                    out.copy_(block.rows[self.memory.torch.from_numpy(places)])
                else:
                    chosen = index[low:high]
                    chosen.copy_(self.memory.torch.from_numpy(places))
                    self.memory.torch.index_select(block.rows, 0, chosen, out=out)
            for block, low, high in self.parts(begin, end):
                offset = block.start - begin
                block.rows[low:high].copy_(staging[low + offset : high + offset])
        return True
