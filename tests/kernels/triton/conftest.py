"""Kernels of Triton run in its interpreter here, on the CPU; tests are skipped where triton or torch is missing."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")

if importlib.util.find_spec("triton") is not None:
    from tests.kernels.triton import interpreter_shim

    interpreter_shim.install()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Numpy warns of what float32 does by itself: infinities, NaN, and rows of maxima without a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
