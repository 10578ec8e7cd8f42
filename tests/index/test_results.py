"""SearchResult: the shape every index hands out."""

from __future__ import annotations

import numpy as np

from prismem_core.index import SearchResult


def test_it_is_a_tuple_of_three_named_arrays() -> None:
    result = SearchResult(np.zeros((2, 1), np.float32), np.full((2, 1), -1), np.array([0, 1]))
    scores, ids, counts = result
    assert (scores is result.scores, ids is result.ids, counts is result.counts) == (True, True, True)
    assert SearchResult._fields == ("scores", "ids", "counts")
