"""A chat completion read with care: text without reasoning, tokens, and why it ended."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from prismem_core.clients.openai_compatible.body import sendable
from prismem_core.clients.openai_compatible.failures import PassingFailure
from prismem_core.pipeline.structured import without_reasoning

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_OPENED_BEFORE = re.compile(r"\A(?:(?!<think>).)*?</think>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Completion:
    """What an answer holds; tokens are None where the server does not say. `problem` says why it is none."""

    text: str = ""
    finish_reason: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    raw_chars: int = 0
    problem: str = ""


def read_completion(value: Any) -> Completion:
    """The completion in a decoded answer."""
    usage = _usage(value)
    if not isinstance(value, dict):
        return Completion(problem="JSON that is no chat completion")
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return Completion(problem="a chat completion without choices", input_tokens=usage[0], output_tokens=usage[1])
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        return Completion(problem="a choice without a message", input_tokens=usage[0], output_tokens=usage[1])
    content, reasoning = _content(message.get("content")), _reasoning(message)
    return _completion(content, len(reasoning), choice.get("finish_reason"), usage)


async def read_stream(response: Any) -> Completion:
    """The completion in a stream of server-sent events; one that ends early is a lost connection."""
    texts: list[str] = []
    reasoning_chars = 0
    finish: Any = None
    usage: tuple[int | None, int | None] = (None, None)
    done = False
    async for data in _events(response):
        if data == "[DONE]":
            done = True
            break
        try:
            chunk = json.loads(data)
        except ValueError:
            raise PassingFailure("a stream held an event that is no JSON", few=True) from None
        if not isinstance(chunk, dict):
            continue
        if chunk.get("error"):
            code = chunk["error"].get("code") if isinstance(chunk["error"], dict) else None
            lasting = isinstance(code, int) and code < 500 and code != 429
            raise PassingFailure(
                "a stream ended with an error of the server", few=lasting, advice="look at the server's log"
            )
        if isinstance(chunk.get("usage"), dict):
            usage = _usage(chunk)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta")
            if isinstance(delta, dict):
                texts.append(_content(delta.get("content")))
                reasoning_chars += len(_reasoning(delta))
            finish = choice.get("finish_reason") or finish
    if finish is None:
        what = "ended without saying why" if done else "broke off"
        raise PassingFailure(f"a stream {what}: the connection was lost in the middle of a reply")
    return _completion("".join(texts), reasoning_chars, finish, usage)


def _completion(content: str, reasoning_chars: int, finish: Any, usage: tuple[int | None, int | None]) -> Completion:
    text = _OPENED_BEFORE.sub("", content, count=1)
    # The opening tag is part of some models' prompt; only the closing one is in the reply.
    text = sendable(without_reasoning(text))
    cut = isinstance(finish, str) and finish.lower() in _CUT
    return Completion(text, "length" if cut else "stop", usage[0], usage[1], len(content) + reasoning_chars)


def _content(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict) and part.get("type") != "reasoning"]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _reasoning(message: Mapping[str, Any]) -> str:
    for name in ("reasoning_content", "reasoning"):
        value = message.get(name)
        if isinstance(value, str):
            return value
    return ""


def _usage(value: Any) -> tuple[int | None, int | None]:
    usage = value.get("usage") if isinstance(value, dict) else None
    if not isinstance(usage, dict):
        return None, None
    given = usage.get("prompt_tokens", usage.get("input_tokens"))
    written = usage.get("completion_tokens", usage.get("output_tokens"))
    return _count(given), _count(written)


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


async def _events(response: Any) -> AsyncIterator[str]:
    """The data of each event."""
    lines: list[str] = []
    async for line in response.aiter_lines():
        if not line:
            if lines:
                yield "\n".join(lines)
            lines = []
        elif line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
    if lines:
        yield "\n".join(lines)
