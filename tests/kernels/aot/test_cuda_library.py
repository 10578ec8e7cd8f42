"""The CUDA kernels as nvcc compiles them for sm_80 and sm_90a: no spill, tensor cores in tiles, limits kept."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys

import pytest

from prismem_core.bench.device import cuda_library
from prismem_core.kernels import machine_code
from prismem_core.kernels.machine_code import MachineCode

from . import limits

if cuda_library.compiler() is None:
    pytest.skip("there is no nvcc; put one on PATH or name it in CUDACXX", allow_module_level=True)
if importlib.util.find_spec("triton") is None and shutil.which("cuobjdump") is None:
    pytest.skip("reading machine code needs the cuobjdump of triton: pip install triton", allow_module_level=True)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MachineCode]:
    """Every kernel of the library by "name sm_90"."""
    library = tmp_path_factory.mktemp("cuda") / "libprismem_cuda.so"
    cuda_library.build(library, ["80", "90a"])
    found = machine_code.read(library)
    named = {f"{machine_code.readable(code.function)} sm_{code.sm}": code for code in found}
    assert len(named) == len(found)
    return named


def test_no_kernel_breaks_a_rule(kernels: dict[str, MachineCode]) -> None:
    broken = {
        name: rules for name, code in kernels.items() if (rules := list(machine_code.broken_rules(code, code.shared)))
    }
    assert broken == {}


def test_products_of_halves_in_tiles_run_on_tensor_cores(kernels: dict[str, MachineCode]) -> None:
    tiles = {name: code for name, code in kernels.items() if name.startswith(("scan_tiles<", "mmr_pool<"))}
    halves = {name: code.mma for name, code in tiles.items() if "<float" not in name}
    assert len(halves) >= 10
    assert all(halves.values()), halves


def test_rows_are_loaded_by_128_bits(kernels: dict[str, MachineCode]) -> None:
    readers = {
        name: code.wide_loads
        for name, code in kernels.items()
        if name.startswith(("scan_tiles<", "scan_rows<", "mmr_pool<", "mmr_steps<", "row_scales<"))
    }
    assert len(readers) >= 30
    assert all(readers.values()), readers


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="names need c++filt")
def test_limits_on_record_hold(kernels: dict[str, MachineCode]) -> None:
    path = limits.TABLE.with_name("cuda.json")
    found = {name: limits.amounts_of(code, code.shared) for name, code in kernels.items()}
    if "PRISMEM_WRITE_LIMITS" in os.environ:
        limits.write(path, {name: limits.joined(amounts, None) for name, amounts in found.items()})
    table = json.loads(path.read_text(encoding="utf-8"))
    assert set(found) == set(table)
    over = {name: words for name, amounts in found.items() if (words := limits.exceeded(amounts, table[name]))}
    assert over == {}, f"write new ones with PRISMEM_WRITE_LIMITS=1 {sys.executable} -m pytest {__file__}"
