"""Stage 4: one structured query a question, from the question alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.pipeline.structured import Answered, CompletesWithSalt, Unusable, ask_structured, field_inputs
from prismem_core.program.interface import ProgramInterface, to_json_schema
from prismem_core.program.schema import check_json
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest


def plan(
    chat: CompletesWithSalt,
    interface: ProgramInterface,
    questions: Sequence[str],
    *,
    retries: int,
    max_tokens: int,
    salt: str = "",
) -> list[Answered[Mapping[str, Any]]]:
    """Queries in the order of `questions`; a reply that is not valid as a whole is asked for again."""
    fields = field_inputs(interface.query)
    schema = to_json_schema(interface.query, "Query")

    def request(i: int, problem: str) -> ChatRequest:
        inputs = {"instruction": interface.planning_instruction, "fields": fields, "question": questions[i]}
        system, prompt = render("planning", problem=problem, **inputs)
        return ChatRequest("plan", system, prompt, inputs, schema, max_tokens)

    def parse(i: int, text: str) -> Mapping[str, Any]:
        result = check_json(text, interface.query)
        if not result.ok or result.value is None:
            raise Unusable(result.words)
        return result.value

    return ask_structured(chat, request, len(questions), parse, retries, salt)
