"""Runs many programs in one sandbox, a third of them hostile: `python many_programs.py FOLDER COUNT < job.json`.

The job holds the hostile programs (`programs`: name to source) and how often to measure (`every`). A JSON line a
measurement tells what the engine, the zygote and the system hold by then; the last one, `finished`, is taken after the
sandbox was closed. FOLDER is the only place where this process may leave a temporary file.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

from attack_run import LIMITS, Attack, CountingBackend
from canaries import Canaries
from processes import descendants, open_descriptors, wait_until

from prismem_core.program import library
from prismem_core.program.sandbox import Sandbox

GONE_SECONDS = 30.0


def run_harmless(sandbox: Sandbox, number: int) -> str | None:
    """What went wrong with a program that only answers from its own units."""
    text = f"unit of program {number}"
    with sandbox.open(library.source("seed"), CountingBackend(), LIMITS) as worker:
        worker.index([{"memory_text": text}], "")
        found = worker.retrieve({"query_text": "unit"})[0]
    return None if text in found else f"harmless program {number} answered {found[:100]!r}"


def run_hostile(sandbox: Sandbox, canaries: Canaries, name: str, source: str) -> str | None:
    """What a hostile program has reached."""
    attack = Attack(sandbox, canaries.raw_text(), ())
    attack.run(source)
    reached = [*canaries.traces(), *attack.traces(), *(text for text in attack.results if text.startswith("LEAK:"))]
    canaries.restore()
    return f"{name}: {reached}" if reached else None


def held(sandbox: Sandbox) -> dict[str, Any]:
    """Memory and descriptors of the engine and of the zygote's processes, once no worker is left."""
    own, outer = os.getpid(), sandbox.zygote_pid
    assert outer is not None
    zygote = {outer, *_inner(outer)}
    gone = wait_until(lambda: descendants(own) <= zygote, GONE_SECONDS)
    return {
        "processes": len(descendants(own) - zygote) if not gone else 0,
        "zygote": sorted(zygote),
        "engine_kib": _resident_kib(own),
        "zygote_kib": sum(_resident_kib(pid) for pid in zygote),
        "descriptors": open_descriptors(),
    }


def _inner(outer: int) -> set[int]:
    """The half of the zygote in the namespaces, where there are two: both run the same command."""
    command = Path(f"/proc/{outer}/cmdline").read_bytes()
    children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
    named = os.readlink(f"/proc/{outer}/ns/pid_for_children") != os.readlink(f"/proc/{outer}/ns/pid")
    return {int(pid) for pid in children if named and Path(f"/proc/{pid}/cmdline").read_bytes() == command}


def _resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    folder, count, job = Path(sys.argv[1]), int(sys.argv[2]), json.load(sys.stdin)
    hostile = cycle(job["programs"].items())
    wrong: list[str] = []
    (folder / "canaries").mkdir()
    with Canaries(folder / "canaries") as canaries, Sandbox(restrict_names=False) as sandbox:
        for number in range(count):
            if number % 3 == 2:
                name, source = next(hostile)
                found = run_hostile(sandbox, canaries, name, source)
            else:
                found = run_harmless(sandbox, number)
            wrong += [found] if found else []
            if (number + 1) % job["every"] == 0:
                print(json.dumps({"done": number + 1, "wrong": wrong, **held(sandbox)}), flush=True)
    gone = wait_until(lambda: not descendants(os.getpid()), GONE_SECONDS)
    print(json.dumps({"finished": True, "processes": 0 if gone else len(descendants(os.getpid()))}))


if __name__ == "__main__":
    main()
