"""A chat completion read with care: text without reasoning, tokens, and why it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from prismem_core.clients.openai_compatible.body import sendable
from prismem_core.pipeline.structured import without_reasoning

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_WHOLE = frozenset(
    {"stop", "eos", "eos_token", "stop_sequence", "stop_token", "end_turn", "end", "complete", "completed", "done",
     "tool_calls", "tool_call", "tool_use", "function_call", "finish_reason_stop"}
)  # fmt: skip
# The text so far was kept back, or what follows it was: it is no reply of the model's own.
_KEPT_BACK = frozenset(
    {"content_filter", "content_filtered", "refusal", "safety", "image_safety", "sensitive", "recitation",
     "blocklist", "prohibited_content", "spii", "guardrail_intervened"}
)  # fmt: skip
_BROKEN = frozenset(
    {"error", "abort", "aborted", "cancel", "cancelled", "canceled", "insufficient_system_resource", "network_error",
     "interrupted", "timeout", "failed", "failure", "other_error", "malformed_function_call", "unexpected_tool_call"}
)  # fmt: skip
NO_USAGE: tuple[int | None, int | None] = (None, None)
# What opens reasoning is part of some models' prompt, so that only what closes it is in the reply. It then ends a line,
# or what was asked for as JSON follows; a text that merely speaks of the tag keeps its words.
_OPENED_BEFORE = re.compile(
    r"\A(?!\s*(?:[\[{]|```))(?:(?!<think>).)*?</think>(?=[ \t]*(?:\n|\Z|[\[{]|```))", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True)
class Completion:
    """What an answer holds; tokens are None where the server does not say.

    `problem` says why it is none, and `lasting` that another try will hardly help. `doubt` is the reason for its end
    where that is none of those known: the text may be incomplete. `cached_tokens` are those that some servers leave
    out of `input_tokens`, others not. `fingerprint` is what the server calls its present state, where it does.
    """

    text: str = ""
    finish_reason: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    raw_chars: int = 0
    problem: str = ""
    lasting: bool = True
    doubt: str = ""
    cached_tokens: int = 0
    fingerprint: str = ""


def read_completion(value: Any) -> Completion:
    """The completion in a decoded answer."""
    usage = usage_of(value)
    if not isinstance(value, dict):
        return Completion(problem="JSON that is no chat completion")
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return Completion(problem="a chat completion without choices", input_tokens=usage[0], output_tokens=usage[1])
    choice = choices[0]
    found = error_in(choice)
    if found:
        problem = f"a reply that {found[0]}"
        return Completion(problem=problem, lasting=found[1], input_tokens=usage[0], output_tokens=usage[1])
    message = choice.get("message")
    if not isinstance(message, dict):
        return Completion(problem="a choice without a message", input_tokens=usage[0], output_tokens=usage[1])
    content, reasoning = content_of(message.get("content")), reasoning_of(message)
    found_end = completed(content, len(reasoning), choice.get("finish_reason"), usage)
    return replace(found_end, cached_tokens=cached_in(value), fingerprint=fingerprint_in(value))


def error_in(part: Mapping[str, Any]) -> tuple[str, bool] | None:
    """What a choice, or an event of a stream, says of a failure of the server, and whether it will last."""
    error = part.get("error")
    if not error and part.get("object") == "error":
        error = part
    if not error:
        return None
    code = error.get("code") if isinstance(error, Mapping) else None
    number = int(code) if isinstance(code, int | str) and str(code).isdigit() else 500
    return "ended with an error of the server", 400 <= number < 500 and number not in (408, 409, 425, 429)


def completed(content: str, reasoning_chars: int, finish: Any, usage: tuple[int | None, int | None]) -> Completion:
    """The completion of a text that ended with `finish`."""
    reason = finish.strip().lower() if isinstance(finish, str) else ""
    if reason in _BROKEN:
        problem = f"a reply that it broke off ({reason})"
        return Completion(problem=problem, lasting=False, input_tokens=usage[0], output_tokens=usage[1])
    text = "" if reason in _KEPT_BACK else sendable(without_reasoning(_OPENED_BEFORE.sub("", content, count=1)))
    known = reason in _CUT or reason in _WHOLE or reason in _KEPT_BACK
    return Completion(
        text,
        "length" if reason in _CUT else "stop",
        usage[0],
        usage[1],
        len(content) + reasoning_chars,
        doubt="" if known else reason or "none",
    )


def content_of(value: Any) -> str:
    """The text of a message, without parts that are reasoning."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict) and part.get("type") != "reasoning"]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The reasoning that a message holds beside its text."""
    for name in ("reasoning_content", "reasoning"):
        value = message.get(name)
        if isinstance(value, str):
            return value
    return ""


def usage_of(value: Any) -> tuple[int | None, int | None]:
    """Tokens read and written, as an answer or an event tells them."""
    usage = value.get("usage") if isinstance(value, dict) else None
    if not isinstance(usage, dict):
        return NO_USAGE
    given = count_in(usage.get("prompt_tokens", usage.get("input_tokens")))
    written = count_in(usage.get("completion_tokens", usage.get("output_tokens")))
    whole = count_in(usage.get("total_tokens"))
    if given is not None and whole is not None and whole > given + (written or 0):
        # Some servers count reasoning in the total alone; it is paid for like what is written.
        written = whole - given
    return given, written


def fingerprint_in(value: Mapping[str, Any]) -> str:
    """The `system_fingerprint` of an answer or an event."""
    found = value.get("system_fingerprint")
    return found if isinstance(found, str) else ""


def cached_in(value: Mapping[str, Any]) -> int:
    """Tokens that an answer says were read from a cache."""
    usage = value.get("usage")
    if not isinstance(usage, Mapping):
        return 0
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    within = count_in(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    beside = [count_in(usage.get(name)) or 0 for name in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    return max(within or 0, count_in(usage.get("prompt_cache_hit_tokens")) or 0, sum(beside))


def count_in(value: Any) -> int | None:
    """A number of tokens, None for what is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
