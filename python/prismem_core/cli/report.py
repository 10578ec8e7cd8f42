"""`prismem report`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer


def report_command(
    run: Annotated[
        list[Path],
        typer.Argument(help="Directory of the run, or of several that differ in their seed alone.", show_default=False),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the Markdown report.")] = False,
) -> None:
    """Report a run, finished or not: scores by split and capability, official metrics, recall, calls, reuse,
    lineage. Of several runs that differ in their seed alone: means, standard deviations and intervals over them.
    """
    from prismem_core.jobs.reports import load_report, write_markdown
    from prismem_core.runs.report.markdown import markdown
    from prismem_core.runs.report.terminal import make_console, show

    if len(run) > 1:
        _several(run, as_json, as_markdown)
        return
    report = load_report(run[0])
    if as_json:
        print(json.dumps(report.data, ensure_ascii=False, indent=2))
        return
    if as_markdown:
        print(markdown(report), end="")
        return
    show(report, make_console())
    print(f"report: {write_markdown(run[0], report)}")


def _several(runs: Sequence[Path], as_json: bool, as_markdown: bool) -> None:
    from prismem_core.jobs.seed_report import seed_report
    from prismem_core.runs.report.markdown import seeds_markdown
    from prismem_core.runs.report.terminal import make_console, show_seeds

    report = seed_report(runs)
    if as_json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    elif as_markdown:
        print(seeds_markdown(report), end="")
    else:
        show_seeds(report, make_console())
