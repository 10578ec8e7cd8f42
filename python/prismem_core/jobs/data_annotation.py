"""Labels of a data set's training and validation questions without a run: rows to read, compare or keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.evaluation.annotation import annotate_tasks
from prismem_core.jobs.evolution_job import silent
from prismem_core.jobs.models import ModelClients, ledger_role
from prismem_core.jobs.settings import JobSettings
from prismem_core.roles.cached import CachedChat
from prismem_core.roles.ledger import Ledger
from prismem_core.tasks.datasets import annotate, load, summary


def annotate_data(
    data: str,
    parts: Mapping[str, Sequence[str]] | None,
    settings: JobSettings,
    cache: Path | None = None,
    announce: Callable[[str], None] = silent,
    *,
    exclude: Path | None = None,
    corrections: Path | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of `task`, `part`, `native`, `primary`, `secondary` (and `problem` where a native type had to do), and what
    was asked: `annotator`, `calls`, `input_tokens`, `output_tokens`.

    Without an annotator the rules of the embedded default give the secondaries. `cache` is an execution cache, in which
    a run finds what was annotated here. The test part is never annotated. Errors are those of loading and of the model.
    """
    dataset = load(data, exclude=exclude, corrections=corrections)
    split = dataset.split(parts)
    announce(summary(dataset, parts))
    part_of = {i: part for part in ("train", "valid") for i in getattr(split, part)}
    native = {i: str(dataset.task(i).primary) for i in part_of}
    problems: dict[str, str] = {}
    asked: dict[str, Any] = {
        "annotator": "rules, where the data set has none of its own",
        "calls": 0,
        "input_tokens": 0,
        "output_tokens": 0,
    }
    clients = ModelClients(settings)
    try:
        chat = clients.chats["annotator"]
        if chat is None:
            labelled = annotate(dataset, split)
            labels = {i: (labelled.task(i).primary, labelled.task(i).secondary) for i in part_of}
        else:
            ledger = Ledger()
            with ExecutionCache(cache, memory_bytes=settings.cache_mib << 20, disk_bytes=settings.cache_bytes) as store:
                cached = CachedChat(
                    chat,
                    store,
                    ledger,
                    workers=settings.workers,
                    role=ledger_role("annotator"),
                    budget=clients.budget(settings, ledger),
                )
                tasks = [dataset.task(i) for i in part_of]
                found = annotate_tasks(
                    cached,
                    tasks,
                    retries=settings.annotation_retries,
                    max_tokens=clients.max_tokens("annotator"),
                )
            labels = {task.id: (one.primary, one.secondary) for task, one in zip(tasks, found, strict=True)}
            problems = {task.id: one.problem for task, one in zip(tasks, found, strict=True) if one.problem}
            asked["annotator"] = cached.identity
            for usage in ledger.totals().values():
                for name, count in usage.to_dict().items():
                    asked[name] += count
    finally:
        clients.close()
    rows = [
        {
            "task": i,
            "part": part,
            "native": native[i],
            "primary": str(labels[i][0]),
            "secondary": [str(c) for c in labels[i][1]],
            **({"problem": problems[i]} if i in problems else {}),
        }
        for i, part in part_of.items()
    ]
    return rows, asked
