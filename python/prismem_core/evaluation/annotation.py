"""Annotation of questions by a model: the primary capability and up to two secondary ones (P section A.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prismem_core.pipeline.structured import CompletesWithSalt, Unusable, ask_structured
from prismem_core.prompts.catalog import render
from prismem_core.roles.protocols import ChatRequest
from prismem_core.tasks.capability import CAPABILITIES, MEANINGS, Capability
from prismem_core.tasks.task import Task

ANNOTATE = "annotate"
"""The purpose of an annotation, which is its stage in the cache and in the ledger."""

MOST_SECONDARY = 2
_NAMES = [str(capability) for capability in CAPABILITIES]
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "primary": {"type": "string", "enum": _NAMES},
        "secondary": {"type": "array", "items": {"type": "string", "enum": _NAMES}, "maxItems": MOST_SECONDARY},
    },
    "required": ["primary", "secondary"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Annotation:
    """The labels of a task; secondaries in canonical order. `problem` says why no annotation could be used, and then
    they are those of the task's native type.
    """

    primary: Capability
    secondary: tuple[Capability, ...] = ()
    problem: str = ""


def annotation_request(task: Task, problem: str = "", max_tokens: int = 8192) -> ChatRequest:
    """The request for a task's labels: its question, evidence and answer, and nothing else of it."""
    inputs = {
        "question": task.question,
        "evidence": json.dumps(list(task.evidence), ensure_ascii=False, indent=1),
        "reference": task.reference,
    }
    capabilities = [(str(capability), meaning) for capability, meaning in MEANINGS.items()]
    system, prompt = render("annotation", capabilities=capabilities, problem=problem, **inputs)
    return ChatRequest(ANNOTATE, system, prompt, inputs, SCHEMA, max_tokens)


def read_annotation(text: str) -> Annotation:
    """The labels in a reply; Unusable names every rule that they break."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable("the reply is no JSON object") from None
    if not isinstance(value, dict):
        raise Unusable('expected an object with "primary" and "secondary"')
    problems = [f'field "{name}" is missing' for name in ("primary", "secondary") if name not in value]
    problems += [f'field "{name}" is not asked for' for name in sorted(set(value) - {"primary", "secondary"})]
    primary, secondary = value.get("primary"), value.get("secondary")
    if "primary" in value and primary not in _NAMES:
        problems.append(f'"primary" is {_shown(primary)}; expected one of: {", ".join(_NAMES)}')
    if "secondary" in value:
        problems += _secondary_problems(secondary, primary)
    if problems or primary is None or secondary is None:
        raise Unusable("; ".join(problems))
    return Annotation(Capability(primary), tuple(c for c in CAPABILITIES if c in secondary))


def _secondary_problems(secondary: Any, primary: Any) -> list[str]:
    if not isinstance(secondary, list):
        return [f'"secondary" is {_shown(secondary)}; expected a list']
    problems = [
        f'"secondary" holds {_shown(item)}; expected some of: {", ".join(_NAMES)}'
        for item in secondary
        if item not in _NAMES
    ]
    if len(secondary) > MOST_SECONDARY:
        problems.append(f'"secondary" has {len(secondary)} items; expected at most {MOST_SECONDARY}')
    if any(item in secondary[:position] for position, item in enumerate(secondary)):
        problems.append('"secondary" names a capability twice')
    if primary in _NAMES and primary in secondary:
        problems.append('"secondary" repeats the primary')
    return problems


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:60]


def annotate_tasks(
    chat: CompletesWithSalt, tasks: Sequence[Task], *, retries: int, max_tokens: int
) -> list[Annotation]:
    """The labels of each task, as one batch.

    A reply that breaks a rule is asked for again with what was wrong, up to `retries` times; then the primary is the
    capability of the task's native type and there are no secondaries. A type that stands for no capability was refused
    when the data set was loaded. RoleError where the model fails.
    """

    def request(i: int, problem: str) -> ChatRequest:
        return annotation_request(tasks[i], problem, max_tokens)

    answered = ask_structured(chat, request, len(tasks), lambda i, text: read_annotation(text), retries)
    return [_or_native(task, one.value, one.problem) for task, one in zip(tasks, answered, strict=True)]


def _or_native(task: Task, found: Annotation | None, problem: str) -> Annotation:
    return Annotation(task.primary, (), problem) if found is None else found
