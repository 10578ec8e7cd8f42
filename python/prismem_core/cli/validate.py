"""`prismem validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from prismem_core.cli.options import InterfaceOption
from prismem_core.errors import ProgramError


def validate_command(
    program: Annotated[str, typer.Argument(help="A program file or a library name.", show_default=False)],
    parent: Annotated[str | None, typer.Option("--parent", help="The program it revises.")] = None,
    interface: InterfaceOption = None,
    static: Annotated[bool, typer.Option("--static", help="Only the checks that run nothing.")] = False,
) -> None:
    """Check a memory program as a candidate would be checked; exit code 0 if it is valid."""
    from prismem_core.jobs.evolution_job import start_source
    from prismem_core.jobs.settings import build_job_settings
    from prismem_core.program.sandbox import Sandbox
    from prismem_core.program.validation import gate, validate

    offered = build_job_settings({} if interface is None else {"interface": interface}).interface
    source = start_source(program)
    before = None if parent is None else start_source(parent)
    if static:
        checked = gate(source, offered)
        code, message, line, warnings = checked.code, checked.message, checked.line, checked.warnings
    else:
        with Sandbox() as sandbox:
            report = validate(source, before, sandbox=sandbox, interface=offered)
        code, message, line, warnings = report.code, report.message, report.line, report.warnings
    for warning in warnings:
        print(f"warning: {warning}")
    if code != "ok":
        where = f", line {line}" if line else ""
        raise ProgramError(code, f"{program}{where}: {code}: {message}", line)
    print(f"{program}: ok")
