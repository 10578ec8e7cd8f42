"""Means, whatever the order of additions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import SupportsFloat


def mean(values: Iterable[SupportsFloat]) -> float:
    """The exactly summed mean; 0.0 for no values."""
    return mean_or_none(values) or 0.0


def mean_or_none(values: Iterable[SupportsFloat]) -> float | None:
    """The exactly summed mean; None for no values."""
    numbers = list(map(float, values))
    return math.fsum(numbers) / len(numbers) if numbers else None
