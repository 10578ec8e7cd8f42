"""Ragged batches: which range of keys each row may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError

Integers = NDArray[np.int64]


def whole_numbers(values: Any, name: str, axes: int) -> Integers:
    """A contiguous int64 copy of whole numbers; ArgumentError for other types."""
    array = np.asarray(values)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # numpy makes an empty list float
    if array.dtype.kind not in "iu" or array.ndim != axes:
        raise ArgumentError(
            f"{name}: expected whole numbers with {axes} axes, got {array.dtype} of shape {array.shape}"
        )
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ArgumentError(f"{name}: a value does not fit into int64")
    return np.array(array, np.int64, order="C")


class Segments:
    """Ranges of keys, and which of them each row sees.

    `Segments(offsets)` cuts the keys into s neighbouring ranges: segment g holds keys offsets[g] <= key < offsets[g +
    1], and row i sees segment i. `groups` (one number a row) lets several rows share a segment, so that its keys are
    read once for all of them. Offsets may be a list or an integer array (s + 1,). Results count keys from the start of
    the row's own segment: a batch gives what its rows give one by one.
    """

    __slots__ = ("groups", "ranges")

    ranges: Integers
    groups: Integers | None

    def __init__(
        self, offsets: Sequence[int] | NDArray[Any], groups: Sequence[int] | NDArray[Any] | None = None
    ) -> None:
        bounds = checked_offsets(offsets)
        self._fill(np.ascontiguousarray(np.stack([bounds[:-1], bounds[1:]], axis=1)), groups)

    @classmethod
    def from_lengths(
        cls, lengths: Sequence[int] | NDArray[Any], groups: Sequence[int] | NDArray[Any] | None = None
    ) -> Segments:
        """Neighbouring segments of these lengths."""
        counts = whole_numbers(lengths, "lengths", 1)
        if counts.size and int(counts.min()) < 0:
            raise ArgumentError("lengths: expected no negative length")
        return cls(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)]), groups)

    @classmethod
    def grouped(
        cls, ranges: Sequence[tuple[int, int]] | NDArray[Any], groups: Sequence[int] | NDArray[Any]
    ) -> Segments:
        """Any ranges (s, 2) of first and past-the-last key, also with gaps or overlaps, and a group for each row."""
        pairs = np.asarray(ranges)
        pairs = whole_numbers(pairs.reshape(0, 2) if pairs.size == 0 else pairs, "ranges", 2)
        segments = cls.__new__(cls)
        segments._fill(pairs, groups)
        return segments

    def _fill(self, ranges: Integers, groups: Sequence[int] | NDArray[Any] | None) -> None:
        if ranges.shape[1] != 2:
            raise ArgumentError(f"ranges: expected shape (s, 2), got {ranges.shape}")
        wrong = np.flatnonzero((ranges[:, 0] < 0) | (ranges[:, 1] < ranges[:, 0]))
        if wrong.size:
            begin, end = ranges[wrong[0]]
            raise ArgumentError(f"ranges: segment {wrong[0]} goes from {begin} to {end}; expected 0 <= begin <= end")
        self.ranges = ranges
        self.ranges.flags.writeable = False  # checked once, so it must stay as it is
        self.groups = None
        if groups is not None:
            self.groups = whole_numbers(groups, "groups", 1)
            self.groups.flags.writeable = False
            wrong = np.flatnonzero((self.groups < 0) | (self.groups >= len(ranges)))
            if wrong.size:
                raise ArgumentError(
                    f"groups: row {wrong[0]} has group {self.groups[wrong[0]]}, but there are {len(ranges)} segments"
                )

    @property
    def num_rows(self) -> int:
        """How many rows these segments are for."""
        return len(self.ranges) if self.groups is None else len(self.groups)

    @property
    def longest(self) -> int:
        """Keys in the longest segment, 0 without any."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).max(initial=0))

    def range_of(self, row: int) -> tuple[int, int]:
        """First and past-the-last key that row `row` sees."""
        begin, end = self.ranges[row if self.groups is None else self.groups[row]]
        return int(begin), int(end)

    def check(self, num_rows: int, rows_name: str, num_keys: int, keys_name: str) -> None:
        """ArgumentError unless there is a segment for each row and every range lies within the keys."""
        if self.num_rows != num_rows:
            raise ArgumentError(
                f"segments: made for {self.num_rows} rows, but {rows_name} has {num_rows}; "
                "give one segment or one group a row"
            )
        end = int(self.ranges[:, 1].max(initial=0))
        if end > num_keys:
            raise ArgumentError(f"segments: a range ends at {end}, but {keys_name} has {num_keys} rows")


def checked_offsets(offsets: Sequence[int] | NDArray[Any]) -> Integers:
    """Offsets (s + 1,) of s neighbouring ranges as int64; ArgumentError where they fall, are negative or are none."""
    bounds = whole_numbers(offsets, "offsets", 1)
    if bounds.size == 0:
        raise ArgumentError("offsets: expected one number more than there are segments, so at least [0], got none")
    falling = np.flatnonzero(np.diff(bounds) < 0)
    if bounds[0] < 0 or falling.size:
        where = int(falling[0]) + 1 if falling.size else 0
        raise ArgumentError(
            f"offsets: expected numbers from 0 that never fall, got {bounds[where]} at position {where}"
        )
    return bounds


def ranges_of(segments: Segments | None, num_rows: int, num_keys: int) -> list[tuple[int, int]]:
    """The range of each row; all keys without segments."""
    return [(0, num_keys) if segments is None else segments.range_of(row) for row in range(num_rows)]
