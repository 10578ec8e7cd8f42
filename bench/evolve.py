"""Simulate the search: thousands of runs of the real engine in worlds where revisions trade one capability for another.

    python -m bench.evolve [--seeds N] [--quick] [--keep DIR] [--results FILE]

docs/simulation.md states the model. The same options give the same numbers on every machine and whatever the number of
processes. Ctrl-C ends the study; a file of results is written only when it is complete, and with --keep the next call
goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prismem_core.errors import ArgumentError, PrismemError
from prismem_core.evaluation.intervals import interval
from prismem_core.runs.provenance import code_digest, commit

from . import machine
from .simulation import report, study
from .simulation.kept import Kept

FORMAT = 1
INTERRUPTED = 130
MARKS = ("<!-- tables of bench.evolve -->", "<!-- end of the tables -->")


def run(
    seeds: int,
    other_seeds: int,
    sweep_seeds: int,
    workers: int,
    keep: Path | None = None,
    *,
    calibration: bool = True,
    sweeps: bool = True,
) -> dict[str, Any]:
    """The record of the whole study: calibration, main comparison, null world and sweeps."""
    # Bootstrap needs an optional library; better to be told so before the simulation than after it.
    interval([0.0, 1.0])
    began, made_by = time.monotonic(), commit()
    axes = study.sweeps() if sweeps else {}
    # Without noise the strategies agree seed by seed or differ by what is plain to see; fewer seeds tell it.
    null = {s: other_seeds if s.rates.noise else min(other_seeds, 100) for s in study.NULL_WORLDS.values()}
    points = {setting: sweep_seeds for axis in axes.values() for setting in axis.values()}
    wanted = dict.fromkeys(study.WORLDS.values(), other_seeds) | {study.MAIN: seeds} | null
    wanted |= {setting: count for setting, count in points.items() if setting not in wanted}
    with study.processes(workers) as pool:
        told = _progress(sum(wanted.values()) * len(study.STRATEGIES), began)
        results = study.simulate(pool, wanted, told, Kept(keep))
        calibrated: dict[str, Any] = {"target": study.CALIBRATED_SHARE, "tradeoffs": study.MAIN.rates.tradeoffs}
        if calibration:
            _say("calibrating the share of trade-offs ...")
            share, counts = study.calibrate(pool)
            calibrated |= {"found": share, **counts.to_json()}
    return {
        "format": FORMAT,
        "commit": made_by,
        "code": code_digest(),
        "versions": machine.versions({"numpy", "scipy"}),
        "cores": machine.usable_cores(),
        "workers": workers,
        "seconds": round(time.monotonic() - began, 1),
        "rates": asdict(study.MAIN.rates),
        "budget": asdict(study.MAIN.budget),
        "calibration": calibrated,
        "worlds": {
            name: {
                **report.summary(results[setting]),
                "details": report.details(results[setting]),
                "order": report.order(results[setting]),
            }
            for name, setting in study.WORLDS.items()
        },
        "null": {name: report.summary(results[setting]) for name, setting in study.NULL_WORLDS.items()},
        "sweeps": {
            axis: {
                value: report.summary({s: runs[:sweep_seeds] for s, runs in results[setting].items()})
                for value, setting in points.items()
            }
            for axis, points in axes.items()
        },
    }


def _progress(runs: int, began: float) -> Any:
    last = [0.0]

    def tell(done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - last[0] > 10:
            last[0] = now
            _say(f"{done / total:4.0%} of {runs} runs, {now - began:.0f} s")

    return tell


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study and print its tables; exit code 0 whatever comes out."""
    parser = argparse.ArgumentParser(prog="python -m bench.evolve", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=_count, help="seeds of each strategy in the main world; 1000 by default")
    parser.add_argument("--other-seeds", type=_count, help="seeds in the other worlds and the null world; as --seeds")
    parser.add_argument("--sweep-seeds", type=_count, help="seeds of each point of a sweep; a tenth of --seeds")
    parser.add_argument("--quick", action="store_true", help="20 seeds, no calibration, no sweeps: seconds")
    parser.add_argument("--workers", type=_count, default=machine.usable_cores(), help="processes; one a core")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep finished parts there; a stopped study goes on")
    parser.add_argument("--results", type=Path, help="a JSON file for the record; replaced as a whole")
    parser.add_argument("--document", type=Path, help="a text whose part between the marks of the tables is replaced")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the tables of a record and do nothing else")
    given = parser.parse_args(arguments)
    seeds = given.seeds or (20 if given.quick else 1000)
    try:
        text = given.document.read_text(encoding="utf-8") if given.document is not None else ""
        if given.document is not None and not all(mark in text for mark in MARKS):
            parser.error(f"--document: {given.document} lacks the marks {' and '.join(MARKS)}")
        if given.table is not None:
            _show(_record(given.table), given.document, text)
            return 0
        if given.results is not None and not os.access(given.results.parent, os.W_OK | os.X_OK):
            parser.error(f"--results: there is no directory {given.results.parent} to write in; make it first")
        if given.keep is not None and given.keep.exists() and not given.keep.is_dir():
            parser.error(f"--keep: {given.keep} is a file; name a directory")
        record = run(
            seeds,
            given.other_seeds or seeds,
            min(seeds, given.sweep_seeds or max(2, seeds // 10)),
            given.workers,
            given.keep,
            calibration=not given.quick,
            sweeps=not given.quick,
        )
    except KeyboardInterrupt:
        _say("bench.evolve: interrupted; nothing was written")
        return INTERRUPTED
    except OSError as error:
        _say(f"bench.evolve: {error.filename}: {error.strerror}")
        return 2
    except BrokenProcessPool:
        _say("bench.evolve: a worker ended by itself (out of memory?); start again, with fewer --workers")
        return 1
    except PrismemError as error:
        _say(f"bench.evolve: {error}")
        return error.exit_code
    _show(record, given.document, text)
    if given.results is not None:
        # No reader finds half a file, whatever happens while it is written.
        beside = given.results.with_name(given.results.name + ".part")
        beside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, given.results)
    return 0


def _show(record: dict[str, Any], document: Path | None, text: str) -> None:
    """Print the tables, and put them between the marks of the document."""
    tables = report.markdown(record)
    print(tables, end="")
    if document is not None:
        before, _, rest = text.partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        document.write_text(f"{before}{MARKS[0]}\n\n{tables}\n{MARKS[1]}{after}", encoding="utf-8")


def _record(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(
            f"--table: {file} cannot be read ({error.strerror}); name a file that --results wrote"
        ) from error
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or record.get("format") != FORMAT or "worlds" not in record:
        raise ArgumentError(f"--table: {file} is no record of this program's format {FORMAT}; make one with --results")
    return record


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


if __name__ == "__main__":
    code = main()
    if code == INTERRUPTED:
        # The workers are gone; a pool may wait for ever on the pipe that they no longer read.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
