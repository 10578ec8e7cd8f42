"""What the caller brings: a chat model, an embedder and a judge (the designer is that of `evolution/designer.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from prismem_core.digests import digest
from prismem_core.tasks.task import Task


@dataclass(frozen=True)
class ChatRequest:
    """One model call.

    `purpose` names the cache stage of the reply: the pipeline sends `extract`, `plan`, `answer` and `ask`. `system` and
    `prompt` are what a language model is sent; `inputs` are the parts the prompt was rendered from, for models that
    work from parts (the embedded default). `schema` is the JSON schema the reply must meet, None for free text.
    `max_tokens` counts output tokens. `sample` tells repeats of a call apart.
    """

    purpose: str
    system: str
    prompt: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 8192
    temperature: float = 0.0
    sample: int = 0

    @property
    def digest(self) -> str:
        """Content digest of everything that can change the reply."""
        return digest(
            "chat",
            self.purpose,
            self.system,
            self.prompt,
            dict(self.inputs),
            None if self.schema is None else dict(self.schema),
            self.max_tokens,
            self.temperature,
            self.sample,
        )


@dataclass(frozen=True)
class ChatReply:
    """The text of a reply without its reasoning, its token counts as the model counted them and why it ended (`stop`
    or `length`: cut by the output limit). `cached` says that it came from the execution cache.
    """

    text: str
    input_tokens: int
    output_tokens: int
    finish_reason: str = "stop"
    cached: bool = field(default=False, compare=False)


@runtime_checkable
class Chat(Protocol):
    """A chat model; `complete` keeps the order of the requests and raises RoleError when the provider fails."""

    identity: str

    def complete(self, requests: Sequence[ChatRequest]) -> Sequence[ChatReply]: ...


@runtime_checkable
class CompletesEach(Protocol):
    """A chat that hands over every reply as it comes, so that none that was paid for is lost with a later one.

    `complete_each` gives (position in `requests`, reply) in the order of completion. Where a call fails or a budget is
    spent it starts no further call, gives the replies of those under way, and then raises RoleError.
    """

    def complete_each(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatReply]]: ...


@runtime_checkable
class Embedder(Protocol):
    """A text embedder; rows are float32 of length 1 (a text without content may give a zero row).

    The row of a text must not depend on the texts it is sent with.
    """

    identity: str

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


@runtime_checkable
class CountsTokens(Protocol):
    """An embedder whose model says how many tokens it read.

    `embed_counted` gives the rows of `embed` and the tokens of each text; where the model counts a batch only, they are
    shared out by length, so that their sum is what it said.
    """

    def embed_counted(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], Sequence[int]]: ...


def embed_counted(embedder: Embedder, texts: Sequence[str]) -> tuple[NDArray[np.float32], Sequence[int]]:
    """Rows and the tokens of each text: those the model counted, where it does, else a quarter of the characters."""
    if isinstance(embedder, CountsTokens):
        return embedder.embed_counted(texts)
    return embedder.embed(texts), [-(-len(text) // 4) for text in texts]


@dataclass(frozen=True)
class Verdict:
    """A judge's score in [0, 1], or None when its reply could not be read (never a zero); `parts` are shown in
    reports.
    """

    score: float | None
    parts: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Judge(Protocol):
    """Scores an answer against a task; it never sees retrieved text or instructions of the program."""

    identity: str

    def score(self, task: Task, answer: str) -> Verdict: ...


@runtime_checkable
class ScoresAll(Protocol):
    """A judge that is a model: it grades many answers (of task, answer) as one batch, verdicts in their order."""

    identity: str

    def score_all(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]: ...
