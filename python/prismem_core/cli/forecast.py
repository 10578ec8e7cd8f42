"""`prismem forecast`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from prismem_core.cli.evolve import evolution_job
from prismem_core.cli.forecast_lines import show_forecast
from prismem_core.cli.isolation import tell_isolation
from prismem_core.cli.models import (
    AnnotatorOption,
    BudgetOption,
    ChatOption,
    DesignerOption,
    EmbedderOption,
    JudgeOption,
    RecordOption,
    ReplayOption,
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
)


def forecast_command(
    data: Data,
    run: Annotated[Path | None, typer.Option("--run", help="As for evolve; nothing is written.")] = None,
    split: SplitFile = None,
    exclude: Exclude = None,
    corrections: Corrections = None,
    strategy: Annotated[str | None, typer.Option("--strategy", help="As for evolve.")] = None,
    start: Annotated[str | None, typer.Option("--start", help="As for evolve.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="As for evolve.")] = None,
    workers: Workers = None,
    device: Device = None,
    chat: ChatOption = None,
    judge: JudgeOption = None,
    designer: DesignerOption = None,
    embedder: EmbedderOption = None,
    annotator: AnnotatorOption = None,
    budget: BudgetOption = None,
    record: RecordOption = None,
    replay: ReplayOption = None,
    interface: InterfaceOption = None,
    reuse: Annotated[str | None, typer.Option("--reuse", help="As for evolve.")] = None,
    cache: Annotated[Path | None, typer.Option("--cache", help="As for evolve.")] = None,
    settings: SettingsFile = None,
    sets: Sets = None,
    require: Require = None,
    unsafe_no_sandbox: Unsafe = False,
    verify_reuse: VerifyReuse = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
) -> None:
    """Say what a run would ask of its models, and how many proposals a budget allows, without a call to any.

    It takes the options of `prismem evolve`, which prints the same before it begins.

    Example: prismem forecast --data sample --chat openai:Qwen/Qwen3-8B@http://localhost:8000/v1 --budget tokens=5e6
    """
    from prismem_core.jobs.evolution_job import forecast_run
    from prismem_core.jobs.forecast.budgets import check_start
    from prismem_core.jobs.forecast.words import forecast_json
    from prismem_core.runs.report.terminal import make_console

    models = model_values(
        chat=chat,
        judge=judge,
        designer=designer,
        embedder=embedder,
        annotator=annotator,
        record=record,
        replay=replay,
        budget=budget,
    )
    job = evolution_job(
        data,
        split,
        settings,
        sets,
        {
            **{key: value for key, value in (("reuse", reuse), ("interface", interface)) if value is not None},
            **({} if require is None else {"sandbox_require": require}),
            **models,
        },
        {key: value for key, value in (("seed", seed), ("strategy", strategy)) if value is not None},
        start=start,
        cache=cache,
        exclude=exclude,
        corrections=corrections,
    )
    console = make_console()

    def announce(text: str) -> None:
        if not as_json:
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    foreseen, found = forecast_run(job, announce, unsafe=unsafe_no_sandbox, on_isolation=tell_isolation)
    if as_json:
        print(json.dumps(forecast_json(foreseen, found), ensure_ascii=False, indent=2))
    else:
        show_forecast(foreseen, found, console)
    check_start(found)
