"""The one way of asking a model to grade an answer: texts of the question, its reference and its rubric, and the
prediction, each as data, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest

JUDGE = "judge"

# Changes with every prompt below, so that grades of different prompts are never taken for the same.
PROMPT_VERSION = 1

Form = Literal[
    "general", "locomo", "longmemeval", "temporal", "update", "preference", "perltqa", "abstention", "nugget"
]

TEMPLATES: Mapping[str, str] = {
    "general": "judge",
    "locomo": "judge_locomo",
    "longmemeval": "judge_longmemeval",
    "temporal": "judge_longmemeval_temporal",
    "update": "judge_longmemeval_update",
    "preference": "judge_longmemeval_preference",
    "perltqa": "judge_perltqa",
    "abstention": "judge_abstention",
    "nugget": "judge_beam_nugget",
    "order": "judge_beam_order",
}

NUGGET_SCORES = (0.0, 0.5, 1.0)


def _one_field(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: value}, "required": [name], "additionalProperties": False}


VERDICT_SCHEMA = _one_field("verdict", {"type": "string", "enum": ["yes", "no"]})
_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "general": _one_field("score", {"type": "number", "minimum": 0, "maximum": 1}),
    "nugget": _one_field("score", {"type": "number", "enum": [0, 0.5, 1]}),
}


def judge_request(
    question: str,
    reference: str,
    prediction: str,
    *,
    form: Form = "general",
    problem: str = "",
    max_tokens: int = 8192,
) -> ChatRequest:
    """The request for a grade by the rules of `form`, at temperature 0; `problem` is that of the reply before.

    The reference of `nugget` is one rubric item, that of `abstention` says why there is no answer and may be empty.
    It takes texts alone, so neither a task's evidence nor what a program retrieved or instructed can come with them.
    """
    inputs = {"question": question, "reference": reference, "prediction": prediction}
    system, prompt = render(TEMPLATES[form], problem=problem, **inputs)
    schema = _SCHEMAS.get(form, VERDICT_SCHEMA)
    return ChatRequest(JUDGE, system, prompt, inputs, schema, max_tokens)


def order_request(
    question: str, events: Sequence[str], prediction: str, *, problem: str = "", max_tokens: int = 8192
) -> ChatRequest:
    """The request for the order in which a prediction tells the reference `events` (numbered from 1; 0: another)."""
    reference = "\n".join(f"{number}. {' '.join(event.split())}" for number, event in enumerate(events, start=1))
    inputs = {"question": question, "reference": reference, "prediction": prediction}
    system, prompt = render(TEMPLATES["order"], problem=problem, **inputs)
    number = {"type": "integer", "minimum": 0, "maximum": len(events)}
    # A bound for models that would never end a list; predictions tell no more events than that.
    schema = _one_field("order", {"type": "array", "items": number, "maxItems": 4 * len(events) + 16})
    return ChatRequest(JUDGE, system, prompt, inputs, schema, max_tokens)
