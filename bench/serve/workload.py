"""The calls that the stages of the pipeline make on a data set, and those stages themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prismem_core.cache import ExecutionCache
from prismem_core.errors import ArgumentError
from prismem_core.pipeline.answer import answer
from prismem_core.pipeline.extract import extract
from prismem_core.pipeline.plan import plan
from prismem_core.pipeline.segment import Segment, segment
from prismem_core.program.interface import ProgramInterface
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.ledger import Ledger, Usage
from prismem_core.roles.protocols import Chat, ChatReply, ChatRequest, Embedder
from prismem_core.tasks.task import Dataset


@dataclass(frozen=True)
class Outcome:
    """What a pass of a stage gave: replies or rows that can be used, of how many, and the tokens it paid for."""

    usable: int
    asked: int
    usage: Usage


@dataclass(frozen=True)
class Stage:
    """A stage over fixed inputs: `run` makes one pass of it, with a cache of its own that knows nothing."""

    name: str
    calls: int
    run: Callable[[], Outcome]


class _Seen:
    """A chat that notes what it is asked and answers nothing of use."""

    identity = "noted"

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        self.requests += requests
        return [ChatReply("", 0, 0) for _ in requests]


class Workload:
    """Extraction, planning and answering with a program's interface, `count` different calls of each.

    A data set with fewer segments or questions gives fewer. Replies are not asked for again, so that every pass makes
    the same calls. An answer reads the text of the question's last session, which a memory program would have chosen.
    """

    def __init__(
        self, dataset: Dataset, interface: ProgramInterface, *, count: int, segment_chars: int, max_tokens: int
    ) -> None:
        self._interface, self._max_tokens = interface, max_tokens
        found = [
            part
            for history in dataset.histories.values()
            for group in segment(history, interface.segmentation, segment_chars)
            for part in group.segments
        ]
        self._segments: list[Segment] = list({part.text: part for part in found}.values())[:count]
        tasks = list({task.asked: task for task in dataset.tasks}.values())[:count]
        self._questions = [task.asked for task in tasks]
        self._retrieved = [dataset.histories[task.history_id].sessions[-1].text[:segment_chars] for task in tasks]
        if not self._segments or not self._questions:
            raise ArgumentError(f"the data set {dataset.name!r} has no segment or no question to ask a model about")

    def stages(self, chat: Chat) -> list[Stage]:
        """The three stages over a chat model."""
        return [self._stage(name, chat) for name in ("extract", "plan", "answer")]

    def embedding(self, embedder: Embedder) -> Stage:
        """The stage that embeds the segments and questions."""
        texts = self.texts()

        def run() -> Outcome:
            ledger = Ledger()
            rows = CachedEmbedder(embedder, ExecutionCache(None), ledger).embed(texts)
            usable = int((abs((rows.astype("float64") ** 2).sum(axis=1) - 1) < 1e-3).sum())
            return Outcome(usable, len(texts), _spent(ledger))

        return Stage("embed", len(texts), run)

    def texts(self) -> list[str]:
        """What is embedded: segments and questions."""
        return list(dict.fromkeys([*(part.text for part in self._segments), *self._questions]))

    def requests(self, name: str) -> list[ChatRequest]:
        """The calls of a stage, as the model is asked."""
        seen = _Seen()
        self._ask(name, seen)
        return seen.requests

    def _stage(self, name: str, chat: Chat) -> Stage:
        def run() -> Outcome:
            ledger = Ledger()
            usable, asked = self._ask(name, CachedChat(chat, ExecutionCache(None), ledger))
            return Outcome(usable, asked, _spent(ledger))

        return Stage(name, len(self.requests(name)), run)

    def _ask(self, name: str, chat: Any) -> tuple[int, int]:
        """How many of the stage's replies can be used, of how many."""
        more: dict[str, Any] = {"max_tokens": self._max_tokens}
        if name == "extract":
            extractions = extract(chat, self._interface, self._segments, retries=0, **more)
            return sum(not one.problem for one in extractions), len(extractions)
        if name == "plan":
            plans = plan(chat, self._interface, self._questions, retries=0, **more)
            return sum(one.value is not None for one in plans), len(plans)
        replies = answer(chat, self._interface, self._questions, self._retrieved, **more)
        return sum(bool(reply.text.strip()) for reply in replies), len(replies)


def _spent(ledger: Ledger) -> Usage:
    """Tokens of the calls that answered a request; probes belong to no pass."""
    whole = Usage()
    for (_, stage), usage in ledger.totals().items():
        if stage not in ("probe", "dimension"):
            whole.add(usage)
    return whole
