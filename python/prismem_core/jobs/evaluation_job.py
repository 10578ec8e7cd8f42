"""Evaluate programs and baselines on a part of a data set, all with the same roles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismem_core.errors import DataError, ProgramError, SettingsError
from prismem_core.evaluation.score_table import summarise
from prismem_core.jobs.evolution_job import UNSAFE_CACHE, silent, start_source
from prismem_core.jobs.isolation import OnIsolation, confine, untold
from prismem_core.jobs.models import prices
from prismem_core.jobs.provenance import provenance
from prismem_core.jobs.settings import JobSettings
from prismem_core.jobs.workbench import Workbench, role_identities
from prismem_core.program.failure_words import explained
from prismem_core.program.program import Program
from prismem_core.program.validation import uses_collections
from prismem_core.runs.report.contents import model_usage
from prismem_core.runs.report.tables import Table, left_out_note, model_table, number
from prismem_core.tasks.capability import CAPABILITIES
from prismem_core.tasks.datasets import load
from prismem_core.tasks.datasets import summary as data_summary
from prismem_core.tasks.task import Dataset

PARTS = ("train", "valid", "test", "all")


def evaluate_programs(
    programs: Sequence[str],
    data: str,
    parts: Mapping[str, Sequence[str]] | None,
    part: str,
    settings: JobSettings,
    cache: Path | None = None,
    questions: Path | None = None,
    announce: Callable[[str], None] = silent,
    *,
    unsafe: bool = False,
    on_isolation: OnIsolation = untold,
    exclude: Path | None = None,
    corrections: Path | None = None,
) -> dict[str, Any]:
    """Summaries by program name, as plain JSON.

    `part` is `train`, `valid`, `test` or `all`; `all` takes every question and needs no split. `questions` names a
    JSON Lines file that gets one row a program and question, `announce` gets the lines on what was loaded,
    `on_isolation` what confines the programs (the result holds it, too); `unsafe` lets them run where they cannot be
    confined. `exclude` and `corrections` are lists of the user (docs/data.md). Raises ProgramError for a program that
    does not load (before any is run). One that fails while it runs stands under `failed` with its first reason and
    costs the others nothing; its means leave out the questions that it failed on, and say how many of which kind.
    """
    if part not in PARTS:
        raise SettingsError(f"unknown part {part!r}; expected one of: {', '.join(PARTS)}")
    if unsafe and cache is not None:
        raise SettingsError(UNSAFE_CACHE)
    dataset = load(data, exclude=exclude, corrections=corrections)
    task_ids = part_ids(dataset, parts, part)
    sources = {name: start_source(name) for name in programs}
    if questions is not None:
        check_writable(questions)
    announce(data_summary(dataset, parts))
    result: dict[str, Any] = {
        "data": {
            "name": dataset.name,
            "digest": dataset.digest,
            "repairs": dict(dataset.repairs),
            "notes": dict(dataset.notes),
        },
        "part": part,
        "interface": settings.interface,
        "questions": len(task_ids),
        "programs": {},
        "failed": {},
    }
    rows: list[str] = []
    with (
        confine(
            settings.sandbox_require, unsafe=unsafe, interface=settings.interface, on_isolation=on_isolation
        ) as confinement,
        Workbench(
            dataset, settings, cache_directory=cache, confinement=confinement, known=_known(dataset, parts)
        ) as bench,
    ):
        isolation = confinement.isolation
        result["isolation"] = isolation.to_json()
        result["roles"] = role_identities(settings)
        result["provenance"] = provenance(result["roles"])
        result["settings"] = settings.model_dump(exclude={"record", "replay"})
        result["score"] = bench.evaluator.scoring.identity
        check_loads(bench, sources)
        for name, source in sources.items():
            with bench.ledger.scope(program=Program(source).digest):
                evaluation = bench.evaluator.evaluate(Program(source), task_ids, every=True)
            result["programs"][name] = summarise(evaluation)
            if evaluation.failure is not None:
                task_id, failure = evaluation.failure
                where = f", line {failure.line}" if failure.line else ""
                words = explained(failure.kind, failure.message, settings.pipeline().limits)
                result["failed"][name] = f"{name}{where}: {failure.stage} failed on {task_id}: {words}"
            rows += [
                json.dumps(
                    {"program": name, "tier": isolation.tier, "scored_by": result["score"], **outcome.to_dict()},
                    ensure_ascii=False,
                )
                for outcome in evaluation.outcomes.values()
            ]
        result["models"] = model_usage(bench.ledger, prices(bench.clients.models))
        if bench.clients.called:
            result["timing"] = bench.pipeline.clock.report()
        result["calls"] = {f"{role}/{stage}": usage.to_dict() for (role, stage), usage in bench.ledger.totals().items()}
        if settings.interface == "engine":
            result["launches"] = bench.ledger.launches().to_dict()
        if settings.verify_reuse:
            result["reuse_check"] = bench.pipeline.reuse_counts.to_dict()
    if questions is not None:
        try:
            # Half a surrogate pair, which a model can put into JSON, is written as the escape that JSON has for it.
            questions.write_text("".join(row + "\n" for row in rows), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise DataError(f"cannot write {questions}: {error.strerror}") from error
    return result


def check_loads(bench: Workbench, sources: Mapping[str, str]) -> None:
    """Load every program before the first is run, so that no work is lost later; ProgramError names the program."""
    for name, source in sources.items():
        try:
            bench.sandbox.describe(source)
            _check_interface(source, bench.settings)
        except ProgramError as error:
            raise ProgramError(error.code, f"{name}: {error}", error.line) from error


def _check_interface(source: str, settings: JobSettings) -> None:
    """ProgramError for a program that asks for what the interface of the settings does not offer."""
    line = uses_collections(source) if settings.interface == "paper" else None
    if line is not None:
        message = f'line {line}: backend.collection needs interface="engine"; add --interface engine'
        raise ProgramError("forbidden_access", message, line)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written before the work that would fill it is done; leaves none behind."""
    known = path.exists()
    try:
        path.open("a", encoding="utf-8").close()
        if not known:
            path.unlink()
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; give a file in a folder that exists") from error


def part_ids(dataset: Dataset, parts: Mapping[str, Sequence[str]] | None, part: str) -> tuple[str, ...]:
    """The tasks of a part, `all` for every one; DataError for a part without any."""
    if part == "all":
        return tuple(task.id for task in dataset.tasks)
    chosen: tuple[str, ...] = getattr(dataset.split(parts), part)
    if not chosen:
        raise DataError(f"the {part} part of data set {dataset.name!r} is empty; use --part all or --split")
    return chosen


def _known(dataset: Dataset, parts: Mapping[str, Sequence[str]] | None) -> set[str] | None:
    """The tasks that the score of a run with this split knows of, so that an evaluation gives the run's own scores."""
    if parts is None and not dataset.default_split:
        return None
    split = dataset.split(parts)
    return {*split.train, *split.valid}


def evaluation_tables(result: Mapping[str, Any]) -> list[Table]:
    """The tables that `prismem evaluate` prints.

    `overall` is the mean of the capabilities before it, `official` the official metric over all questions, then its
    mean over capabilities and over answerable questions.
    """
    programs: Mapping[str, Any] = result["programs"]
    present = [c for c in CAPABILITIES if any(str(c) in p["capabilities"] for p in programs.values())]
    rows = []
    for name, summary in programs.items():
        by_capability = [number(summary["capabilities"][str(c)]["score"]) for c in present]
        rows.append(
            (
                Path(name).name,
                f"{summary['scored']} of {summary['questions']}",
                *by_capability,
                number(summary["overall"]),
                number(summary["official"]),
                number(summary["official_overall"]),
                number(summary["official_answerable"]),
                number(summary["recall"]),
                f"{summary['retrieved_chars'] or 0:,.0f}",
            )
        )
    columns = (
        "program",
        "scored",
        *(c.letter for c in present),
        "overall",
        "official",
        "by cap.",
        "answerable",
        "recall",
        "chars",
    )
    title = f"{result['score']} on {result['questions']} {result['part']} questions"
    scores = Table(title, columns, tuple(rows), _left_out(programs))
    types = list(dict.fromkeys(t for p in programs.values() for t in p["native_types"]))
    official = Table(
        "Official metric by native type",
        ("type", *(Path(name).name for name in programs)),
        tuple((t, *(_official(p["native_types"][t]) for p in programs.values())) for t in types),
    )
    asked = model_table(result["models"])
    shown = [scores, official, *_unusable(programs), *([] if asked is None else [asked])]
    return [*shown, *_timing(result.get("timing"))]


def _official(means: Mapping[str, Any]) -> str:
    """A mean, and over how many of the questions it runs where that is not all of them."""
    counted = means["over"]["official"]
    return number(means["official"]) + (
        "" if counted == means["questions"] else f" ({counted} of {means['questions']})"
    )


def _unusable(programs: Mapping[str, Any]) -> list[Table]:
    """Replies of the models that could not be used, if there were any; the first of them by name."""
    kinds = ("unread_segments", "dropped_units", "unread_answers", "cut_answers")
    counts = {name: [*(p[kind] for kind in kinds), p["left_out"]["judge"]] for name, p in programs.items()}
    rows = tuple((Path(name).name, *(f"{n:,}" for n in found)) for name, found in counts.items() if any(found))
    if not rows:
        return []
    faults = [fault for summary in programs.values() for fault in summary.get("extraction_faults", ())]
    named = f" First: {'; '.join(faults[:3])}." if faults else ""
    asked = "Segments, answers and verdicts were asked for again as often as output_retries says"
    note = f"{asked}; units out of form were left out.{named}"
    columns = ("program", *(kind.replace("_", " ") for kind in kinds), "unread verdicts")
    return [Table("Replies that could not be used", columns, rows, note)]


def _timing(timing: Mapping[str, Any] | None) -> list[Table]:
    """Where the time went, if a model with slots was called."""
    if timing is None:
        return []
    total = timing["total"]
    rows = [
        (
            name,
            f"{row['wall_seconds']:.1f}",
            f"{row['own_seconds']:.1f}",
            f"{row['calls']:,}",
            "-" if row["occupancy"] is None else f"{row['occupancy']:.1%}",
        )
        for name, row in [*timing["stages"].items(), ("all", total)]
    ]
    columns = ("stage", "seconds", "engine's own", "calls", "slots taken")
    note = "The engine's own seconds are those in which no model was at work."
    return [Table("Time by stage", columns, tuple(rows), note)]


def _left_out(programs: Mapping[str, Any]) -> str:
    """Which questions are in no mean, and which were scored although there is something wrong with their answers."""
    missing = left_out_note({Path(name).name: summary for name, summary in programs.items()})
    said = [missing.rstrip(".")] if missing else []
    for name, summary in programs.items():
        counts = {
            "with an empty answer": summary["unread_answers"],
            "with an answer cut by the output limit": summary["cut_answers"],
        }
        found = [f"{count} {what}" for what, count in counts.items() if count]
        if found:
            scored = f"{summary['scored']} of {summary['questions']} questions scored"
            said.append(f"{Path(name).name}: {scored}; {', '.join(found)}")
    return ". ".join(said)
