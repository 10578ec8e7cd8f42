"""`prismem validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from prismem_core.cli.isolation import tell_isolation
from prismem_core.cli.options import InterfaceOption, Require, Unsafe
from prismem_core.errors import ProgramError


def validate_command(
    program: Annotated[str, typer.Argument(help="A program file or a library name.", show_default=False)],
    parent: Annotated[str | None, typer.Option("--parent", help="The program it revises.")] = None,
    interface: InterfaceOption = None,
    static: Annotated[bool, typer.Option("--static", help="Only the checks that run nothing.")] = False,
    require: Require = None,
    unsafe_no_sandbox: Unsafe = False,
) -> None:
    """Check a memory program as a candidate would be checked; exit code 0 if it is valid."""
    from prismem_core.jobs.evolution_job import start_source
    from prismem_core.jobs.isolation import confine
    from prismem_core.jobs.settings import build_job_settings
    from prismem_core.program.validation import gate, validate

    given = {"interface": interface, "sandbox_require": require}
    settings = build_job_settings({key: value for key, value in given.items() if value is not None})
    offered = settings.interface
    source = start_source(program)
    mark = ""
    before = None if parent is None else start_source(parent)
    if static:
        checked = gate(source, offered)
        code, message, line, warnings = checked.code, checked.message, checked.line, checked.warnings
    else:
        with confine(
            settings.sandbox_require, unsafe=unsafe_no_sandbox, interface=offered, on_isolation=tell_isolation
        ) as confinement:
            report = validate(source, before, sandbox=confinement.sandbox, interface=offered)
            if confinement.isolation.marked:
                mark = f" ({confinement.isolation.words()})"
        code, message, line, warnings = report.code, report.message, report.line, report.warnings
    for warning in warnings:
        print(f"warning: {warning}")
    if code != "ok":
        where = f", line {line}" if line else ""
        raise ProgramError(code, f"{program}{where}: {code}: {message}{mark}", line)
    print(f"{program}: ok{mark}")
