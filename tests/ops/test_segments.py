"""Segments: the three ways to make them and what each refuses."""

from __future__ import annotations

import numpy as np
import pytest

from prismem_core.errors import ArgumentError
from prismem_core.ops import Segments


def test_ways_to_make_the_same_segments() -> None:
    made = (
        Segments([0, 2, 2, 5], [2, 0]),
        Segments.from_lengths(np.array([2, 0, 3], np.int32), np.array([2, 0], np.uint8)),
        Segments.grouped([(0, 2), (2, 2), (2, 5)], [2, 0]),
    )
    for segments in made:
        assert segments.ranges.tolist() == [[0, 2], [2, 2], [2, 5]]
        assert (segments.num_rows, segments.longest) == (2, 3)
        assert [segments.range_of(row) for row in range(2)] == [(2, 5), (0, 2)]
    assert Segments([0, 2, 5]).num_rows == 2
    assert Segments([0]).num_rows == Segments.from_lengths([]).num_rows == Segments.grouped([], []).num_rows == 0
    assert Segments([0]).longest == 0


def test_what_is_refused() -> None:
    for offsets in ([], [1.5, 2.0], [[0, 1]], [0, 3, 2], [-1, 0], ["0"]):
        with pytest.raises(ArgumentError, match="offsets: expected"):
            Segments(offsets)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="groups: row 1 has group 2, but there are 2 segments"):
        Segments([0, 1, 2], [0, 2])
    with pytest.raises(ArgumentError, match="groups: row 0 has group -1"):
        Segments([0, 1, 2], [-1])
    with pytest.raises(ArgumentError, match="lengths: expected no negative"):
        Segments.from_lengths([1, -1])
    with pytest.raises(ArgumentError, match="ranges: segment 1 goes from 3 to 2"):
        Segments.grouped([(0, 1), (3, 2)], [0])
    with pytest.raises(ArgumentError, match=r"ranges: expected shape \(s, 2\)"):
        Segments.grouped(np.zeros((2, 3), np.int64), [0])
    with pytest.raises(ArgumentError, match="does not fit into int64"):
        Segments(np.array([0, 2**63], np.uint64))


def test_segments_stay_as_they_were_checked() -> None:
    ranges, groups = np.array([[0, 1], [1, 3]]), np.array([1, 0])
    segments = Segments.grouped(ranges, groups)
    ranges[0, 1] = 99
    groups[0] = 99
    assert segments.ranges.tolist() == [[0, 1], [1, 3]]
    assert segments.groups is not None
    assert segments.groups.tolist() == [1, 0]
    for part in (segments.ranges, segments.groups):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 5
