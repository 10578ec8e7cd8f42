"""Indexes on a device without one: torch on the CPU, small blocks, and kernels that NumPy stands in for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="an index on a device holds its rows through torch, which is not installed")
