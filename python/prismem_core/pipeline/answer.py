"""Stage 6: an answer from the question and the retrieved text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prismem_core.pipeline.structured import CompletesWithSalt, Unusable, ask, without_reasoning
from prismem_core.pipeline.trace import Defect
from prismem_core.program.interface import ProgramInterface
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest

_EMPTY = "it held no answer"


@dataclass(frozen=True)
class Reply:
    """What the task model answered, what is wrong with it after the last try, and what all tries cost."""

    text: str
    defect: Defect
    calls: int
    input_tokens: int
    output_tokens: int


def answer(
    chat: CompletesWithSalt,
    interface: ProgramInterface,
    questions: Sequence[str],
    retrieved: Sequence[str],
    *,
    max_tokens: int,
    retries: int = 0,
    salt: str = "",
) -> list[Reply]:
    """Replies in the order of `questions`, each read from the retrieved text at the same position.

    One that is empty, only reasoning or cut by the output limit is asked for again, up to `retries` times. After that
    it is kept as what it is: the last reply that says anything, with its defect.
    """

    def request(i: int, problem: str) -> ChatRequest:
        inputs = {"instruction": interface.answer_instruction, "retrieved": retrieved[i], "question": questions[i]}
        system, prompt = render("answer", problem=problem, **inputs)
        return ChatRequest("answer", system, prompt, inputs, None, max_tokens)

    def read(i: int, text: str) -> str:
        if not without_reasoning(text):
            raise Unusable(_EMPTY)
        return text

    return [
        Reply(
            state.text if state.value is None else state.value,
            # Of what says anything `read` refuses nothing, so a text that was kept was cut.
            "" if state.value is not None else "cut" if state.text or state.cut else "empty",
            state.calls,
            state.input_tokens,
            state.output_tokens,
        )
        for state in ask(chat, request, len(questions), read, retries, salt)
    ]
