"""Certified codes of the rows that lie on a device: when they are made, and how they follow changes.

Rows in host memory have none: they are brought to the device whole, and searched there without.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError, NoImplementation
from prismem_core.index.device_blocks import Block, Blocks
from prismem_core.index.device_derived import PerBlock
from prismem_core.index.device_launchers import Launchers
from prismem_core.index.device_stream import Piece

Integers = NDArray[np.int64]

_LOGGER = logging.getLogger("prismem_core")

FEWEST_BYTES = 256 << 20
"""Automatic codes are for rows that take longer to read than the launches that codes add."""
SEARCHES_THAT_PAY = 8
"""Queries after which automatic codes are made: making them reads all rows and writes half as much or more."""
WORTHWHILE = 0.75
"""Automatic codes take at most this share of the bytes of the rows, or reading them would gain little."""
MOST_QUERIES = 128
"""Searches for more queries at a time are bound by products, of which codes need as many."""


class DeviceCodes:
    """Codes of one index by its policy: "never", "auto", "always", "int8" (the same with that kind) or "int4"."""

    def __init__(self, blocks: Blocks, policy: str, cosine: bool, launchers: Callable[[], Launchers]) -> None:
        self._blocks = blocks
        self._launchers = launchers
        self._cosine = cosine
        self._bits = 4 if policy == "int4" else 8
        self._at_once = policy in ("always", "int8", "int4")
        self._automatic = policy == "auto"
        self._searched = 0
        self._known = PerBlock(blocks)
        self._wanted = self._at_once
        self._keep_room()
        blocks.beside_missing = self._missing
        self.seconds = 0.0

    @property
    def bytes(self) -> int:
        """Memory on the device."""
        return sum(int(codes.bytes) for codes, _ in self._known.held())

    def present(self, slots: int) -> bool:
        """Whether all rows on the device, and at least one, have codes."""
        parts = self._resident(slots)
        return bool(parts) and all(self._known.get(block)[1] >= last for block, last in parts)

    def _resident(self, slots: int) -> list[tuple[Block, int]]:
        return [(block, last) for block, _, last in self._blocks.parts(0, slots) if not block.on_host]

    def count_searches(self, queries: int, slots: int) -> bool:
        """Whether automatic codes should be made before this search."""
        if not self._automatic or self._wanted or queries > MOST_QUERIES:
            return False
        if slots * self._blocks.row_bytes < FEWEST_BYTES:
            return False
        self._searched += queries  # a count lost between threads only makes them come later
        return self._searched > SEARCHES_THAT_PAY

    def make_automatic(self, slots: int) -> None:
        """Make them where there is room for all of them, else give them up; no search runs meanwhile."""
        self._automatic = False
        codes = self._kernels()
        if codes is None or not codes.supports(self._blocks.dim):
            return
        row_bytes = int(codes.row_bytes(self._blocks.dim, self._bits))
        rows = sum(block.capacity for block, _ in self._resident(slots))
        if row_bytes <= WORTHWHILE * self._blocks.row_bytes and rows * row_bytes <= self._blocks.memory.room():
            self._wanted = True
            self._keep_room()
            self.follow(slots)

    def _kernels(self) -> Any:
        """What makes and reads codes, or None where the kernels that are chosen now have no codes."""
        try:
            return self._launchers().codes
        except NoImplementation:
            return None

    def build(self, slots: int) -> None:
        """Make them anew, now; NoImplementation, ArgumentError and MemoryError say why that cannot be."""
        codes = self._launchers().codes
        if codes is None:
            raise NoImplementation(
                f"codes: the backend {self._launchers().backend!r} has none; use the kernels of Triton"
            )
        if not codes.supports(self._blocks.dim):
            raise ArgumentError(f"codes: rows of {self._blocks.dim} dimensions are searched without codes on a device")
        self._drop()
        self._wanted = True
        before = self.seconds
        self.seconds = 0.0
        try:
            self._extend(slots)
        except Exception:
            self.seconds = before
            self._give_up()
            raise
        self._keep_room()

    def follow(self, slots: int) -> None:
        """Rows have been added or have moved; without memory for their codes there are none any more."""
        if not self._wanted:
            return
        codes = self._kernels()
        if codes is None or not codes.supports(self._blocks.dim):
            return
        try:
            self._extend(slots)
        except Exception as error:
            if not self._blocks.memory.is_shortage(error):
                raise
            self._give_up()
            _LOGGER.warning(
                "%s has no memory for codes: the index is searched without them; build_codes() tries again",
                self._blocks.memory.device,
            )

    def _give_up(self) -> None:
        self._drop()
        self._wanted = False
        self._keep_room()
        self._blocks.memory.collect()

    def _keep_room(self) -> None:
        """Blocks that are made from now on leave room for the codes of their rows."""
        codes = self._kernels() if self._wanted else None
        if codes is None or not codes.supports(self._blocks.dim):
            self._blocks.beside_bytes = 0
        else:
            self._blocks.beside_bytes = int(codes.row_bytes(self._blocks.dim, self._bits))

    def _missing(self) -> int:
        """Bytes that the codes of blocks without any will take."""
        blocks = (block for block in self._blocks.blocks if not block.on_host and self._known.get(block)[0] is None)
        return sum(block.capacity for block in blocks) * self._blocks.beside_bytes

    def _drop(self) -> None:
        self._blocks.memory.held -= self.bytes
        self._known.clear()

    def _extend(self, slots: int) -> None:
        """Codes for all rows on the device that have none."""
        memory, codes = self._blocks.memory, self._launchers().codes
        began = time.perf_counter()
        device = memory.launch_device()
        for block, last in self._resident(slots):
            held, count = self._known.get(block)
            if count >= last:
                continue
            if held is None:
                if block.capacity * codes.row_bytes(self._blocks.dim, self._bits) > memory.room():
                    raise MemoryError(f"the codes of {block.capacity} rows exceed the memory left on {memory.device}")
                held = codes.empty(block.capacity, self._blocks.dim, self._bits, self._cosine, device=device)
                memory.held += int(held.bytes)
                self._known.put(block, held, 0)
            codes.encode_into(block.rows[count:last], held, count, device=device)
            self._known.put(block, held, last)
        memory.settle()
        self.seconds += time.perf_counter() - began

    def forget_from(self, slot: int) -> None:
        """The rows from a slot on have changed, and blocks behind it may be gone."""
        before = self.bytes
        self._known.forget_from(slot)
        self._blocks.memory.held -= before - self.bytes

    def follow_update(self, slots: Integers, rows: Any) -> None:
        """The rows of some ascending slots are now `rows`, side by side on the device."""
        touched = [part for part in self._blocks.split(slots) if self._known.get(part[0])[0] is not None]
        codes = self._kernels()
        if not touched:
            return
        if codes is None:
            self._known.forget_rows(slots)
            return
        memory = self._blocks.memory
        fresh = codes.encode(rows, self._bits, normalize=self._cosine, device=memory.launch_device())
        for block, first, last in touched:
            held, _ = self._known.get(block)
            places = memory.upload(slots[first:last] - block.start)
            for name in ("values", "scale", "error", "length"):
                getattr(held, name).index_copy_(0, places, getattr(fresh, name)[first:last])

    def of(self, piece: Piece, queries: int) -> Any:
        """The codes of the rows of a piece, or None where it is to be searched without."""
        if not self._wanted or queries > MOST_QUERIES:
            return None
        block = self._blocks.holding(piece.start)
        begin, end = piece.start - block.start, piece.start - block.start + piece.count
        held, count = self._known.get(block)
        return held.of(begin, end) if held is not None and count >= end else None
