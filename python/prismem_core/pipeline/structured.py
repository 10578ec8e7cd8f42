"""Structured outputs: requests whose replies must meet a schema, asked again when they do not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from prismem_core.roles.protocols import ChatReply, ChatRequest

T = TypeVar("T")

_CUT = "the reply was cut by the output limit; reply more briefly"
# Output tokens that a call whose reply was cut may be given at most.
WIDEST = 65_536
# Replies of one question that are looked at, stored ones included: no more are ever stored by honest means.
MOST_SAMPLES = 1_000

_FENCE = re.compile(r"^\s*```[a-zA-Z]*\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)
_THINKING = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)


class CompletesWithSalt(Protocol):
    """A chat behind the cache."""

    identity: str

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]: ...


class Unusable(Exception):
    """A reply that does not meet its schema; the message tells the model what to mend."""


class Answered(Generic[T]):
    """The parsed value and what the attempts cost; where every attempt failed, the value is None and there are the
    last `problem`, the `text` of the last reply that said anything and whether the last one was `cut`.
    """

    def __init__(self) -> None:
        self.value: T | None = None
        self.problem = ""
        self.text = ""
        self.cut = False
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
    there is none, or if there are several that say different things (empty ones aside).
    """
    text = without_reasoning(text)
    fenced = _FENCE.match(text)
    if fenced:
        text = fenced[1].strip()
    decoder = json.JSONDecoder()
    found: dict[str, str] = {}
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            said = json.dumps(value, sort_keys=True)
        except (ValueError, RecursionError):
            if at == 0:
                # What begins as an object is meant as one: a piece of it must not pass for the whole.
                return text
            end = at + 1
        else:
            found.setdefault(said, text[at:end])
        at = text.find("{", end)
    if len(found) > 1:
        found.pop("{}", None)
    return next(iter(found.values())) if len(found) == 1 else text


def ask(
    chat: CompletesWithSalt,
    make_request: Callable[[int, str], ChatRequest],
    count: int,
    read: Callable[[int, str], T],
    retries: int,
    salt: str = "",
    *,
    fresh: bool = False,
) -> list[Answered[T]]:
    """Ask `count` questions as one batch; those whose reply `read` refuses are asked again, up to `retries` times.

    `make_request(i, problem)` renders question i, with the problem of its previous reply ("" the first time);
    `read(i, text)` returns the value or raises Unusable. A reply cut by the output limit is a failure, and the next try
    has twice the room (`WIDEST` at most). With `fresh` a stored reply is read but counts as no try, so that a question
    whose stored replies are all unusable is still asked `retries` + 1 times.
    """
    answered: list[Answered[T]] = [Answered() for _ in range(count)]
    tries, widenings = [0] * count, [0] * count
    open_indices = list(range(count))
    sample = 0
    while open_indices and sample < MOST_SAMPLES:
        requests = []
        for i in open_indices:
            request = make_request(i, answered[i].problem)
            requests.append(replace(request, sample=sample, max_tokens=_widened(request.max_tokens, widenings[i])))
        failed = []
        for i, reply in zip(open_indices, chat.complete(requests, salt=salt), strict=True):
            state = answered[i]
            state.calls += 1
            state.input_tokens += reply.input_tokens
            state.output_tokens += reply.output_tokens
            tries[i] += not (fresh and reply.cached)
            state.cut = reply.finish_reason != "stop"
            widenings[i] += state.cut
            try:
                if state.cut:
                    raise Unusable(_CUT)
                state.value = read(i, reply.text)
                state.problem = ""
            except Unusable as error:
                state.problem = str(error)
                state.text = reply.text if without_reasoning(reply.text) else state.text
                if tries[i] <= retries:
                    failed.append(i)
        open_indices = failed
        sample += 1
    return answered


def _widened(max_tokens: int, widenings: int) -> int:
    return max(max_tokens, min(max_tokens << widenings, WIDEST))


def ask_structured(
    chat: CompletesWithSalt,
    make_request: Callable[[int, str], ChatRequest],
    count: int,
    parse: Callable[[int, str], T],
    retries: int,
    salt: str = "",
    *,
    fresh: bool = False,
) -> list[Answered[T]]:
    """`ask` for replies that hold a JSON object: `parse` gets what `extract_json` finds of them."""
    return ask(chat, make_request, count, lambda i, text: parse(i, extract_json(text)), retries, salt, fresh=fresh)


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
