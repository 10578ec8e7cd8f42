"""Compare memory programs and outside memory systems: one harness, one task model, one judge, the same questions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prismem_core.digests import digest
from prismem_core.errors import DataError, SettingsError
from prismem_core.evaluation.evaluate import Evaluation
from prismem_core.evaluation.intervals import interval, statistics_installed
from prismem_core.evaluation.score_table import summarise
from prismem_core.integrations.outside import OutsideSystem
from prismem_core.integrations.systems import SYSTEMS, SystemSpec, system_spec
from prismem_core.jobs.evaluation_job import PARTS, check_loads, check_writable, part_ids
from prismem_core.jobs.evolution_job import UNSAFE_CACHE, silent, start_source
from prismem_core.jobs.isolation import OnIsolation, confine, untold
from prismem_core.jobs.models import prices
from prismem_core.jobs.provenance import provenance
from prismem_core.jobs.settings import JobSettings
from prismem_core.jobs.workbench import Workbench, role_identities
from prismem_core.pipeline.trace import StageUsage
from prismem_core.program import library
from prismem_core.program.failure_words import explained
from prismem_core.program.program import Program
from prismem_core.roles.ledger import Usage
from prismem_core.runs.report.contents import model_usage
from prismem_core.tasks.datasets import load
from prismem_core.tasks.datasets import summary as data_summary

FORMAT = "prismem-comparison"
VERSION = 1

READER = "full_context"
"""The library program whose answer instruction reads what outside systems retrieve: that of all baselines."""

_BUILDING, _ANSWERING = ("extract", "index"), ("plan", "retrieve", "answer")
_LOGGER = logging.getLogger("prismem_core")


def compare_systems(
    systems: Sequence[str],
    data: str,
    parts: Mapping[str, Sequence[str]] | None,
    part: str,
    settings: JobSettings,
    cache: Path | None = None,
    outputs: Sequence[Path] = (),
    announce: Callable[[str], None] = silent,
    *,
    unsafe: bool = False,
    online: bool = False,
    on_isolation: OnIsolation = untold,
    exclude: Path | None = None,
    corrections: Path | None = None,
) -> dict[str, Any]:
    """The comparison as plain JSON: one entry a system, in the order given.

    A system is a library program, a program file, a name of `integrations.systems.SYSTEMS`, or `python:MODULE:CLASS`.
    The other arguments are those of `evaluate_programs`; `online` lets outside systems open connections of their own
    and see this environment; `outputs` are files that will be written, which is tried out first. Whatever does not load
    or is not installed is refused before anything is run. A system that fails on questions has these left out of its
    means, by kind, and its first failure under `failed`.
    """
    if part not in PARTS:
        raise SettingsError(f"unknown part {part!r}; expected one of: {', '.join(PARTS)}")
    if unsafe and cache is not None:
        raise SettingsError(UNSAFE_CACHE)
    _check_apart(systems)
    chosen = {name: _spec(name, settings) for name in systems}
    dataset = load(data, exclude=exclude, corrections=corrections)
    task_ids = part_ids(dataset, parts, part)
    sources = {name: _source(name) for name, spec in chosen.items() if spec is None}
    for path in outputs:
        check_writable(path)
    announce(data_summary(dataset, parts))
    result: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "data": {
            "name": dataset.name,
            "digest": dataset.digest,
            "repairs": dict(dataset.repairs),
            "notes": dict(dataset.notes),
        },
        "part": part,
        "questions": len(task_ids),
        "conversations": len({dataset.task(i).history_id for i in task_ids}),
        "interface": settings.interface,
        "systems": {},
        "failed": {},
    }
    with (
        confine(
            settings.sandbox_require, unsafe=unsafe, interface=settings.interface, on_isolation=on_isolation
        ) as confinement,
        Workbench(dataset, settings, cache_directory=cache, confinement=confinement) as bench,
    ):
        result["isolation"] = confinement.isolation.to_json()
        result["roles"] = role_identities(settings)
        result["provenance"] = provenance(result["roles"])
        result["settings"] = settings.model_dump(exclude={"record", "replay"})
        result["score"] = bench.evaluator.scoring.identity
        check_loads(bench, sources)
        outside = _opened(chosen, bench, online, announce)
        try:
            for name in chosen:
                measured = _Measured(bench, task_ids)
                entry = measured.program(sources[name]) if name in sources else measured.outside(outside[name])
                result["systems"][name] = entry
                if measured.failure:
                    result["failed"][name] = f"{name}: {measured.failure}"
        finally:
            for system in outside.values():
                system.close()
        result["models"] = model_usage(bench.ledger, prices(bench.clients.models))
    return result


def _check_apart(systems: Sequence[str]) -> None:
    """A system stands for one row; SettingsError for one that is named twice, with hyphens or underscores."""
    known = {*library.names(), *(name.replace("-", "_") for name in SYSTEMS)}
    seen: dict[str, str] = {}
    for name in systems:
        plain = name.replace("-", "_")
        own = plain if plain in known else name
        if own in seen:
            both = name if seen[own] == name else f"{seen[own]} and {name}"
            raise SettingsError(f"the same system is named twice: {both}; name each once")
        seen[own] = name


def _spec(name: str, settings: JobSettings) -> SystemSpec | None:
    """The outside system that a name stands for, None for a program."""
    spec = system_spec(name)
    if spec is not None and spec.needs_chat and settings.model("task").model == "offline" and not settings.replay:
        raise SettingsError(
            f"{spec.name} puts its own prompts to a model, which the embedded default cannot follow; name one with "
            "--chat openai:MODEL@URL or vllm:MODEL"
        )
    return spec


def _source(name: str) -> str:
    try:
        return start_source(name)
    except DataError as error:
        raise DataError(f"{error}; outside systems: {', '.join(SYSTEMS)}, python:MODULE:CLASS") from None


def _opened(
    chosen: Mapping[str, SystemSpec | None], bench: Workbench, online: bool, announce: Callable[[str], None]
) -> dict[str, OutsideSystem]:
    """The outside systems, each imported in a process of its own."""
    opened: dict[str, OutsideSystem] = {}
    specs = {name: spec for name, spec in chosen.items() if spec is not None}
    try:
        for name, spec in specs.items():
            opened[name] = OutsideSystem(
                spec, bench.chat, bench.embedder, bench.cache, bench.settings.pipeline(), online=online
            )
    except BaseException:
        for system in opened.values():
            system.close()
        raise
    if specs:
        has = "the network and this environment" if online else "no network, no keys and a home that is thrown away"
        announce(f"outside systems run in processes of your own user with {has}: {', '.join(specs)}")
    return opened


class _Measured:
    """One system's entry; `failure` says in words what its first failure was, "" for none."""

    def __init__(self, bench: Workbench, task_ids: Sequence[str]) -> None:
        self._bench = bench
        self._task_ids = task_ids
        self.failure = ""

    def program(self, source: str) -> dict[str, Any]:
        """The entry of a memory program."""
        program, started = Program(source), time.monotonic()
        with self._bench.ledger.scope(program=program.digest):
            evaluation = self._bench.evaluator.evaluate(program, self._task_ids, every=True)
        return self._entry("program", program.digest, evaluation, time.monotonic() - started)

    def outside(self, system: OutsideSystem) -> dict[str, Any]:
        """The entry of an outside system."""
        reader = self._bench.pipeline.interface(Program(library.source(READER)))
        started = time.monotonic()
        with self._bench.ledger.scope(program=digest("outside", system.identity)):
            evaluation = self._bench.evaluator.evaluate_runs(partial(system.run, reader), self._task_ids)
        entry = self._entry("outside system", system.identity, evaluation, time.monotonic() - started)
        built = system.built
        if built.contacts:
            whom = ", ".join(built.contacts[:5])
            _LOGGER.warning("%s tried to reach %s and was refused; --systems-online lets it", system.spec.name, whom)
        more = {"building_seconds": built.seconds, "cut_texts": built.cut_texts, "refused_contacts": built.contacts}
        return {**entry, **more}

    def _entry(self, kind: str, identity: str, evaluation: Evaluation, seconds: float) -> dict[str, Any]:
        if evaluation.failure is not None:
            task_id, failure = evaluation.failure
            where = f", line {failure.line}" if failure.line else ""
            limits = self._bench.settings.pipeline().limits
            words = explained(failure.kind, failure.message, limits) if kind == "program" else failure.message
            self.failure = f"{failure.stage} failed on {task_id}{where}: {words}"
        scores = list(evaluation.scores.values())
        answering, building = _sum(evaluation.usage, _ANSWERING), _sum(evaluation.usage, _BUILDING)
        count = max(1, len(self._task_ids))
        return {
            "kind": kind,
            "identity": identity,
            "summary": summarise(evaluation),
            "interval": interval(scores).to_dict() if scores and statistics_installed() else None,
            "answering": {
                **answering.to_dict(),
                "input_tokens_per_question": answering.input_tokens / count,
                "output_tokens_per_question": answering.output_tokens / count,
            },
            "building": building.to_dict(),
            "embedded_texts": evaluation.usage.embedded_texts,
            "embedded_tokens": evaluation.usage.embedded_tokens,
            "seconds": seconds,
        }


def _sum(usage: StageUsage, stages: Sequence[str]) -> Usage:
    total = Usage()
    for stage in stages:
        total.add(usage.stages[stage])
    return total
