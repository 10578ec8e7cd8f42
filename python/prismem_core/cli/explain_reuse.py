"""`prismem explain-reuse`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from prismem_core.cli.isolation import tell_isolation
from prismem_core.cli.options import Require, Unsafe

if TYPE_CHECKING:
    from rich.console import Console

    from prismem_core.pipeline.explanation import Explanation


class Mode(StrEnum):
    """What `--reuse` takes."""

    content = "content"
    paper = "paper"
    off = "off"


def explain_reuse_command(
    parent: Annotated[str, typer.Argument(help="A program file or a library name.", show_default=False)],
    child: Annotated[str, typer.Argument(help="The program that revises it.", show_default=False)],
    reuse: Annotated[
        list[Mode] | None, typer.Option("--reuse", help="content, paper or off; all of them by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")] = False,
    require: Require = None,
    unsafe_no_sandbox: Unsafe = False,
) -> None:
    """Say what a revision re-executes: which components changed, where each mode begins again, what is reused and why.

    Example: prismem explain-reuse seed naive_rag
    """
    from prismem_core.errors import ProgramError
    from prismem_core.jobs.evolution_job import start_source
    from prismem_core.jobs.isolation import confine
    from prismem_core.jobs.settings import build_job_settings
    from prismem_core.pipeline.explanation import MODES, explain_reuse
    from prismem_core.program.program import Program
    from prismem_core.runs.report.terminal import isolation_text, make_console

    sources = [start_source(name) for name in (parent, child)]
    shown = []
    required = build_job_settings({} if require is None else {"sandbox_require": require}).sandbox_require
    with confine(required, unsafe=unsafe_no_sandbox, on_isolation=tell_isolation) as confinement:
        for name, source in zip((parent, child), sources, strict=True):
            try:
                shown.append(confinement.sandbox.describe(source))
            except ProgramError as error:
                raise ProgramError(error.code, f"{name}: {error}", error.line) from error
    modes = [mode for mode in MODES if not reuse or mode in [chosen.value for chosen in reuse]]
    explanation = explain_reuse(Program(sources[0]), Program(sources[1]), shown[0], shown[1], modes)
    if as_json:
        result = {**explanation.to_dict(), "isolation": confinement.isolation.to_json()}
        print(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        console = make_console()
        _show(explanation, console)
        console.print(isolation_text(confinement.isolation.to_json()))


def _show(explanation: Explanation, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    if not explanation.changes:
        say("No component changed.")
    for change in explanation.changes:
        where = _stretches(change.parent_lines, "parent"), _stretches(change.lines, "child")
        note = "" if change.code else " (docstrings only)"
        say(f"{change.kind} {change.component}{note}: {' -> '.join(filter(None, where))}")
    for name, chain in explanation.reaches.items():
        if len(chain) > 1:
            say(f"{name} reaches a change: {' -> '.join(chain)}")
    for lookup in explanation.lookups:
        say(
            f"line {lookup.line} of the {lookup.program} looks names up dynamically ({lookup.what}): "
            "all code counts for every stage"
        )
    say(f"Table 6 begins at {explanation.table6 or 'no stage: all is reusable'}.")
    for mode in explanation.modes:
        table = Table(title=Text(f"{mode.mode}: {_begins(mode.start)}"), title_justify="left", title_style="bold")
        table.add_column("stage", no_wrap=True)
        table.add_column("", no_wrap=True)
        table.add_column("why", ratio=1)
        for stage in mode.stages:
            table.add_row(Text(stage.stage), Text(stage.state), Text(stage.why))
        console.print(table)


def _begins(start: str | None) -> str:
    return "all is reused" if start is None else f"re-execution begins at {start}"


def _stretches(lines: Sequence[tuple[int, int]], of: str) -> str:
    if not lines:
        return ""
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in lines)
    return f"{of} {'line' if len(lines) == 1 and lines[0][0] == lines[0][1] else 'lines'} {text}"
