"""`prismem bench`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer


def bench_command(
    ops: Annotated[
        list[str] | None, typer.Argument(help="Ops to measure, such as top_k; all by default.", show_default=False)
    ] = None,
    jobs: Annotated[
        list[str] | None,
        typer.Option("--jobs", help="One job by its name, such as top_k/q1-300k-384; may be repeated."),
    ] = None,
    list_jobs: Annotated[bool, typer.Option("--list", help="Name the jobs with their goals and stop.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small shapes: seconds a job, no goal is judged.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="Directory for results.jsonl, report.md and plot.svg; runs/bench-<time> by default."
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", help="Threads of every job, instead of its own number where that is less.", min=1),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of A B C A B C.", min=3)] = 9,
) -> None:
    """Measure each op against its peers and the limits of this machine; exit code 9 if a result is wrong or a rate
    impossible.

    The peers come with the extra `bench`; those that are not installed are listed as absent.
    """
    from prismem_core.bench import command

    directory = output or Path("runs") / time.strftime("bench-%Y%m%d-%H%M%S")
    if list_jobs:
        command.show_jobs(ops or [], jobs or [])
    else:
        command.measure(ops or [], jobs or [], directory, quick=quick, threads=threads, rounds=rounds)
