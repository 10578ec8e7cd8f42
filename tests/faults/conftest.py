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


@pytest.fixture
def evaluate(scripted_server: ScriptedServer, talks: Path) -> Evaluate:
    """`prismem evaluate` of the seed on the talks, with the scripted server as the task model.

    `task` holds further settings of that model, `job` of the job, `cache` names a cache directory.
    """
    pytest.importorskip("openai")
    from prismem_core.jobs.evaluation_job import evaluate_programs
    from prismem_core.jobs.settings import build_job_settings

    def run(program: str = "seed", cache: Path | None = None, task: Any = None, **job: Any) -> dict[str, Any]:
        models = {"task": {"retries": 4, "timeout_seconds": 60.0, **(task or {})}, **job.pop("models", {})}
        models["task"].setdefault("model", scripted_server.model())
        settings = build_job_settings({"embedder": "hashing", "reranker": False, "models": models, **job})
        return evaluate_programs([program], str(talks), None, "all", settings, cache)

    return run


def one_clear_line(text: str) -> None:
    """A message for a user: one line of bearable length."""
    assert "\n" not in text and 10 < len(text) < 700, text


def unit_rows(rows: Any) -> None:
    """Every row is finite and of length one."""
    assert np.isfinite(rows).all()
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
