"""A small job on a slice of the packaged sample, cheap enough to run many times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.evolution.settings import build_settings
from prismem_core.jobs.evolution_job import EvolutionJob, start_source
from prismem_core.jobs.settings import build_job_settings
from prismem_core.program.sandbox import sandbox as sandbox_module
from prismem_core.tasks.datasets import load, write_jsonl
from prismem_core.tasks.history import History
from prismem_core.tasks.task import Dataset

SESSIONS = 4
QUESTIONS = 8


def slice_of_sample() -> Dataset:
    """The first sessions of three conversations with the questions whose evidence lies in them."""
    sample = load("sample")
    kept = [ids[0] for ids in sample.default_split.values()]
    histories = {i: History(i, sample.histories[i].sessions[:SESSIONS]) for i in kept}
    tasks = []
    for history_id, history in histories.items():
        text = "\n".join(session.text for session in history.sessions)
        own = [t for t in sample.tasks if t.history_id == history_id and all(e in text for e in t.evidence)]
        chosen = own[:QUESTIONS]
        ids = {t.id for t in chosen}
        tasks += [t for t in chosen if t.twin is None or t.twin in ids]
    split = {part: (ids[0],) for part, ids in sample.default_split.items()}
    return Dataset("slice", histories, tuple(tasks), sample.digest, split, sample.reply_words)


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The slice as a JSON Lines file."""
    path = tmp_path_factory.mktemp("data") / "slice.jsonl"
    write_jsonl(slice_of_sample(), path)
    return path


@pytest.fixture(scope="session")
def small_parts() -> dict[str, Sequence[str]]:
    """Its split: one conversation a part."""
    return dict(slice_of_sample().default_split)


@pytest.fixture(scope="session")
def make_job(small_data: Path, small_parts: dict[str, Sequence[str]]) -> Callable[..., EvolutionJob]:
    """A job on the slice; `job` and `evolution` override settings."""

    def make(job: dict[str, object] | None = None, evolution: dict[str, object] | None = None) -> EvolutionJob:
        settings = {"embedder": "hashing", "reranker": False, **(job or {})}
        return EvolutionJob(
            str(small_data),
            small_parts,
            build_job_settings(settings),
            build_settings({"T1": 2, "T2": 2, "T3": 1, **(evolution or {})}),
            start_source(None),
        )

    return make


@pytest.fixture
def observer() -> SilentObserver:
    return SilentObserver()


@pytest.fixture
def leave_off(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sandboxes that are opened from now on do without the layers named, as on a kernel that lacks them."""
    real = sandbox_module.Launcher

    def leave(*names: str) -> None:
        monkeypatch.setattr(sandbox_module, "Launcher", lambda without: real({*without, *names}))

    return leave
