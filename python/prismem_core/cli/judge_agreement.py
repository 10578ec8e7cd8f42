"""`prismem judge-agreement`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from prismem_core.cli.models import BudgetOption, merged, model_values
from prismem_core.cli.options import Sets, SettingsFile, parse_sets


def judge_agreement_command(
    questions: Annotated[
        list[Path],
        typer.Argument(
            help="Two files of `prismem evaluate --questions`, judged differently; or one, and two --judge.",
            show_default=False,
        ),
    ],
    judge: Annotated[
        list[str] | None,
        typer.Option("--judge", help="A judge to ask: lexical, openai:MODEL@URL or vllm:MODEL; give two."),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="The data set that the questions are from; needed with --judge.")
    ] = None,
    cache: Annotated[Path | None, typer.Option("--cache", help="Execution cache to read and fill.")] = None,
    budget: BudgetOption = None,
    settings: SettingsFile = None,
    sets: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")] = False,
) -> None:
    """Say how far two judges agree on the same answers: share of equal scores, Cohen's kappa and its 95 % interval.

    Example: prismem judge-agreement a.jsonl b.jsonl
    """
    from prismem_core.errors import SettingsError
    from prismem_core.jobs.judge_agreement import agreement_tables, compare_files, compare_judges
    from prismem_core.jobs.settings import JobSettings, load_job_settings
    from prismem_core.runs.report.terminal import draw, make_console

    specs = judge or []
    if (len(questions), len(specs)) == (2, 0):
        result = compare_files(*questions)
    elif (len(questions), len(specs)) == (1, 2):
        if data is None:
            raise SettingsError("--judge needs --data: the data set that the questions are from")
        job_sets, unknown = parse_sets(sets, set(JobSettings.model_fields))
        if unknown:
            raise SettingsError(f"{next(iter(unknown))!r} is no setting of a judge; see the table [models.judge]")
        job, _ = load_job_settings(settings, merged(job_sets, model_values(budget=budget)), {})
        result = compare_judges(questions[0], data, specs, job, cache)
    else:
        raise SettingsError(
            f"got {len(questions)} question files and {len(specs)} --judge; expected two files, or one file and two "
            "--judge with --data"
        )
    if as_json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
        return
    console = make_console()
    for table in agreement_tables(result):
        console.print(draw(table, console.width))
