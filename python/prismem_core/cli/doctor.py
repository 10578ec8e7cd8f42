"""`prismem doctor`."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def doctor_command() -> None:
    """Try every part of the installation and say what works; exit code 1 if the main job would not run."""
    from prismem_core.jobs.examination import examine

    table = Table("part", "state", "finding")
    findings = examine()
    for finding in findings:
        table.add_row(finding.part, Text(finding.state), Text(finding.message))
    Console().print(table)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)
