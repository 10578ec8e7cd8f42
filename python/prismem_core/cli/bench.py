"""`prismem bench`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from prismem_core.cli.models import ChatOption, EmbedderOption
from prismem_core.cli.options import SettingsFile

SERVE = "serve"
_ROUNDS = 9


def bench_command(
    ops: Annotated[
        list[str] | None,
        typer.Argument(
            help="Ops to measure, such as top_k; all by default. Or `serve`: a model against its own limit.",
            show_default=False,
        ),
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
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="Rounds of A B C A B C; 9 by default, 3 of serve.", min=1)
    ] = None,
    chat: ChatOption = None,
    embedder: EmbedderOption = None,
    data: Annotated[str, typer.Option("--data", help="serve: data set whose prompts are sent.")] = "sample",
    calls: Annotated[
        int | None,
        typer.Option("--calls", help="serve: calls of a stage; four for each slot by default.", min=1),
    ] = None,
    settings: SettingsFile = None,
) -> None:
    """Measure each op against its peers and the limits of this machine; exit code 9 if a result is wrong or a rate
    impossible.

    The peers come with the extra `bench`; those that are not installed are listed as absent.

    `prismem bench serve --chat openai:MODEL@URL` measures instead what extraction, planning, answering and embedding
    get out of a model, against what it gives without the engine. It calls the model: a paid one costs.
    """
    from prismem_core.errors import ArgumentError

    directory = output or Path("runs") / time.strftime("bench-%Y%m%d-%H%M%S")
    if ops and SERVE in ops:
        if len(ops) > 1 or jobs or list_jobs or quick or threads:
            raise ArgumentError("bench serve stands alone and takes --chat, --embedder, --data, --calls, --rounds, "
                                "--settings and --output")  # fmt: skip
        from prismem_core.cli.bench_serve import serve

        serve(directory, chat=chat, embedder=embedder, data=data, settings=settings, calls=calls, rounds=rounds)
        return
    if chat or embedder or calls or settings:
        raise ArgumentError("--chat, --embedder, --calls and --settings belong to `prismem bench serve`")
    if rounds is not None and rounds < 3:
        raise ArgumentError(f"--rounds: ops are measured in 3 rounds or more, got {rounds}")
    from prismem_core.bench import command

    if list_jobs:
        command.show_jobs(ops or [], jobs or [])
    else:
        chosen = _ROUNDS if rounds is None else rounds
        command.measure(ops or [], jobs or [], directory, quick=quick, threads=threads, rounds=chosen)
