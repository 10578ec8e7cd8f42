"""Run this interpreter with words, and nvcc where builds look for it: the one on PATH, else that of the packages.

    python tests/kernels/with_compiler.py -m pytest tests/kernels

The packages of `cuda-toolkit` hold lib/, where nvcc and CMake look for lib64/ alone: LIBRARY_PATH says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

TOOLKIT = "cuda-toolkit[nvcc,cudart,cccl]==13.0.*"


def packaged() -> Path:
    """Where the packages put the toolkit."""
    return Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13"


def environment() -> dict[str, str]:
    """The environment, with CUDACXX and LIBRARY_PATH for nvcc; installs the packages where there is no nvcc at all."""
    found = dict(os.environ)
    if found.get("CUDACXX") or shutil.which("nvcc"):
        return found
    compiler = packaged() / "bin" / "nvcc"
    if not compiler.is_file():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", TOOLKIT], check=True)
    found["CUDACXX"] = str(compiler)
    found["PATH"] = os.pathsep.join([str(compiler.parent), found.get("PATH", "")])
    found["LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(packaged() / "lib"), found.get("LIBRARY_PATH", "")]))
    return found


if __name__ == "__main__":
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], environment())
