"""Tests here run the kernels in the emulator, which needs g++ and no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from prismem_core.kernels.cuda import library
from tests.kernels.cuda import emulated


@pytest.fixture(scope="session", autouse=True)
def emulator() -> Iterator[None]:
    """The library of the emulator stands for that of the GPU."""
    if emulated.compiler() is None:
        pytest.skip("the emulator needs a C++ compiler, and there is no g++")
    before = os.environ.get(library.ENVIRONMENT)
    os.environ[library.ENVIRONMENT] = str(emulated.build(name="libprismem_cuda_emulator.so"))
    yield
    if before is None:
        del os.environ[library.ENVIRONMENT]
    else:
        os.environ[library.ENVIRONMENT] = before
