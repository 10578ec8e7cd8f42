"""The one way of asking a model to grade an answer: question, reference and prediction, each as data, and no more."""

from __future__ import annotations

from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest

JUDGE = "judge"
_SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}},
    "required": ["score"],
    "additionalProperties": False,
}


def judge_request(question: str, reference: str, prediction: str, *, max_tokens: int = 256) -> ChatRequest:
    """The request for a grade in [0, 1], at temperature 0.

    It takes texts alone, so neither a task's evidence nor what a program retrieved or instructed can come with them.
    """
    inputs = {"question": question, "reference": reference, "prediction": prediction}
    system, prompt = render("judge", **inputs)
    return ChatRequest(JUDGE, system, prompt, inputs, _SCHEMA, max_tokens)
