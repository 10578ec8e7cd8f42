"""The library of CUDA kernels built by nvcc alone, where a tree is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .session import NotHere

SOURCES = Path(__file__).resolve().parents[2] / "kernels" / "cuda"


def compiler() -> str | None:
    """nvcc: that of CUDACXX or the one on PATH."""
    return os.environ.get("CUDACXX") or shutil.which("nvcc")


def build(target: Path, architectures: Sequence[str]) -> Path:
    """Compile every kernel for architectures such as "80" and "90a" into one library, with the CUDA runtime inside.

    NotHere where there is no nvcc or no source, RuntimeError with what nvcc says where it fails.
    """
    nvcc, sources = compiler(), sorted(SOURCES.glob("*.cu"))
    if nvcc is None or not sources:
        raise NotHere(
            "no library of CUDA kernels, and no nvcc to build it with" if sources else "no sources of kernels"
        )
    codes = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in architectures]
    flags = ["-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC", "-cudart", "static"]
    threads = ["--threads", str(min(os.cpu_count() or 1, 8))]
    include = ["-I", str(SOURCES), "-I", str(SOURCES / "include")]
    command = [nvcc, *flags, *threads, *codes, *include, *map(str, sources), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"nvcc failed: {(done.stderr or done.stdout)[-1500:]}")
    return target
