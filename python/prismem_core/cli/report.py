"""`prismem report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report_command(
    run: Annotated[Path, typer.Argument(help="Directory of the run.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the Markdown report.")] = False,
) -> None:
    """Report a run, finished or not: scores by split and capability, official metrics, recall, calls, reuse,
    lineage.
    """
    from prismem_core.jobs.reports import load_report, write_markdown
    from prismem_core.runs.report.markdown import markdown
    from prismem_core.runs.report.terminal import make_console, show

    report = load_report(run)
    if as_json:
        print(json.dumps(report.data, ensure_ascii=False, indent=2))
        return
    if as_markdown:
        print(markdown(report), end="")
        return
    show(report, make_console())
    print(f"report: {write_markdown(run, report)}")
