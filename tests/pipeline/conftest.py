"""A small world for pipeline tests: two histories, the embedded task model behind a counter, a real sandbox."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from prismem_core.cache import ExecutionCache
from prismem_core.clients.offline.chat import OfflineChat
from prismem_core.clients.offline.embedders import HashingEmbedder
from prismem_core.pipeline.pipeline import Pipeline, PipelineSettings
from prismem_core.program.sandbox import Sandbox
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.tasks.history import History, Session, Turn


class CountingChat:
    """Counts requests by purpose."""

    batch = 1

    def __init__(self) -> None:
        self._chat = OfflineChat()
        self.identity = self._chat.identity
        self.calls: Counter[str] = Counter()

    def complete(self, requests: Sequence[ChatRequest]) -> Sequence[ChatReply]:
        self.calls.update(request.purpose for request in requests)
        return self._chat.complete(requests)


class RecordingCache(ExecutionCache):
    """Notes the keys that were stored anew since the last look."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[tuple[str, str]] = set()
        self.fresh: Counter[str] = Counter()

    def put_json(self, stage: str, key: str, value: Any, **options: Any) -> None:
        if (stage, key) not in self.known:
            self.known.add((stage, key))
            self.fresh[stage] += 1
        super().put_json(stage, key, value, **options)


class World:
    """Pipelines over one cache; `calls` counts what was really asked since the last look."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.cache = RecordingCache()
        self.chat = CountingChat()
        self.ledger = Ledger()
        self.sandbox = sandbox
        self._lasting: dict[str, Pipeline] = {}
        self.histories = {
            "one": History(
                "one", (_session("1", "8 May 2023", "Ann", "Bob"), _session("2", "9 June 2023", "Ann", "Bob"))
            ),
            "two": History("two", (_session("1", "1 July 2023", "Cleo", "Dan"),)),
        }
        self.questions = [
            ("one", "What did Ann paint on 1?"),
            ("two", "Where does Dan live?"),
            ("one", "When did Bob run a race?"),
        ]

    def pipeline(self, reuse: str = "content", workers: int = 2, **settings: Any) -> Pipeline:
        return Pipeline(
            CachedChat(self.chat, self.cache, self.ledger, workers=workers),
            CachedEmbedder(HashingEmbedder(), self.cache, self.ledger),
            self.cache,
            self.sandbox,
            PipelineSettings(reuse=reuse, workers=workers, **settings),  # type: ignore[arg-type]
            ledger=self.ledger,
        )

    def lasting(self, reuse: str) -> Pipeline:
        """One pipeline for all programs, whose memories outlive each."""
        if reuse not in self._lasting:
            self._lasting[reuse] = self.pipeline(reuse)
        return self._lasting[reuse]

    def calls(self) -> dict[str, int]:
        """Model calls by purpose and embedded texts since the last look."""
        embedded = sum(u.calls for (role, _), u in self.ledger.totals().items() if role == "embedder")
        found = dict(self.chat.calls)
        if embedded > self._embedded:
            found["embed"] = embedded - self._embedded
        self._embedded = embedded
        self.chat.calls.clear()
        return found

    _embedded = 0


def _session(number: str, date: str, first: str, second: str) -> Session:
    texts = [
        (first, f"I painted a sunrise over the lake number {number}."),
        (second, "Lovely! I ran a charity race last Sunday."),
        (first, "My sister moved to Oslo in March."),
        (second, f"I live near the harbour since {date}."),
    ]
    return Session(number, date, tuple(Turn(f"D{number}:{i + 1}", who, text) for i, (who, text) in enumerate(texts)))


@pytest.fixture(scope="module")
def shared_sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def world(shared_sandbox: Sandbox) -> World:
    return World(shared_sandbox)
