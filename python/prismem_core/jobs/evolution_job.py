"""The main job: evolve a memory program on a data set, then measure start and result on questions selection never
saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import prismem_core
from prismem_core.cache import MAX_NAME
from prismem_core.errors import CacheError, DataError, ProgramError, RunError, SettingsError
from prismem_core.evolution.engine import evolve
from prismem_core.evolution.laboratory import Observer
from prismem_core.evolution.settings import EvolutionSettings, build_settings
from prismem_core.jobs.annotation import label_run
from prismem_core.jobs.final_measures import measure_on_test, unmeasured
from prismem_core.jobs.forecast.budgets import Reach, check_start, reaches
from prismem_core.jobs.forecast.forecast import Forecast, forecast
from prismem_core.jobs.isolation import Confinement, OnIsolation, confine, untold
from prismem_core.jobs.models import with_moved_servers
from prismem_core.jobs.provenance import provenance
from prismem_core.jobs.reuse_checks import REUSE_CHECKS, add_reuse_checks
from prismem_core.jobs.settings import JobSettings, build_job_settings
from prismem_core.jobs.workbench import Workbench, role_identities, scoring_identity
from prismem_core.ops.screened import check_device
from prismem_core.program import library
from prismem_core.program.manifest import body_of
from prismem_core.program.syntax import MAX_BYTES
from prismem_core.roles.ledger import Ledger
from prismem_core.runs.events import ProgramAdded
from prismem_core.runs.run import MANIFEST, Manifest, Run, read_manifest
from prismem_core.tasks.datasets import load, summary
from prismem_core.tasks.task import Dataset, Split

LEDGER = "calls.jsonl"
CACHE = "cache"
UNSAFE_CACHE = (
    "a run without the sandbox must not fill a cache that others read; leave out --cache or --unsafe-no-sandbox"
)


@dataclass(frozen=True)
class EvolutionJob:
    """What a run is started from; all of it stands in the run's manifest, so that `resume` needs the directory
    alone.
    """

    data: str
    parts: Mapping[str, Sequence[str]] | None
    job: JobSettings
    evolution: EvolutionSettings
    start: str
    cache: str | None = None
    exclude: str | None = None
    corrections: str | None = None


def silent(text: str) -> None:
    """Tell nobody."""


Watch = Callable[[Workbench], None]


def unwatched(bench: Workbench) -> None:
    """A watcher that looks away."""


OnForecast = Callable[[Forecast, list[Reach]], None]


class _InLedger:
    """An observer that also tells the ledger which iteration makes the calls from now on."""

    def __init__(self, observer: Observer, ledger: Ledger) -> None:
        self._observer = observer
        self._ledger = ledger
        self.on_resume = observer.on_resume
        self.on_event = observer.on_event
        self.on_stage_progress = observer.on_stage_progress

    def on_step(self, iteration: int, iterations: int, step: str) -> None:
        self._ledger.begin_iteration(iteration)
        self._observer.on_step(iteration, iterations, step)


def start_run(
    directory: Path,
    job: EvolutionJob,
    observer: Observer,
    announce: Callable[[str], None] = silent,
    watch: Watch = unwatched,
    *,
    unsafe: bool = False,
    on_isolation: OnIsolation = untold,
    on_forecast: OnForecast | None = None,
) -> Path:
    """Run a new job in `directory` (missing or empty) to its end; returns the directory.

    `announce` gets the lines on what was loaded, `watch` the workbench before the work begins, `on_isolation` what
    confines programs. `on_forecast`, where given, gets what the run is expected to ask of its models and how far its
    budget reaches, before there is a directory; SettingsError where that does not even cover the start. `unsafe` lets
    programs run where they cannot be confined: this session only, and marked for good.
    """
    if job.job.device != "cpu":
        check_device(job.job.device)  # before there is a directory
    # A manifest tells scores of another run, which a designer must not see.
    job = replace(job, start=body_of(job.start))
    _check_cache(job, unsafe)
    dataset, split = _prepare(job)
    with _confined(job, unsafe, on_isolation) as confinement:
        foreseen = None if on_forecast is None else _forecast(job, dataset, split, confinement)
        if on_forecast is not None and foreseen is not None:
            found = reaches(foreseen, job.job)
            check_start(found)
            on_forecast(foreseen, found)
        _start(directory, job, dataset, split, confinement, observer, announce, watch)
    return directory


def forecast_run(
    job: EvolutionJob,
    announce: Callable[[str], None] = silent,
    *,
    unsafe: bool = False,
    on_isolation: OnIsolation = untold,
) -> tuple[Forecast, list[Reach]]:
    """What a run would ask of its models, and how far its budget reaches; no model is called and nothing written.

    The start program is loaded in the sandbox for its schemas and instructions; ProgramError where it cannot be.
    """
    _check_cache(job, unsafe)
    dataset, split = _prepare(job)
    announce(summary(dataset, job.parts))
    with _confined(job, unsafe, on_isolation) as confinement:
        foreseen = _forecast(job, dataset, split, confinement, strict=True)
    assert foreseen is not None
    return foreseen, reaches(foreseen, job.job)


def _forecast(
    job: EvolutionJob, dataset: Dataset, split: Split, confinement: Confinement, *, strict: bool = False
) -> Forecast | None:
    try:
        interface = confinement.sandbox.describe(job.start)
        cached = job.cache is not None and Path(job.cache).exists()
        return forecast(job.job, job.evolution, dataset, split, interface, job.start, cached=cached)
    except ProgramError:
        if strict:
            raise
        # Its validation, which comes next, says more.
        return None


def _start(
    directory: Path,
    job: EvolutionJob,
    dataset: Dataset,
    split: Split,
    confinement: Confinement,
    observer: Observer,
    announce: Callable[[str], None],
    watch: Watch,
) -> None:
    roles = role_identities(job.job)
    manifest = Manifest(
        prismem_core.__version__,
        job.evolution.model_dump(),
        {"digest": dataset.digest, "name": dataset.name, "source": job.data, "repairs": dict(dataset.repairs)}
        | ({"notes": dict(dataset.notes)} if dataset.notes else {}),
        roles,
        {
            "job": job.job.model_dump(),
            "parts": None if job.parts is None else {part: list(ids) for part, ids in job.parts.items()},
            "split": {"train": len(split.train), "valid": len(split.valid), "test": len(split.test)},
            "start": job.start,
            "scoring": scoring_identity(job.job, roles["judge"]),
            "cache": job.cache,
            "exclude": job.exclude,
            "corrections": job.corrections,
            "provenance": provenance(roles),
        },
        confinement.isolation.to_json(),
    )
    with Run.create(directory, manifest) as run:
        announce(summary(dataset, job.parts))
        try:
            _go_on(run, job, dataset, split, confinement, observer, watch)
        except (CacheError, ProgramError):
            # A start that is refused leaves nothing behind: the same command works once the cause is mended.
            if not any(isinstance(event, ProgramAdded) for event in run.events):
                run.discard(CACHE, LEDGER, REUSE_CHECKS)
            raise


def resume_run(
    directory: Path,
    observer: Observer,
    *,
    workers: int | None = None,
    device: str | None = None,
    data: str | None = None,
    watch: Watch = unwatched,
    require: str | None = None,
    unsafe: bool = False,
    on_isolation: OnIsolation = untold,
    verify_reuse: float | None = None,
    moved: Sequence[str] = (),
    budget: Mapping[str, Any] | None = None,
) -> Path:
    """Go on with a run where it stopped; a finished one is only completed where something is missing.

    `data` names the data set where it lies now, should it have moved: its content must be that of the run. `moved` has
    `OLD_URL=NEW_URL` for each server that now answers elsewhere, `budget` caps in place of the run's. `require` takes
    the place of the run's own `sandbox_require`; the manifest keeps the weakest tier that a session had. So does
    `verify_reuse` of the run's own share.
    """
    manifest = read_manifest(directory)
    extra = manifest.extra
    try:
        given = {"workers": workers, "device": device, "sandbox_require": require, "verify_reuse": verify_reuse}
        job_values = {**extra["job"], **{key: value for key, value in given.items() if value is not None}}
        job_values["budget"] = {**job_values.get("budget", {}), **(budget or {})}
        job = EvolutionJob(
            manifest.data["source"] if data is None else data,
            extra["parts"],
            with_moved_servers(build_job_settings(job_values), moved),
            build_settings(manifest.settings),
            extra["start"],
            extra["cache"],
            extra.get("exclude"),
            extra.get("corrections"),
        )
    except (KeyError, TypeError) as error:
        raise RunError(
            f"{directory}/{MANIFEST} does not say how to go on ({error}); restore it from a copy or start a new run"
        ) from None
    _check_cache(job, unsafe)
    dataset, split = _prepare(job)
    roles = role_identities(job.job)
    with Run.open(directory, version=prismem_core.__version__, data_digest=dataset.digest, roles=roles) as run:
        if run.finished and not unmeasured(run, split):
            return directory
        with _confined(job, unsafe, on_isolation) as confinement:
            run.confine(confinement.isolation)
            _go_on(run, job, dataset, split, confinement, observer, watch)
    return directory


def _confined(job: EvolutionJob, unsafe: bool, on_isolation: OnIsolation) -> Confinement:
    return confine(job.job.sandbox_require, unsafe=unsafe, interface=job.job.interface, on_isolation=on_isolation)


def _check_cache(job: EvolutionJob, unsafe: bool) -> None:
    if unsafe and job.cache is not None:
        raise SettingsError(UNSAFE_CACHE)


def _prepare(job: EvolutionJob) -> tuple[Dataset, Split]:
    lists = (None if name is None else Path(name) for name in (job.exclude, job.corrections))
    dataset = load(job.data, **dict(zip(("exclude", "corrections"), lists, strict=True)))
    split = dataset.split(job.parts)
    for part in ("train", "valid"):
        if not getattr(split, part):
            raise DataError(
                f"the {part} part of data set {dataset.name!r} has no question; name its conversations with --split"
            )
    return dataset, split


def _go_on(
    run: Run,
    job: EvolutionJob,
    dataset: Dataset,
    split: Split,
    confinement: Confinement,
    observer: Observer,
    watch: Watch,
) -> None:
    directory = run.directory
    cache = Path(job.cache) if job.cache is not None else directory / CACHE
    with (
        Workbench(
            dataset,
            job.job,
            cache_directory=cache,
            ledger_path=directory / LEDGER,
            progress=observer.on_stage_progress,
            confinement=confinement,
            known={*split.train, *split.valid},
        ) as bench,
        bench.cache.tagged(run=run_name(directory)),
    ):
        watch(bench)
        observer = _InLedger(observer, bench.ledger)
        laboratory = label_run(run, bench, split, job.start, observer)
        try:
            if not run.finished:
                evolve(laboratory, bench.designer(), job.start, job.evolution, run, observer)
            measure_on_test(run, bench, split, job.evolution.router, observer)
        finally:
            add_reuse_checks(directory, bench.pipeline.reuse_counts)


def run_name(directory: Path) -> str:
    """What a run is called where its cache notes what it used: the last part of its directory."""
    return directory.absolute().name[:MAX_NAME] or "run"


def start_source(name: str | None) -> str:
    """The source of a start: a library program by name, or a file; the seed where none is named."""
    if name is None:
        return library.source("seed")
    if name.replace("-", "_") in library.names():
        return library.source(name)
    path = Path(name)
    try:
        with path.open("rb") as file:
            # A byte more than is allowed tells that there is more, also of a device without an end.
            source = file.read(MAX_BYTES + 1)
        if len(source) > MAX_BYTES:
            raise DataError(f"{name} is no program: it has more than {MAX_BYTES} bytes")
        return source.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DataError(f"no program at {name}: {why}; give a file or one of: {', '.join(library.names())}") from None
