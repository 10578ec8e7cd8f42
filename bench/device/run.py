"""The steps of `bench/device_check.py` in their order, in this process and in helpers beside it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prismem_core.ops import on_device
from prismem_core.runs.provenance import commit

from .. import machine
from . import bad_inputs, codes, conformance, contest, cuda_library, index, precision
from .cases import all_cases
from .session import NotHere, Session
from .stage import Stage, stage
from .timing import ceilings

PARTS = ("conformance", "sanitizer", "bad inputs", "index", "precision", "timing")
RESULTS = Path(__file__).resolve().parents[1] / "results"


def main(words: argparse.Namespace, script: Path) -> int:
    """Run the parts that were asked for; 1 if a step failed, 2 if there is nothing to run on."""
    parts = [part.replace("-", " ") for part in words.parts or PARTS]
    if unknown := [part for part in parts if part not in PARTS]:
        print(f"--parts: expected some of {', '.join(PARTS)}, got {', '.join(unknown)}", file=sys.stderr)
        return 2
    try:
        here = stage(words.dry_run)
    except NotHere as missing:
        print(f"device_check: {missing}", file=sys.stderr)
        return 2
    device = describe(here)
    output = words.output or RESULTS / f"{device['gpu'].lower().replace(' ', '-')}.jsonl"
    common: dict[str, Any] = {"run": time.strftime("%Y-%m-%dT%H:%M:%S")} | ({"dry_run": True} if here.dry else {})
    session = Session(output, words.seconds, common, quiet=words.worker is not None)
    if words.worker is not None:
        work_of_a_helper(session, here, words.worker)
        return 0
    session.add("machine", device["gpu"], "ok", **device)
    if not here.dry and here.why_not("cuda") is not None and "PRISMEM_CUDA_LIBRARY" not in os.environ:
        session.step("machine", "CUDA library", 60.0, partial(build_library, here))
    for backend in on_device.BACKENDS:
        if (why := here.why_not(backend)) is not None:
            session.add("machine", backend, "missing", reason=why)
    helpers = [] if here.dry else start_helpers(session, script, words, parts)
    if "conformance" in parts and here.dry:
        for case in conformance.cases(here):
            session.step("conformance", case.name, 1.0, partial(conformance.check, here, case))
    for helper in helpers:
        helper.collect(session)
    if "conformance" in parts:
        for bits in (8, 4):
            for data in ("mixture", "all directions", "near copies"):
                name = f"codes of {bits} bits, triton, torch: {data}"
                session.step("conformance", name, 3.0, partial(codes.check, here, bits, data))
    if "bad inputs" in parts:
        check_bad_inputs(session, here)
    if "index" in parts:
        for name, needed, check in index.steps(here):
            session.step("index", name, needed, partial(found_by, here, check))
    if "precision" in parts:
        for kind in ("float32", "float16") if here.dry else ("float32", "float16", "bfloat16"):
            for dim in (64,) if here.dry else (1024, 4096):
                name = f"similarity, {kind}, d={dim}"
                session.step("precision", name, 3.0, partial(precision.errors, here, kind, dim))
    if "timing" in parts:
        measure(session, here)
    print(contest.summary(session.records))
    counts = ", ".join(f"{session.count(status)} {status}" for status in ("ok", "failed", "missing", "skipped"))
    print(f"steps: {counts}; records: {output}")
    return 1 if session.count("failed") else 0


def build_library(here: Stage) -> dict[str, Any]:
    """Build the CUDA kernels for the device at hand; helpers find them by the environment too."""
    major, minor = here.torch.cuda.get_device_capability()
    name = f"{major}{minor}{'a' if major == 9 else ''}"
    target = Path(tempfile.mkdtemp(prefix="cuda-library-")) / "libprismem_cuda.so"
    os.environ["PRISMEM_CUDA_LIBRARY"] = str(cuda_library.build(target, [name]))
    return {"bytes": target.stat().st_size}


def check_bad_inputs(session: Session, here: Stage) -> None:
    """Everything that users may get wrong, and sizes and streams that only a device has."""
    for check in bad_inputs.ANYWHERE:
        session.step("bad inputs", name_of(check), 2.0, partial(complaint_of, here, check))
    for check in bad_inputs.ON_A_DEVICE:
        if here.dry:
            session.add("bad inputs", name_of(check), "missing", reason="it needs a GPU")
        else:
            session.step("bad inputs", name_of(check), 5.0, partial(complaint_of, here, check))


def name_of(check: Callable[..., Any]) -> str:
    """The name of a check in words."""
    return check.__name__.replace("_", " ")


def found_by(here: Stage, check: Callable[[Stage], Mapping[str, Any]]) -> Mapping[str, Any]:
    """What a check of an index finds; on the CPU kernels run in the interpreter."""
    from prismem_core import ops

    with ops.use("triton") if here.dry else contextlib.nullcontext():
        return check(here)


def complaint_of(here: Stage, check: Callable[[Stage], str | None]) -> dict[str, Any]:
    """What a check says; on the CPU ops run in the interpreter."""
    from prismem_core import ops

    with ops.use("triton") if here.dry else contextlib.nullcontext():
        return {"complaint": check(here)}


def measure(session: Session, here: Stage) -> None:
    """The ceilings of this device, then every case against its rivals."""
    reached: dict[str, float] = {}
    session.step("timing", "ceilings", 4.0, lambda: reached.update(ceilings(here)) or reached)
    if not reached:
        return
    for case in all_cases():
        needed = 1.0 if here.dry else case.seconds
        session.step("timing", case.name, needed, partial(contest.hold, here, case, reached, needed))
        if not here.dry:
            here.torch.cuda.empty_cache()


def describe(here: Stage) -> dict[str, Any]:
    """The device, the versions that take part and which implementation serves it."""
    from prismem_core import ops

    torch = here.torch
    libraries = {
        "torch",
        "triton",
        "numpy",
        "cupy",
        "cupy-cuda12x",
        "cupy-cuda13x",
        "cuvs-cu12",
        "cuvs-cu13",
        "faiss-gpu",
    }
    found: dict[str, Any] = {"gpu": "dry run", "versions": machine.versions(libraries), "commit": commit()}
    if not here.dry:
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": properties.name,
            "sm": properties.major * 10 + properties.minor,
            "memory": properties.total_memory,
            "processors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
        }
    for backend in here.backends:
        with contextlib.suppress(Exception), ops.use(backend):
            found[backend] = ops.explain("top_k", torch.zeros(1, 4, device=here.device))
    return found


class Helper:
    """This script in another process, which checks a share of the cases."""

    def __init__(
        self, name: str, command: list[str], output: Path, seconds: float, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._output = output
        self._end = time.monotonic() + seconds
        self._log = output.with_suffix(".log").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, env=dict(environment))

    def collect(self, session: Session) -> None:
        """Wait, then take over what it found."""
        try:
            code = self._process.wait(timeout=max(self._end - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            session.add("helpers", self.name, "skipped", reason="it was ended at its deadline")
            code = 0
        if self._output.is_file():
            for line in self._output.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    session.keep({**json.loads(line), **session.common})
        if code:
            self._log.seek(0)
            session.add("helpers", self.name, "failed", reason=f"exit code {code}: {self._log.read()[-1500:]}")
        self._log.close()


def start_helpers(session: Session, script: Path, words: argparse.Namespace, parts: list[str]) -> list[Helper]:
    """Processes that compile what is timed and check conformance, and one under compute-sanitizer."""
    folder = Path(tempfile.mkdtemp(prefix="device-check-"))
    seconds = min(session.left * 0.4, 120.0)
    count = words.workers or max(1, min((os.cpu_count() or 2) - 2, 12))
    helpers = []

    def start(name: str, before: list[str], share: str, environment: Mapping[str, str]) -> None:
        output = folder / f"{name.replace(' ', '-').replace('/', '-')}.jsonl"
        own = [
            sys.executable,
            str(script),
            "--worker",
            share,
            "--output",
            str(output),
            "--seconds",
            f"{seconds - 5:.0f}",
        ]
        helpers.append(Helper(name, [*before, *own], output, seconds, environment))

    if "conformance" in parts:
        for number in range(count):
            start(f"share {number}", [], f"{number}/{count}", os.environ)
    if "sanitizer" in parts:
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            session.add("sanitizer", "memcheck", "missing", reason="compute-sanitizer is not on PATH")
        else:
            environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
            start("sanitizer", [tool, "--tool", "memcheck", "--error-exitcode", "9"], "sanitizer", environment)
    return helpers


def work_of_a_helper(session: Session, here: Stage, share: str) -> None:
    """A share of the conformance cases; first, what is timed later is compiled, into the cache that all share."""
    if share == "sanitizer":
        for case in small_cases(here):
            session.step("sanitizer", case.name, 2.0, partial(conformance.check, here, case))
        return
    number, count = (int(part) for part in share.split("/"))
    for timed in list(all_cases())[number::count]:
        with contextlib.suppress(Exception):  # it is timed, and its failure told, later
            contest.compile_only(here, timed)
    here.torch.cuda.empty_cache()
    for case in conformance.cases(here)[number::count]:
        session.step("conformance", case.name, 2.0, partial(conformance.check, here, case))


def small_cases(here: Stage) -> Iterator[conformance.Case]:
    """A few calls of each op and backend for a checker that makes them a hundred times as slow."""
    for case in conformance.cases(here):
        label = case.example.label
        if case.lender == "torch" and label in ("17x33x63", "mask", "ragged", "grouped", "device float32", "float32"):
            yield case
