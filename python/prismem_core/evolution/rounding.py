"""How scores are compared, whatever the order of additions."""

from __future__ import annotations

from typing import SupportsFloat


def q(value: SupportsFloat) -> float:
    """The value as comparisons see it: rounded to 9 decimals."""
    return round(float(value), 9)
