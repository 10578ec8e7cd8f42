"""Where each id lies: a hash table of positions that takes whole arrays of ids at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_EMPTY, _ERASED = -1, -2
_FEWEST_CELLS = 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class IdTable:
    """Open addressing over positions; `ids` is always the array that the positions count in.

    Equal ids never stand in it twice. At most half of the cells are taken, so that a step for all ids at once leaves
    few for the next one.
    """

    def __init__(self) -> None:
        self._cells: Integers = np.full(_FEWEST_CELLS, _EMPTY, np.int64)
        self._used = 0  # cells that are not empty, or more

    @property
    def bytes(self) -> int:
        """Memory of the table."""
        return int(self._cells.nbytes)

    def find(self, wanted: Integers, ids: Integers) -> Integers:
        """The position of each wanted id, or -1."""
        cells = self._cells_of(wanted, ids)
        found = np.full(wanted.shape[0], -1, np.int64)
        there = cells >= 0
        found[there] = self._cells[cells[there]]
        return found

    def reserve(self, count: int, ids: Integers) -> None:
        """Room for `count` entries more, so that inserting them cannot fail; MemoryError changes nothing."""
        if 2 * (self._used + count) <= self._cells.shape[0]:
            return
        live = self._cells[self._cells >= 0]
        size = _FEWEST_CELLS
        while size < 2 * (live.shape[0] + count):
            size *= 2
        # Twice that: entries that come one by one do not make it anew each time.
        self._fill(np.full(2 * size, _EMPTY, np.int64), live, ids)

    def rebuild(self, count: int, ids: Integers) -> None:
        """Take out everything and enter the positions 0 to count - 1."""
        size = _FEWEST_CELLS
        while size < 2 * count:
            size *= 2
        self._fill(np.full(size, _EMPTY, np.int64), np.arange(count), ids)

    def insert(self, positions: Integers, ids: Integers) -> None:
        """Enter ids[positions], which are not there and differ from each other."""
        self.reserve(positions.shape[0], ids)
        self._place(self._cells, positions, ids)
        self._used += positions.shape[0]

    def erase(self, wanted: Integers, ids: Integers) -> None:
        """Take out ids that are there."""
        self._cells[self._cells_of(wanted, ids)] = _ERASED

    def _fill(self, cells: Integers, positions: Integers, ids: Integers) -> None:
        self._place(cells, positions, ids)
        self._cells, self._used = cells, positions.shape[0]

    def _place(self, cells: Integers, positions: Integers, ids: Integers) -> None:
        mask = cells.shape[0] - 1
        at = _homes(ids[positions], cells.shape[0])
        while positions.size:
            free = cells[at] < 0
            cells[at[free]] = positions[free]  # of several that want one cell, the last has it
            left = cells[at] != positions
            positions, at = positions[left], (at[left] + 1) & mask

    def _cells_of(self, wanted: Integers, ids: Integers) -> Integers:
        """The cell that holds each id, or -1."""
        cells, mask = self._cells, self._cells.shape[0] - 1
        found = np.full(wanted.shape[0], -1, np.int64)
        open_, at = np.arange(wanted.shape[0]), _homes(wanted, cells.shape[0])
        while open_.size:
            positions = cells[at]
            hit = positions >= 0
            hit[hit] = ids[positions[hit]] == wanted[open_[hit]]
            found[open_[hit]] = at[hit]
            on = ~hit & (positions != _EMPTY)
            open_, at = open_[on], (at[on] + 1) & mask
        return found


def _homes(ids: Integers, cells: int) -> Integers:
    """The cell where the search for each id begins."""
    bits = cells.bit_length() - 1
    return np.asarray((ids.view(np.uint64) * _GOLDEN) >> np.uint64(64 - bits), np.int64)
