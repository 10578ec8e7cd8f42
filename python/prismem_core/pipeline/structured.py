"""Structured outputs: requests whose replies must meet a schema, asked again when they do not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from prismem_core.roles.protocols import ChatReply, ChatRequest

T = TypeVar("T")

_FENCE = re.compile(r"^\s*```[a-zA-Z]*\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)
_THINKING = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)


class CompletesWithSalt(Protocol):
    """A chat behind the cache."""

    identity: str

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]: ...

    def stop(self) -> None: ...


class Unusable(Exception):
    """A reply that does not meet its schema; the message tells the model what to mend."""


class Answered(Generic[T]):
    """The parsed value (None when every attempt failed, with the last `problem`) and what the attempts cost."""

    def __init__(self) -> None:
        self.value: T | None = None
        self.problem = ""
        self.calls = 0
        self.input_tokens = 0
        self.output_tokens = 0


def without_reasoning(text: str) -> str:
    """A reply without its reasoning: what a `<think>` at the very beginning opens, up to its end or, where it has none,
    that of the reply. The same tag further on is part of what is said.
    """
    thinking = _THINKING.match(text)
    return text[thinking.end() if thinking else 0 :].strip()


def extract_json(text: str) -> str:
    """The JSON object inside a reply: after reasoning text, inside a code fence or between prose; the text itself if
    none.
    """
    text = without_reasoning(text)
    fenced = _FENCE.match(text)
    if fenced:
        text = fenced[1].strip()
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            _, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            if match.start() == 0:
                # What begins as an object is meant as one: a piece of it must not pass for the whole.
                return text
            continue
        return text[match.start() : end]
    return text


def ask_structured(
    chat: CompletesWithSalt,
    make_request: Callable[[int, str], ChatRequest],
    count: int,
    parse: Callable[[int, str], T],
    retries: int,
    salt: str = "",
) -> list[Answered[T]]:
    """Ask `count` questions as one batch; those whose reply `parse` refuses are asked again, up to `retries` times.

    `make_request(i, problem)` renders question i, with the problem of its previous reply ("" the first time);
    `parse(i, text)` returns the value or raises Unusable. A reply cut by the output limit is a failure.
    """
    answered: list[Answered[T]] = [Answered() for _ in range(count)]
    open_indices = list(range(count))
    for attempt in range(retries + 1):
        if not open_indices:
            break
        requests = [replace(make_request(i, answered[i].problem), sample=attempt) for i in open_indices]
        failed = []
        for i, reply in zip(open_indices, chat.complete(requests, salt=salt), strict=True):
            state = answered[i]
            state.calls += 1
            state.input_tokens += reply.input_tokens
            state.output_tokens += reply.output_tokens
            try:
                if reply.finish_reason != "stop":
                    raise Unusable("the reply was cut by the output limit; reply more briefly")
                state.value = parse(i, extract_json(reply.text))
                state.problem = ""
            except Unusable as error:
                state.problem = str(error)
                failed.append(i)
        open_indices = failed
    return answered


def field_inputs(schema: Sequence[Any]) -> list[dict[str, str]]:
    """Name, type and description of every field, as prompts show them."""
    return [
        {
            "name": f.name,
            "type": f"optional:{f.type}" if f.optional else f.type,
            "description": f.description,
        }
        for f in schema
    ]
