"""`prismem compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

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
    Workers,
    parse_sets,
    parts_of,
)


def compare_command(
    system: Annotated[
        list[str],
        typer.Argument(
            help="Library programs (seed, full-context, naive-rag, bm25-rag, ...), program files, mem0, a-mem, or your "
            "own as python:MODULE:CLASS (docs/compare.md).",
            show_default=False,
        ),
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
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Execution cache to read and fill; a comparison goes on from it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")] = False,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", help="Also write it to this file: JSON for .json, Markdown for .md; may be repeated."),
    ] = None,
    systems_online: Annotated[
        bool,
        typer.Option(
            "--systems-online", help="Let outside systems open connections of their own and see this environment."
        ),
    ] = False,
    settings: SettingsFile = None,
    sets: Sets = None,
    require: Require = None,
    unsafe_no_sandbox: Unsafe = False,
) -> None:
    """Compare memory programs and outside memory systems: the same questions, task model, answer prompt and judge.

    Example: prismem compare full-context bm25-rag mem0 --data locomo10.json --part all --chat openai:MODEL@URL --judge
    openai:MODEL@URL --embedder openai:EMBEDDER@URL --cache cache --output table.md
    """
    from prismem_core.errors import CandidateError, SettingsError
    from prismem_core.jobs.comparison_job import compare_systems
    from prismem_core.jobs.comparison_tables import comparison_markdown, comparison_tables
    from prismem_core.jobs.settings import JobSettings, load_job_settings
    from prismem_core.runs.report.terminal import draw, isolation_text, make_console

    job_sets, unknown = parse_sets(sets, set(JobSettings.model_fields))
    if unknown:
        raise SettingsError(
            f"{next(iter(unknown))!r} is no setting of a comparison; see the table [job] in docs/settings.md"
        )
    given: dict[str, Any] = {
        "workers": workers,
        "device": device,
        "interface": interface,
        "sandbox_require": require,
        **model_values(chat=chat, judge=judge, embedder=embedder, record=record, replay=replay, budget=budget),
    }
    given_values = {key: value for key, value in given.items() if value is not None}
    job, _ = load_job_settings(settings, merged(job_sets, given_values), {})
    parts = parts_of(split, data, seed)
    for path in output or ():
        if path.suffix not in (".json", ".md"):
            raise SettingsError(f"--output {path}: the form follows from the name's end; write .json or .md")
    console = make_console()

    def announce(text: str) -> None:
        if not as_json:
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    result = compare_systems(
        system,
        data,
        parts,
        part,
        job,
        cache,
        output or (),
        announce,
        unsafe=unsafe_no_sandbox,
        online=systems_online,
        on_isolation=tell_isolation,
        exclude=exclude,
        corrections=corrections,
    )
    text = json.dumps(result, ensure_ascii=False, indent=2)
    for path in output or ():
        content = text + "\n" if path.suffix == ".json" else comparison_markdown(result)
        path.write_text(content, encoding="utf-8", errors="backslashreplace")
    if as_json:
        print(text)
    else:
        for table in comparison_tables(result):
            console.print(draw(table, console.width))
        console.print(isolation_text(result["isolation"]))
    if result["failed"]:
        raise CandidateError("error", "; ".join(result["failed"].values()))
