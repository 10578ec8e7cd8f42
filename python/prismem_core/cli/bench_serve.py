"""`prismem bench serve`: the models that the options name, the seed program's interface, the stages over a data set."""

from __future__ import annotations

from pathlib import Path

from prismem_core.errors import SettingsError

ROUNDS = 3
"""Rounds of engine and limit unless --rounds says otherwise: each costs two passes of every stage."""


def serve(
    directory: Path,
    *,
    chat: str | None,
    embedder: str | None,
    data: str,
    settings: Path | None,
    calls: int | None,
    rounds: int | None,
) -> None:
    """Measure what `--chat` and `--embedder`, or the tables of a settings file, name."""
    from prismem_core.bench.serve.command import measure_serving
    from prismem_core.cli.models import model_values
    from prismem_core.jobs.evolution_job import start_source
    from prismem_core.jobs.isolation import confine
    from prismem_core.jobs.models import ModelClients
    from prismem_core.jobs.settings import load_job_settings
    from prismem_core.tasks.datasets import load

    job, _ = load_job_settings(settings, model_values(chat=chat, embedder=embedder), {})
    if job.record or job.replay:
        raise SettingsError("bench serve measures a model itself: leave record and replay out of its settings")
    dataset = load(data)
    with confine(job.sandbox_require, interface=job.interface) as confinement:
        interface = confinement.sandbox.describe(start_source(None))
    clients = ModelClients(job)
    try:
        task, rows = clients.chats["task"], clients.embedder
        measure_serving(
            dataset,
            interface,
            directory,
            chat=None if task is None else (clients.specs["task"], task),
            embedder=None if rows is None else (clients.specs["embedding"], rows),
            calls=calls,
            rounds=rounds or ROUNDS,
            segment_chars=job.segment_chars,
            max_tokens=job.task_tokens,
        )
    finally:
        clients.close()
