"""`prismem evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from prismem_core.cli.isolation import tell_isolation
from prismem_core.cli.models import (
    BudgetOption,
    ChatOption,
    EmbedderOption,
    JudgeOption,
    RecordOption,
    ReplayOption,
    merged,
    model_values,
)
from prismem_core.cli.options import (
    Corrections,
    Data,
    Device,
    Exclude,
    InterfaceOption,
    Require,
    Sets,
    SettingsFile,
    SplitFile,
    Unsafe,
    VerifyReuse,
    Workers,
    parse_sets,
    parts_of,
)


def evaluate_command(
    program: Annotated[
        list[str],
        typer.Argument(help="Program files or library names (seed, naive_rag, bm25_rag, ...).", show_default=False),
    ],
    data: Data,
    split: SplitFile = None,
    exclude: Exclude = None,
    corrections: Corrections = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of a split that is drawn; 0 by default.")] = None,
    part: Annotated[str, typer.Option("--part", help="train, valid, test or all.")] = "test",
    chat: ChatOption = None,
    judge: JudgeOption = None,
    embedder: EmbedderOption = None,
    budget: BudgetOption = None,
    record: RecordOption = None,
    replay: ReplayOption = None,
    interface: InterfaceOption = None,
    workers: Workers = None,
    device: Device = None,
    cache: Annotated[Path | None, typer.Option("--cache", help="Execution cache to read and fill.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")] = False,
    questions: Annotated[
        Path | None, typer.Option("--questions", help="Also write one JSON line a question to this file.")
    ] = None,
    settings: SettingsFile = None,
    sets: Sets = None,
    require: Require = None,
    unsafe_no_sandbox: Unsafe = False,
    verify_reuse: VerifyReuse = None,
) -> None:
    """Evaluate any programs or baselines on any data, with the same reader for all of them.

    Example: prismem evaluate seed bm25_rag runs/first/programs/n12-*.py --data sample
    """
    from prismem_core.errors import CandidateError, SettingsError
    from prismem_core.jobs.evaluation_job import evaluate_programs, evaluation_tables
    from prismem_core.jobs.settings import JobSettings, load_job_settings
    from prismem_core.runs.report.terminal import draw, isolation_text, make_console

    job_sets, unknown = parse_sets(sets, set(JobSettings.model_fields))
    if unknown:
        raise SettingsError(
            f"{next(iter(unknown))!r} is no setting of an evaluation; see the table [job] in docs/settings.md"
        )
    given = {
        "workers": workers,
        "device": device,
        "interface": interface,
        "sandbox_require": require,
        "verify_reuse": verify_reuse,
        **model_values(chat=chat, judge=judge, embedder=embedder, record=record, replay=replay, budget=budget),
    }
    given_values = {key: value for key, value in given.items() if value is not None}
    job, _ = load_job_settings(settings, merged(job_sets, given_values), {})
    parts = parts_of(split, data, seed)
    console = make_console()

    def announce(text: str) -> None:
        if not as_json:
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    result = evaluate_programs(
        program,
        data,
        parts,
        part,
        job,
        cache,
        questions,
        announce,
        unsafe=unsafe_no_sandbox,
        on_isolation=tell_isolation,
        exclude=exclude,
        corrections=corrections,
    )
    if as_json:
        print(json.dumps(result, ensure_ascii=False, indent=2))
    elif result["programs"]:
        for table in evaluation_tables(result):
            console.print(draw(table, console.width))
        console.print(isolation_text(result["isolation"]))
    if result["failed"]:
        raise CandidateError("error", "; ".join(result["failed"].values()))
