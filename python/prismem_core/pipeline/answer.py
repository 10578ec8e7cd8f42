"""Stage 6: an answer from the question and the retrieved text."""

from __future__ import annotations

from collections.abc import Sequence

from prismem_core.pipeline.structured import CompletesWithSalt
from prismem_core.program.interface import ProgramInterface
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatReply, ChatRequest


def answer(
    chat: CompletesWithSalt,
    interface: ProgramInterface,
    questions: Sequence[str],
    retrieved: Sequence[str],
    *,
    max_tokens: int,
    salt: str = "",
) -> list[ChatReply]:
    """Replies in the order of `questions`, each read from the retrieved text at the same position."""
    requests = []
    for question, text in zip(questions, retrieved, strict=True):
        inputs = {"instruction": interface.answer_instruction, "retrieved": text, "question": question}
        system, prompt = render("answer", **inputs)
        requests.append(ChatRequest("answer", system, prompt, inputs, None, max_tokens))
    return chat.complete(requests, salt=salt)
