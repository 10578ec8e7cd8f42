"""Each rule for machine code finds the kernel that breaks it, in Triton's cubins and in libraries of nvcc."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed: pip install triton", allow_module_level=True)

from prismem_core.kernels import machine_code
from prismem_core.kernels.triton import aot

ROOT = Path(__file__).resolve().parents[3]

EXPECTED = {
    "toys/sound": ("", ""),
    "toys/unaligned": ("neither 128-bit nor bulk loads", "neither 128-bit nor bulk loads"),
    "toys/no tensor cores": ("no tensor-core instruction", "no tensor-core instruction"),
    "toys/spills": ("spills: ", "spills: "),
    "toys/shared memory": ("bytes of shared memory a block, at most 166912", "at most 232448"),
    "toys/short": ("", "no tensor-core instruction of a warp group"),
    "toys/short with a reason": ("", ""),
    "toys/missing": ("says nothing of the arguments DOT", "says nothing of the arguments DOT"),
    "toys/unknown": ("has no arguments BK", "has no arguments BK"),
}


@pytest.fixture(scope="module")
def toys() -> dict[tuple[str, int], aot.Compiled]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels.aot.toy_kernels"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = [aot.from_json(json.loads(line)) for line in done.stdout.splitlines()]
    return {(result.name, result.sm): result for result in results}


@pytest.mark.parametrize("sm", [80, 90])
@pytest.mark.parametrize("name", list(EXPECTED))
def test_a_rule_finds_what_breaks_it(toys: dict[tuple[str, int], aot.Compiled], name: str, sm: int) -> None:
    complaints = toys[name, sm].complaints
    expected = EXPECTED[name][sm == 90]
    if not expected:
        assert complaints == ()
    else:
        assert any(expected in complaint for complaint in complaints), complaints


def test_tensor_cores_and_wide_loads_are_counted(toys: dict[tuple[str, int], aot.Compiled]) -> None:
    ampere, hopper = toys["toys/sound", 80], toys["toys/sound", 90]
    assert ampere.code is not None
    assert hopper.code is not None
    # 64 x 64 x 64 products a tile by 4 warps: 16 x 8 x 16 an instruction of a warp, 64 x 64 x 16 of a warp group.
    assert (ampere.code.mma, ampere.code.wgmma) == (64 * 64 * 64 // (16 * 8 * 16) // 4, 0)
    assert (hopper.code.mma, hopper.code.wgmma) == (0, 64 // 16)
    # Each tile is 64 x 64 halves, 8 a load, by 128 threads; two tiles, in the loop and twice before it.
    assert ampere.code.wide_loads == ampere.code.loads == 64 * 64 // 8 // 128 * 2 * 3


CUDA = """
extern "C" __global__ void sound(float* x, const float4* y) {
  float4 v = y[threadIdx.x];
  x[threadIdx.x] = v.x + v.y + v.z + v.w;
}
extern "C" __global__ void spills(float* x, int n) {
  float a[64];
  for (int i = 0; i < n; ++i) a[i] = x[i];
  for (int i = 0; i < n; ++i) x[i] = a[(i * 7) % n];
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc on PATH")
def test_a_library_of_several_architectures_is_read(tmp_path: Path) -> None:
    source, library = tmp_path / "toys.cu", tmp_path / "toys.so"
    source.write_text(CUDA, encoding="utf-8")
    codes = [f"-gencode=arch=compute_{sm},code=sm_{sm}" for sm in ("80", "90a")]
    command = ["nvcc", "-O3", "-shared", "-Xcompiler", "-fPIC", "-cudart", "static", *codes, "-o", str(library)]
    subprocess.run([*command, str(source)], check=True)
    found = {(code.function, code.sm): code for code in machine_code.read(library)}
    assert set(found) == {(name, sm) for name in ("sound", "spills") for sm in (80, 90)}
    for (name, _), code in found.items():
        assert bool(list(machine_code.broken_rules(code, code.shared))) == (name == "spills")
        assert (code.stack >= 256) == (name == "spills")
        assert (code.wide_loads > 0) == (name == "sound")


def test_a_file_without_machine_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.cubin"
    path.write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match=r"text\.cubin"):
        machine_code.read(path)
