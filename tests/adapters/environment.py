"""The environment of `make check-adapters`: mem0, A-MEM and this project, made once, outside the checkout.

`python -m tests.adapters.environment [PYTEST ARGUMENTS]` makes what is missing and runs the tests in it; where it
cannot be made it says why and ends with 0. It lies in `$XDG_CACHE_HOME/prismem-core/` (`~/.cache` by default) and is
shared by all checkouts; PRISMEM_ADAPTERS_ENV names another one, which is used as it is. Only the standard library is
used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.vllm.environment import (
    ROOT,
    TORCH,
    CannotBuild,
    digest_of,
    locked,
    package,
    pip,
    project_requirements,
    run,
    step,
)

# The versions that the adapters are written for. torch comes first and by its own name: what A-MEM would have pip
# choose is the build for CUDA.
PACKAGES = ("mem0ai==2.2.1", "a-mem==0.2.6")
NEEDED_BYTES = 4 << 30


def main(arguments: list[str]) -> int:
    """Make the environment and run the tests in it; pytest's exit code."""
    try:
        python = environment()
        site = package(python, "adapters")
    except CannotBuild as reason:
        print(f"check-adapters: skipped, {reason}")
        return 0
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    chosen = [] if any((ROOT / word.partition("::")[0]).exists() for word in arguments) else ["tests/adapters"]
    command = [str(python), "-m", "pytest", *chosen, "--durations", "5", *arguments]
    return subprocess.run(command, cwd=ROOT, env=surroundings).returncode


def environment() -> Path:
    """The interpreter of the environment, made where it is missing."""
    given = os.environ.get("PRISMEM_ADAPTERS_ENV")
    if given:
        python = Path(given) / "bin" / "python"
        if not python.exists():
            raise CannotBuild(f"PRISMEM_ADAPTERS_ENV names {given}, which holds no bin/python")
        return python
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = f"py{sys.version_info[0]}.{sys.version_info[1]}"
    directory = cache / "prismem-core" / f"adapters-{digest_of(TORCH, *PACKAGES)[:12]}-{version}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotBuild(f"{directory} cannot be made: {error}") from None
    with locked(directory / ".lock"):
        return built(directory)


def built(directory: Path) -> Path:
    """The interpreter of the environment in `directory`, with every step that was not finished before."""
    python = directory / "venv" / "bin" / "python"
    if not (directory / ".steps" / "tools").exists():
        free = shutil.disk_usage(directory).free
        if free < NEEDED_BYTES:
            raise CannotBuild(f"{directory} has {free >> 20} MiB free and {NEEDED_BYTES >> 20} are needed")
        print(f"check-adapters: making {directory} (2.5 GB, some minutes; once)", flush=True)
    with step(directory, "venv") as needed:
        if needed:
            run([sys.executable, "-m", "venv", "--clear", str(directory / "venv")])
    with step(directory, "torch") as needed:
        if needed:
            pip(python, "install", TORCH)
    with step(directory, "packages") as needed:
        if needed:
            pip(python, "install", *PACKAGES)
    with step(directory, "tools", content=digest_of(*project_requirements())) as needed:
        if needed:
            pip(python, "install", *project_requirements())
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
