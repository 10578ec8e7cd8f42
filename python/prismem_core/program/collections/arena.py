"""One matrix for the rows of many collections, so that a launch over several of them is one call of an op."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

_FIRST_ROWS = 1024


class Block:
    """The rows of one collection: `length` rows from `begin` on in the arena's matrix, with room for `reserved`."""

    def __init__(self) -> None:
        self.begin = self.length = self.reserved = 0


class RowArena:
    """Float32 rows of width `dimension`; not thread-safe.

    A row that was written stays where it is in its matrix, unchanged: a reader takes `matrix` and a block's place
    together, and may go on reading while blocks grow or move. What is left behind goes when the matrix is replaced.
    """

    def __init__(self, dimension: int) -> None:
        self.matrix: NDArray[np.float32] = np.empty((0, dimension), np.float32)
        self._top = 0
        self._blocks: weakref.WeakSet[Block] = weakref.WeakSet()

    def append(self, block: Block, rows: NDArray[np.float32]) -> None:
        """Write `rows` (n, dimension) behind the block's own."""
        length = block.length + len(rows)
        if length > block.reserved:
            self._make_room(block, length)
        self.matrix[block.begin + block.length : block.begin + length] = rows
        block.length = length
        self._blocks.add(block)

    def _make_room(self, block: Block, length: int) -> None:
        last = block.begin + block.reserved == self._top
        if last and block.begin + length <= len(self.matrix):
            block.reserved = length
            self._top = block.begin + length
            return
        reserved = 2 * length
        if self._top + reserved > len(self.matrix):
            self._replace(reserved)
        begin, old = self._top, self.matrix[block.begin : block.begin + block.length]
        self.matrix[begin : begin + block.length] = old
        block.begin, block.reserved = begin, reserved
        self._top = begin + reserved

    def _replace(self, extra: int) -> None:
        """A new matrix with all living blocks, close together, and room for as much again and `extra` rows."""
        living = list(self._blocks)
        capacity = max(2 * sum(block.reserved for block in living) + extra, _FIRST_ROWS)
        old, self.matrix = self.matrix, np.empty((capacity, self.matrix.shape[1]), np.float32)
        top = 0
        for block in living:
            self.matrix[top : top + block.length] = old[block.begin : block.begin + block.length]
            block.begin = top
            top += block.reserved
        self._top = top
