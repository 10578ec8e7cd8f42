"""`prismem doctor`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prismem_core.errors import SettingsError


def doctor_command(
    require: Annotated[
        str,
        typer.Option("--require", help="standard or strict: fail below this tier of the sandbox (docs/security.md)."),
    ] = "standard",
) -> None:
    """Try every part of the installation and say what works; exit code 1 if the main job would not run."""
    from prismem_core.jobs.examination import examine
    from prismem_core.program.sandbox.layers import Required

    tiers: dict[str, Required] = {"standard": "standard", "strict": "strict"}
    if require not in tiers:
        raise SettingsError(f"--require {require!r}: expected standard or strict")
    table = Table("part", "state", "finding")
    findings = examine(tiers[require])
    for finding in findings:
        table.add_row(finding.part, Text(finding.state), Text(finding.message))
    Console().print(table)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)
