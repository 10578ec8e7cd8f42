"""Code compiled for an instruction set stays in its own namespace.

A std:: template compiled with AVX2 is a weak symbol; the linker keeps one copy for the whole program and may keep that
one, which then crashes a CPU without AVX2 in code that never asked for it.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
KERNELS = [
    CSRC / "simd" / "table.cpp",
    CSRC / "bench" / "limits.cpp",
    *(path for path in sorted((CSRC / "ops").glob("*.cpp")) if (path.parent / f"{path.stem}_launch.cpp").is_file()),
    *(path for path in sorted((CSRC / "codes").glob("code_*.cpp")) if path.stem != "code_search"),
]
ALLOWED_INCLUDES = re.compile(r'<cstdint>|<cstddef>|"(simd/\w+|bench/limits|prismem/rows)\.hpp"')

INTRINSICS = CSRC / "simd" / "intrinsics.hpp"
"""The one file that includes the compiler's intrinsics, or their stand-in in builds that test without such a CPU."""

AVX2_FLAGS = ["-mavx2", "-mfma", "-mf16c"]
AVX512_FLAGS = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"]
ISA_FLAGS = {"avx2": AVX2_FLAGS, "avx512": AVX2_FLAGS + AVX512_FLAGS}


def reachable(path: Path, seen: dict[Path, list[str]]) -> dict[Path, list[str]]:
    """Every file of the project that a kernel includes, with what it includes."""
    if path not in seen:
        seen[path] = re.findall(r"^\s*#\s*include\s+(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        for include in seen[path]:
            for folder in (CSRC, CSRC / "include"):
                target = folder / include.strip('"<>')
                if target.is_file():
                    reachable(target, seen)
    return seen


def test_kernels_include_the_simd_layer_alone() -> None:
    assert len(KERNELS) > 5
    files: dict[Path, list[str]] = {}
    for kernel in KERNELS:
        reachable(kernel, files)
    assert INTRINSICS in files
    for path, includes in files.items():
        if path == INTRINSICS:
            assert includes == ['"simde_intrinsics.hpp"', "<immintrin.h>"]
            continue
        for include in includes:
            assert ALLOWED_INCLUDES.fullmatch(include), f"{path.relative_to(CSRC)} includes {include}"


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="no such objects on this machine")
@pytest.mark.parametrize("isa", list(ISA_FLAGS))
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_objects_export_no_foreign_symbols(isa: str, kernel: Path, tmp_path: Path) -> None:
    compiler = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)
    if compiler is None or shutil.which("nm") is None:
        pytest.skip("needs a C++ compiler and nm")
    target = tmp_path / "kernel.o"
    # Without optimisation nothing is inlined away: every symbol that could leak is there.
    flags = ["-std=c++17", "-O0", "-fPIC", *ISA_FLAGS[isa]]
    flags += [f"-DPRISMEM_NAMESPACE={isa}", f"-DPRISMEM_TARGET_{isa.upper()}=1"]
    include = [f"-I{CSRC}", f"-I{CSRC / 'include'}"]
    subprocess.run([compiler, *flags, *include, "-c", str(kernel), "-o", str(target)], check=True)
    listing = subprocess.run(
        ["nm", "-C", "--defined-only", str(target)], check=True, capture_output=True, text=True
    ).stdout
    symbols = [line.split(maxsplit=2) for line in listing.splitlines()]
    shared = [name for _, kind, name in symbols if kind not in "tbdrnN"]  # lower case: seen in this object only
    assert shared
    foreign = [name for name in shared if f"prismem::{isa}::" not in name.split("(")[0]]
    assert foreign == []
