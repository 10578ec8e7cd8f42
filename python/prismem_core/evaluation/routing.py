"""Routing: each question is answered by the program of its capability (P section C.3).

The capability comes from a classification of the question alone, or from the benchmark's own type (the oracle).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prismem_core.evaluation.evaluate import Evaluation, Evaluator
from prismem_core.pipeline.pipeline import ExtractedHistory
from prismem_core.pipeline.structured import Answered, CompletesWithSalt, Unusable, ask_structured
from prismem_core.pipeline.trace import StageUsage, Trace
from prismem_core.program.program import Program
from prismem_core.prompts.catalog import render
from prismem_core.roles.ledger import Ledger, Usage
from prismem_core.roles.protocols import ChatRequest
from prismem_core.tasks.capability import CAPABILITIES, MEANINGS, Capability
from prismem_core.tasks.task import Task

ROUTE = "route"
"""The purpose of a classification, which is its stage in the cache and in the ledger."""

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"capability": {"type": "string", "enum": [str(c) for c in CAPABILITIES]}},
    "required": ["capability"],
    "additionalProperties": False,
}


def routing_request(question: str, problem: str = "", max_tokens: int = 8192) -> ChatRequest:
    """The request for the capability of a question; it shows the question and nothing else."""
    capabilities = [(str(capability), meaning) for capability, meaning in MEANINGS.items()]
    system, prompt = render("routing", capabilities=capabilities, question=question, problem=problem)
    return ChatRequest(ROUTE, system, prompt, {"question": question}, SCHEMA, max_tokens)


def read_capability(text: str) -> Capability:
    """The capability that a reply names; Unusable for anything but an object with one of the five identifiers."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable("the reply is no JSON object") from None
    if not isinstance(value, dict) or set(value) != {"capability"}:
        raise Unusable('expected an object with the one field "capability"')
    try:
        return Capability(value["capability"])
    except ValueError:
        said = json.dumps(value["capability"], ensure_ascii=False)[:60]
        raise Unusable(f"{said} is no capability; expected one of: {', '.join(CAPABILITIES)}") from None


def classify(
    chat: CompletesWithSalt, questions: Sequence[str], *, retries: int, max_tokens: int
) -> list[Answered[Capability]]:
    """The capability of each question, as one batch; None as value where no reply could be used."""

    def request(i: int, problem: str) -> ChatRequest:
        return routing_request(questions[i], problem, max_tokens)

    return ask_structured(chat, request, len(questions), lambda i, text: read_capability(text), retries)


@dataclass(frozen=True)
class Routes:
    """Which program answers what: `programs` by capability, `fallback` where no capability is known."""

    programs: Mapping[Capability, str]
    fallback: str

    def of(self, capability: Capability | None) -> str:
        """The id of the program for a question of that capability."""
        return self.fallback if capability is None else self.programs.get(capability, self.fallback)


@dataclass(frozen=True)
class Part:
    """One program's share of a routed evaluation: the questions of the set that went to it and what they cost."""

    program: str
    tasks: tuple[str, ...]
    usage: StageUsage


@dataclass(frozen=True)
class RoutedEvaluation:
    """The evaluation of all questions together, and each program's part of it in the order of first use."""

    evaluation: Evaluation
    parts: tuple[Part, ...]


def evaluate_routed(
    evaluator: Evaluator,
    task_ids: Sequence[str],
    chosen: Mapping[str, Capability | None],
    routes: Routes,
    programs: Mapping[str, Program],
    ledger: Ledger,
) -> RoutedEvaluation:
    """Outcomes of `task_ids`, each answered by the program of its `chosen` capability and scored as one system.

    `chosen` also has the twins of the tasks (`Evaluator.with_twins`), whose answers come from their own programs.
    `programs` are those of the routes by id. A program that breaks on a question is tried on every other. Errors as
    those of `Evaluator.evaluate`.
    """
    tasks, order = evaluator.with_twins(task_ids)
    groups: dict[str, list[Task]] = {}
    for task in order:
        groups.setdefault(routes.of(chosen[task.id]), []).append(task)
    wanted = {task.id for task in tasks}
    traces: dict[str, Trace] = {}
    extracted: dict[str, ExtractedHistory] = {}
    usage = StageUsage()
    parts = []
    for program, own in groups.items():
        with ledger.scope(program=program):
            result = evaluator.answer(programs[program], own, every=True)
        traces.update(result.traces)
        extracted.update({f"{history} ({program})": found for history, found in result.histories.items()})
        usage.merge_dict(result.usage.to_dict())
        parts.append(Part(program, tuple(task.id for task in own if task.id in wanted), result.usage))
    return RoutedEvaluation(evaluator.score(tasks, traces, usage, extracted), tuple(parts))


def with_classification(evaluation: Evaluation, answered: Sequence[Answered[Capability]]) -> Evaluation:
    """The evaluation with the calls of the classification in its usage, as a stage of their own."""
    usage = StageUsage()
    usage.merge_dict(evaluation.usage.to_dict())
    usage.stages[ROUTE] = Usage(
        sum(one.calls for one in answered),
        sum(one.input_tokens for one in answered),
        sum(one.output_tokens for one in answered),
    )
    return replace(evaluation, usage=usage)


def routing_summary(
    mode: str, tasks: Sequence[Task], chosen: Mapping[str, Capability | None], routes: Routes, parts: Sequence[Part]
) -> dict[str, Any]:
    """How the questions were routed, as plain JSON.

    `programs` and `fallback` are the routes, `predicted` the capability of each question (None: none was known),
    `sent` how many went to each program, `agreeing` how many predictions are the native type's capability.
    """
    predicted = {task.id: chosen[task.id] for task in tasks}
    return {
        "mode": mode,
        "programs": {str(c): program for c, program in routes.programs.items()},
        "fallback": routes.fallback,
        "questions": len(tasks),
        "predicted": {i: None if c is None else str(c) for i, c in predicted.items()},
        "sent": {part.program: len(part.tasks) for part in parts if part.tasks},
        "agreeing": sum(predicted[task.id] == task.primary for task in tasks),
        "by_capability": [
            {
                "capability": None if c is None else str(c),
                "program": routes.of(c),
                "questions": sum(one is c for one in predicted.values()),
                "agreeing": sum(predicted[task.id] is c and task.primary is c for task in tasks),
                "native": sum(task.primary is c for task in tasks),
            }
            for c in (*CAPABILITIES, None)
        ],
        "parts": [
            {"program": part.program, "tasks": list(part.tasks), "usage": part.usage.to_dict()} for part in parts
        ],
    }
