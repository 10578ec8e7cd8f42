"""A judge's model whose replies are written down by what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prismem_core.roles.protocols import ChatReply, ChatRequest
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.task import Task

Answers = Callable[[ChatRequest], str]


class JudgeChat:
    """Replies with `answers(request)`; keeps the requests, and how many came in each batch."""

    identity = "a model"

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.seen: list[ChatRequest] = []
        self.batches: list[int] = []

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        self.seen += requests
        self.batches.append(len(requests))
        return [ChatReply(self.answers(request), 10, 2) for request in requests]


def task(task_id: str = "t", **changes: Any) -> Task:
    """A task with a question, a reference and a piece of evidence."""
    values = {
        "history_id": "h",
        "question": "What did Ana adopt?",
        "reference": "a kitten",
        "evidence": ("EVIDENCE: I adopted a kitten.",),
        "native_type": "",
        "primary": Capability.FACTUAL_RETRIEVAL,
    }
    return Task(task_id, **{**values, **changes})  # type: ignore[arg-type]
