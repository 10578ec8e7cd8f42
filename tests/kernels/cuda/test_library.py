"""The library that nvcc builds: how it loads without a driver, and what its machine code is made of."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from prismem_core.errors import NoImplementation
from prismem_core.kernels import machine_code
from tests.kernels.cuda import emulated

EMBED = Path(__file__).parent / "embed"
BUILT = ("80-real", "90a-real", "90-virtual")

TENSOR_CORES = ("scan_tiles", "mmr_poolINS0_4HalfE", "mmr_poolINS0_8BFloat16E")
WIDE_LOADS = ("scan_rows", "scan_tiles", "mmr_pool", "mmr_step", "row_scales")


@pytest.fixture(scope="module")
def folder() -> Path:
    """A build of another project that takes the kernels in."""
    if shutil.which("nvcc") is None or shutil.which("cmake") is None:
        pytest.skip("nvcc and cmake build the library, and one of them is not on PATH")
    to = emulated.ROOT / "build" / "cuda-embed"
    to.mkdir(parents=True, exist_ok=True)
    with FileLock(to.with_suffix(".lock")):
        emulated.run(["cmake", "-S", str(EMBED), "-B", str(to), "-DCMAKE_BUILD_TYPE=Release", "-DPRISMEM_CUDA=ON"])
        emulated.run(["cmake", "--build", str(to), "--parallel", "2"])
    return to


@pytest.fixture(scope="module")
def built(folder: Path) -> Path:
    """The library."""
    return next(folder.rglob("libprismem_cuda.so"))


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_a_program_in_cpp_links_it(folder: Path) -> None:
    scratch, architectures, available = emulated.run([str(folder / "embed")]).splitlines()
    assert int(scratch.split()[0]) > 0
    assert architectures.split() == list(BUILT)
    assert available == "available" or "driver" in available or "device" in available


def test_it_loads_without_a_driver_and_says_what_is_missing(built: Path) -> None:
    script = (
        "import sys; import prismem_core.kernels.cuda as cuda; print(cuda.available()); print(cuda.architectures());"
        "print(sorted({'torch', 'cupy', 'triton'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PRISMEM_CUDA_LIBRARY": str(built)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    available, architectures, libraries = done.stdout.splitlines()
    if not has_driver():
        assert available.startswith("(False, ")
        assert "an NVIDIA driver for CUDA" in available
    assert architectures.split() == list(BUILT)
    assert libraries == "[]"


def test_only_the_interface_leaves_it(built: Path) -> None:
    listing = emulated.run(["nm", "-D", "--defined-only", str(built)])
    names = [line.split()[-1] for line in listing.splitlines()]
    assert sorted(name for name in names if name.startswith("prismem")) == sorted(
        f"prismem_cuda_{name}" for name in ("message", "architectures", *emulated.library.SIGNATURES)
    )
    assert not [name for name in names if name.startswith("cuda")]


def test_machine_code(built: Path) -> None:
    try:
        codes = machine_code.read(built)
    except NoImplementation as error:
        pytest.skip(str(error))
    assert {code.sm for code in codes} == {80, 90}
    broken = []
    for code in codes:
        for rule in machine_code.broken_rules(code, code.shared):
            broken.append(f"{code.function} for sm_{code.sm}: {rule}")
        if any(name in code.function for name in TENSOR_CORES) and code.mma == 0:
            broken.append(f"{code.function} for sm_{code.sm} does not use the tensor cores")
        if any(name in code.function for name in WIDE_LOADS) and code.wide_loads == 0:
            broken.append(f"{code.function} for sm_{code.sm} loads nothing of sixteen bytes at a time")
    assert broken == []
    for name in (*TENSOR_CORES, *WIDE_LOADS):
        assert any(name in code.function for code in codes), f"no kernel is called {name}"
