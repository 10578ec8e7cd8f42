"""What a search of any index returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class SearchResult(NamedTuple):
    """Hits of m queries, best first: scores (m, c) float32, ids (m, c) int64, counts (m,) int64.

    c is the largest count. `counts` alone says how many cells of a row are hits: cells past it hold score -infinity and
    id -1, which may also be the id of a stored entry.
    """

    scores: NDArray[np.float32]
    ids: NDArray[np.int64]
    counts: NDArray[np.int64]
