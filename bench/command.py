"""What `prismem bench` does: runs the jobs, shows each as it is finished, and leaves the results in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from prismem_core.errors import ArgumentError

from . import machine, report
from .plot import draw
from .run import BenchmarkFault, Settings, failures, measured, select
from .verdict import wanted_text


def show_jobs(ops: Sequence[str], jobs: Sequence[str]) -> None:
    """Name the jobs."""
    table = Table("job", "what", "goals")
    for job in select(ops, jobs):
        goals = [
            f"{goal.ours} {wanted_text({'wanted': goal.ratio, 'against': goal.against, 'cost': goal.cost})}"
            for goal in job.goals
        ]
        table.add_row(Text(job.name), Text(job.summary), Text("\n".join(goals)))
    _console().print(table)


def measure(
    ops: Sequence[str], jobs: Sequence[str], directory: Path, *, quick: bool, threads: int | None, rounds: int
) -> None:
    """Run and report; BenchmarkFault at the end if a result of ours was wrong or a rate impossible.

    A directory that holds results is added to; the report then tells the newest of each job.
    """
    chosen = select(ops, jobs)
    if threads is not None and threads > machine.usable_cores():
        raise ArgumentError(f"--threads: this process may use {machine.usable_cores()} cores, got {threads}")
    results = directory / "results.jsonl"
    if results.exists():
        report.newest(results)
    directory.mkdir(parents=True, exist_ok=True)
    console, quiet = _console(), Console(stderr=True)
    records = []
    with quiet.status("") as status:
        for record in measured(chosen, Settings(rounds=rounds, threads=threads, quick=quick), status.update):
            records.append(record)
            report.append(results, record)
            report.show(record, console)
    everything = report.newest(results)
    report.show_summary(everything, console)
    (directory / "report.md").write_text(report.markdown(everything), encoding="utf-8")
    why_not = draw(everything, directory / "plot.svg")
    console.print(
        Text(f"results: {results}; report: {directory / 'report.md'}; plot: {why_not or directory / 'plot.svg'}")
    )
    if faults := failures(records):
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise BenchmarkFault(f"{faults[0]}{more}")


def _console() -> Console:
    console = Console()
    # A pipe has no width: the tables are wide enough to be read afterwards.
    return console if console.is_terminal else Console(width=180)
