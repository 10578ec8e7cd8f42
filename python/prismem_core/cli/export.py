"""`prismem export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export_command(
    run: Annotated[Path, typer.Argument(help="Directory of the run.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; RUN-PROGRAM.py in this folder by default."),
    ] = None,
    program: Annotated[
        str | None, typer.Option("--program", help="A program of the run, such as n07; its result by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the program that a run ended with as one file, its manifest above it in comments.

    The file is a program like any other: `prismem validate`, `evaluate` and `evolve --start` take it as it is, and
    `prismem_core.Memory.load` serves it (docs/memory.md).
    """
    from prismem_core.jobs.export_job import export_program

    print(export_program(run, output, program, force=force))
