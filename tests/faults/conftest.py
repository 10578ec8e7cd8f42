"""A world of two conversations whose models are those of the scripted server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.clients.model_settings import ModelSettings, parse_model
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.pipeline.extract import Extraction, extract
from prismem_core.pipeline.segment import Segment, segment
from prismem_core.program.interface import FieldSpec, ProgramInterface, Schema
from prismem_core.roles.cached import CachedChat
from prismem_core.roles.ledger import Ledger, Usage
from prismem_core.tasks.history import History, Session, Turn
from tests.scripted_server.fixture import ScriptedServer, own_server, scripted_server, server_process

__all__ = ["own_server", "scripted_server", "server_process"]

SPEAKERS = {"spring": ("Ines", "Marek"), "autumn": ("Cleo", "Dan")}
TOPICS = ("signed the lease of a flat in Oslo", "adopted a grey cat called Pixel", "ran a race along the harbour")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see none of the machine's own keys, addresses and proxies."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def session(history: str, number: int) -> Session:
    """A session of four turns."""
    first, second = SPEAKERS[history]
    texts = [
        (first, f"I {TOPICS[number % len(TOPICS)]} on day {number}."),
        (second, f"Lovely! I painted picture {number} of the {history} garden."),
        (first, f"My sister sends her regards for the {number}. time."),
        (second, f"Mine moved to Tromso {number} weeks ago."),
    ]
    turns = tuple(Turn(f"D{number}:{i + 1}", who, text) for i, (who, text) in enumerate(texts))
    return Session(str(number), f"{number} May 2023", turns)


def history(name: str, sessions: int = 3) -> History:
    """A conversation of that many sessions."""
    return History(name, tuple(session(name, number) for number in range(1, sessions + 1)))


def segments(sessions: int = 3) -> list[Segment]:
    """One segment a session."""
    return [part for group in segment(history("spring", sessions)) for part in group.segments]


INTERFACE = ProgramInterface(
    unit=Schema([FieldSpec("memory_text", "str"), FieldSpec("weight", "float"), FieldSpec("topics", "list[str]")]),
    query=Schema([FieldSpec("query_text", "str"), FieldSpec("limit", "int")]),
    extraction_instruction="Note what is said.",
    planning_instruction="Plan a search.",
    answer_instruction="Answer in brief.",
)


class Chats:
    """Clients of the scripted server behind one cache, as a job has them; what they cost is in `ledger`."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.cache = ExecutionCache()
        self.ledger = Ledger()
        self._clients: list[Any] = []

    def client(self, model: str = "scripted", url: str | None = None, **settings: Any) -> Any:
        """An OpenAIChat; waits little where the settings say nothing else."""
        from prismem_core.clients.openai_compatible import OpenAIChat

        spec = f"openai:{model}@{url or self.server.url}"
        client = OpenAIChat(parse_model(spec), _settings(spec, settings))
        self._clients.append(client)
        return client

    def embedder(self, model: str = "embedding", **settings: Any) -> Any:
        """An OpenAIEmbedder."""
        from prismem_core.clients.openai_compatible import OpenAIEmbedder

        spec = self.server.model(model)
        embedder = OpenAIEmbedder(parse_model(spec), _settings(spec, settings))
        self._clients.append(embedder)
        return embedder

    def cached(self, **settings: Any) -> CachedChat:
        """A client behind the cache."""
        return CachedChat(self.client(**settings), self.cache, self.ledger)

    def extract(
        self, sessions: int = 3, *, retries: int = 2, max_tokens: int = 4096, **settings: Any
    ) -> list[Extraction]:
        """Extractions of that many sessions."""
        chat = self.cached(structured="json_schema", **settings)
        return extract(chat, INTERFACE, segments(sessions), retries=retries, max_tokens=max_tokens)

    def usage(self) -> Usage:
        """What the ledger has recorded."""
        total = Usage()
        for usage in self.ledger.totals().values():
            total.add(usage)
        return total

    def close(self) -> None:
        """End the clients."""
        for client in self._clients:
            client.close()
        self.cache.close()


def _settings(spec: str, given: dict[str, Any]) -> ModelSettings:
    return ModelSettings(model=spec, **{"retries": 4, "timeout_seconds": 60.0, "deadline_seconds": 120.0, **given})


@pytest.fixture
def chats(scripted_server: ScriptedServer) -> Iterator[Chats]:
    pytest.importorskip("openai")
    made = Chats(scripted_server)
    yield made
    made.close()


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """Two conversations of three sessions and four questions as a JSON Lines file: one to train on, one to validate."""
    path = tmp_path / "talks.jsonl"
    rows: list[dict[str, Any]] = [
        {"type": "dataset", "name": "talks", "split": {"train": ["spring"], "valid": ["autumn"], "test": []}}
    ]
    for name, (first, second) in SPEAKERS.items():
        sessions = [
            {
                "id": part.id,
                "time": f"{part.id} May 2023",
                "turns": [{"id": t.id, "speaker": t.speaker, "text": t.text} for t in part.turns],
            }
            for part in history(name).sessions
        ]
        rows.append({"type": "conversation", "id": name, "sessions": sessions})
        for i, (question, answer, evidence) in enumerate(
            (
                (f"What did {first} sign in Oslo?", "the lease of a flat", "D3:1"),
                (f"What did {second} paint?", f"the {name} garden", "D1:2"),
            )
        ):
            rows.append(
                {
                    "type": "question",
                    "conversation": name,
                    "id": f"{name}{i}",
                    "question": question,
                    "answer": answer,
                    "capability": "factual_retrieval",
                    "evidence": [evidence],
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


Evaluate = Callable[..., dict[str, Any]]


def evaluate_talks(
    talks: Path,
    program: str = "seed",
    cache: Path | None = None,
    questions: Path | None = None,
    task: Any = None,
    **job: Any,
) -> dict[str, Any]:
    """`prismem evaluate` of a program on the talks; `task` holds settings of the task model, `job` of the job."""
    from prismem_core.jobs.evaluation_job import evaluate_programs
    from prismem_core.jobs.settings import build_job_settings

    models = {"task": {"retries": 4, "timeout_seconds": 60.0, **(task or {})}, **job.pop("models", {})}
    settings = build_job_settings({"embedder": "hashing", "reranker": False, "models": models, **job})
    return evaluate_programs([program], str(talks), None, "all", settings, cache, questions)


@pytest.fixture
def evaluate(scripted_server: ScriptedServer, talks: Path) -> Evaluate:
    """`evaluate_talks` with the scripted server as the task model."""
    pytest.importorskip("openai")

    def run(program: str = "seed", task: Any = None, **job: Any) -> dict[str, Any]:
        return evaluate_talks(talks, program, task={"model": scripted_server.model(), **(task or {})}, **job)

    return run


def one_clear_line(text: str) -> None:
    """A message for a user: one line of bearable length."""
    assert "\n" not in text and 10 < len(text) < 700, text


def unit_rows(rows: Any) -> None:
    """Every row is finite and of length one."""
    assert np.isfinite(rows).all()
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)


class Evolution:
    """A short run of the catalogue, or of a designer model, over the talks with the scripted server as task model."""

    def __init__(self, server: ScriptedServer, talks: Path, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self._talks = talks
        self._number = 0

    def another(self) -> Evolution:
        """The same run from the start, in a directory of its own."""
        self._number += 1
        return Evolution(self.server, self._talks, self.directory.with_name(f"{self.directory.name}-{self._number}"))

    def start(self, **job: Any) -> None:
        """Run to the end; `job` holds settings of the job, `evolution` in it those of the evolution."""
        from prismem_core.evolution.settings import build_settings
        from prismem_core.jobs.evolution_job import EvolutionJob, start_run, start_source
        from prismem_core.jobs.settings import build_job_settings

        given, evolving = job.pop("models", {}), job.pop("evolution", {})
        task = {"model": self.server.model(), "retries": 2, **given.get("task", {})}
        values = {"embedder": "hashing", "reranker": False, "models": {**given, "task": task}, **job}
        settings = build_job_settings(values)
        evolution = build_settings({"T1": 1, "T2": 1, "T3": 0, **evolving})
        start_run(
            self.directory,
            EvolutionJob(str(self._talks), None, settings, evolution, start_source("naive_rag")),
            SilentObserver(),
        )

    def resume(self, **given: Any) -> None:
        """Go on."""
        from prismem_core.jobs.evolution_job import resume_run

        resume_run(self.directory, SilentObserver(), **given)

    def journal(self) -> list[dict[str, Any]]:
        """The events without their times."""
        lines = (self.directory / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        return [{name: value for name, value in json.loads(line).items() if name != "time"} for line in lines]

    def kinds(self) -> list[str]:
        """The kinds of the events."""
        return [event["event"] for event in self.journal()]

    def report(self) -> dict[str, Any]:
        """The report's data."""
        from prismem_core.jobs.reports import load_report

        data: dict[str, Any] = dict(load_report(self.directory).data)
        return data


@pytest.fixture
def evolution(scripted_server: ScriptedServer, talks: Path, tmp_path: Path) -> Evolution:
    pytest.importorskip("openai")
    return Evolution(scripted_server, talks, tmp_path / "run")
