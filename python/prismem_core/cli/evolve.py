"""`prismem evolve` and `prismem resume`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from prismem_core.cli.progress import ProgressObserver

if TYPE_CHECKING:
    from prismem_core.evolution.settings import EvolutionSettings
    from prismem_core.jobs.evolution_job import EvolutionJob


def evolve_command(
    data: Data,
    run: Annotated[Path, typer.Option("--run", help="Directory of the run; missing or empty.", show_default=False)],
    split: SplitFile = None,
    exclude: Exclude = None,
    corrections: Corrections = None,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help="prismem, holistic, round-robin, random-case, no-integration or router."),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", help="Program to start from: a file or a library name; seed by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of every random choice; 0 by default.")] = None,
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
    reuse: Annotated[str | None, typer.Option("--reuse", help="content, paper or off.")] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Execution cache to use in place of the run's own.")
    ] = None,
    settings: SettingsFile = None,
    sets: Sets = None,
    require: Require = None,
    unsafe_no_sandbox: Unsafe = False,
    verify_reuse: VerifyReuse = None,
) -> None:
    """Evolve a memory program on a data set and report start against result.

    Training questions drive the search, validation questions choose the result, test questions decide nothing and are
    measured once at the end. Stop it whenever you like: `prismem resume DIR` goes on and pays for nothing twice.

    Examples:

      prismem evolve --data sample --run runs/first

      prismem evolve --data locomo10.json --split split.json --run runs/locomo --set T2=6

      prismem evolve --data my.jsonl --run runs/mine --chat openai:Qwen/Qwen3-8B@http://localhost:8000/v1
    """
    from prismem_core.jobs.evolution_job import start_run
    from prismem_core.runs.report.terminal import make_console

    given = _given(
        workers=workers,
        device=device,
        reuse=reuse,
        interface=interface,
        sandbox_require=require,
        verify_reuse=verify_reuse,
        **model_values(
            chat=chat,
            judge=judge,
            designer=designer,
            embedder=embedder,
            annotator=annotator,
            record=record,
            replay=replay,
            budget=budget,
        ),
    )
    job = evolution_job(
        data,
        split,
        settings,
        sets,
        given,
        _given(seed=seed, strategy=strategy),
        start=start,
        cache=cache,
        exclude=exclude,
        corrections=corrections,
    )
    _follow(
        run,
        lambda observer: start_run(
            run,
            job,
            observer,
            observer.announce,
            observer.watch,
            unsafe=unsafe_no_sandbox,
            on_isolation=tell_isolation,
            on_forecast=lambda foreseen, found: show_forecast(foreseen, found, make_console()),
        ),
        job.evolution,
    )


def evolution_job(
    data: str,
    split: Path | None,
    settings: Path | None,
    sets: list[str] | None,
    given: dict[str, Any],
    evolution: dict[str, Any],
    *,
    start: str | None,
    cache: Path | None,
    exclude: Path | None,
    corrections: Path | None,
) -> EvolutionJob:
    """The job that the options describe; `given` are settings of the job by key, `evolution` those of the evolution."""
    from prismem_core.jobs.evolution_job import EvolutionJob, start_source
    from prismem_core.jobs.settings import JobSettings, load_job_settings

    job_sets, evolution_sets = parse_sets(sets, set(JobSettings.model_fields))
    job_settings, evolution_settings = load_job_settings(
        settings, merged(job_sets, given), {**evolution_sets, **evolution}
    )
    return EvolutionJob(
        data if data == "sample" else str(Path(data).absolute()),
        parts_of(split, data, evolution_settings.seed),
        job_settings,
        evolution_settings,
        start_source(start),
        None if cache is None else str(cache.absolute()),
        None if exclude is None else str(exclude.absolute()),
        None if corrections is None else str(corrections.absolute()),
    )


def resume_command(
    run: Annotated[Path, typer.Argument(help="Directory of the run.", show_default=False)],
    workers: Workers = None,
    device: Device = None,
    data: Annotated[str | None, typer.Option("--data", help="Where the data set lies now, if it has moved.")] = None,
    moved: Annotated[
        list[str] | None,
        typer.Option("--moved", help="A server that has moved, with the same model.", metavar="OLD_URL=NEW_URL"),
    ] = None,
    budget: BudgetOption = None,
    require: Require = None,
    unsafe_no_sandbox: Unsafe = False,
    verify_reuse: VerifyReuse = None,
) -> None:
    """Go on with a run that was stopped; what was finished is neither lost nor paid for again."""
    from prismem_core.evolution.settings import build_settings
    from prismem_core.jobs.evolution_job import resume_run
    from prismem_core.runs.run import read_manifest

    settings = build_settings(read_manifest(run).settings)
    _follow(
        run,
        lambda observer: resume_run(
            run,
            observer,
            workers=workers,
            device=device,
            data=data,
            moved=moved or (),
            budget=model_values(budget=budget).get("budget"),
            watch=observer.watch,
            require=require,
            unsafe=unsafe_no_sandbox,
            verify_reuse=verify_reuse,
            on_isolation=tell_isolation,
        ),
        settings,
    )


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _follow(run: Path, work: Callable[[ProgressObserver], Path], settings: EvolutionSettings) -> None:
    from prismem_core.jobs.reports import load_report, write_markdown
    from prismem_core.runs.report.terminal import make_console, show

    console = make_console()
    with ProgressObserver(console, settings.T1 + settings.T2 + settings.T3) as observer:
        work(observer)
    report = load_report(run)
    path = write_markdown(run, report)
    show(report, console, short=True)
    console.print(f"report: {path}", highlight=False, markup=False, soft_wrap=True)
