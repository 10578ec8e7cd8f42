"""Instruction counts of fixed small jobs, compared with those on record: a kernel that got slower shows itself.

    guards.py PROGRAM            compare (exit code 1 where a count is off by more than the tolerance)
    guards.py PROGRAM --write    put the counts of this compiler on record

Counts do not depend on load or on the clock, only on the code and the compiler, so that records are kept by compiler
(`counts.json`). The jobs run with the avx2 set, which valgrind knows; it has no AVX-512. Where valgrind is absent, or
no count of this compiler is on record, nothing is compared and the reason is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COUNTS = Path(__file__).with_name("counts.json")
TOLERANCE = 0.08
"""More than this part above the record fails; so does as much below it, which asks for a new record."""


def compiler_of(program: Path) -> str:
    """The compiler that made the program, by name and major version, as it notes it there."""
    noted = subprocess.run(["readelf", "-p", ".comment", str(program)], capture_output=True, text=True).stdout
    if found := re.search(r"GCC: .*?\) (\d+)\.", noted):
        return f"gcc {found[1]}"
    if found := re.search(r"clang version (\d+)\.", noted):
        return f"clang {found[1]}"
    return "unknown"


def count(program: Path, job: str) -> int:
    """Instructions of one job, inside `guarded_job` alone."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        words = ["valgrind", "--tool=callgrind", "--toggle-collect=guarded_job", f"--callgrind-out-file={out}"]
        done = subprocess.run(
            [*words, str(program), job], capture_output=True, text=True, env={**os.environ, "PRISMEM_ISA": "avx2"}
        )
        if done.returncode != 0:
            raise SystemExit(f"{job} failed under valgrind:\n{done.stderr[-2000:]}")
        found = re.search(r"^(?:totals|summary): (\d+)", out.read_text(encoding="utf-8"), re.MULTILINE)
        if found is None or int(found[1]) == 0:
            raise SystemExit(f"{job}: callgrind counted nothing")
        return int(found[1])


def verdicts(counts: dict[str, int], known: dict[str, int]) -> list[str]:
    """What is wrong, one sentence a job."""
    wrong = []
    for job, now in counts.items():
        before = known.get(job)
        if before is None:
            wrong.append(f"{job}: no count on record; write one with --write")
        elif abs(now - before) > TOLERANCE * before:
            change = (now / before - 1) * 100
            advice = "find out why" if change > 0 else "put the better count on record with --write"
            wrong.append(f"{job}: {now:,} instructions, {before:,} on record ({change:+.1f} %); {advice}")
    wrong += [f"{job}: on record, but there is no such job; write anew with --write" for job in known.keys() - counts]
    return wrong


def main() -> int:
    """Count, then compare or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("program", type=Path)
    parser.add_argument("--write", action="store_true", help="put the counts on record")
    options = parser.parse_args()
    missing = [tool for tool in ("valgrind", "readelf") if shutil.which(tool) is None]
    if missing:
        print(f"instruction counts: skipped, {' and '.join(missing)} not found")
        return 0
    compiler = compiler_of(options.program)
    records: dict[str, dict[str, int]] = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    if compiler not in records and not options.write:
        print(f"instruction counts: skipped, none on record for {compiler}")
        return 0
    jobs = subprocess.run([options.program], capture_output=True, text=True, check=True).stdout.split()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        counts = dict(zip(jobs, pool.map(lambda job: count(options.program, job), jobs), strict=True))
    if options.write:
        COUNTS.write_text(json.dumps({**records, compiler: counts}, indent=2) + "\n", encoding="utf-8")
        print(f"instruction counts: {len(counts)} of {compiler} on record")
        return 0
    wrong = verdicts(counts, records[compiler])
    for sentence in wrong:
        print(sentence)
    print(f"instruction counts: {len(counts)} jobs of {compiler}, {len(wrong)} off by more than {TOLERANCE:.0%}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
