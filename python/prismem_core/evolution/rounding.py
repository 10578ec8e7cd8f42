"""How scores are averaged and compared, whatever the order of additions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import SupportsFloat


def q(value: SupportsFloat) -> float:
    """The value as comparisons see it: rounded to 9 decimals."""
    return round(float(value), 9)


def mean(values: Iterable[SupportsFloat]) -> float:
    """The exactly summed mean; 0.0 for no values."""
    numbers = [float(value) for value in values]
    return math.fsum(numbers) / len(numbers) if numbers else 0.0
