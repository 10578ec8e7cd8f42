"""What refusals say about lengths, in the words of the servers in use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_N = r"(\d[\d,]*)"
_LIMITS = [
    re.compile(pattern, re.I)
    for pattern in (
        rf"maximum context (?:length|size|window) (?:is|of) {_N}",
        rf"maximum model length of {_N}",
        rf"cannot be greater than \S*={_N}",
        rf"available context size \({_N}",
        rf"context (?:length|window|size)(?: is| of| \()?:? ?{_N}",
        rf"max_(?:new_)?tokens`? must be <= {_N}",
        rf"maximum (?:input|sequence) length (?:is|of) {_N}",
        rf"maximum allowed (?:input )?(?:length|tokens)(?: is| of)?:? {_N}",
        rf"must have less than {_N} tokens",
        rf"less than or equal to {_N} tokens",
        rf"current batch size: {_N}",
        rf"maximum number of (?:input )?tokens allowed \({_N}\)",
        rf"context length of only {_N}",
        rf"exceed context limit: \d+ \+ \d+ > {_N}",
        rf"model with {_N} maximum context length",
    )
]
_PROMPTS = [
    re.compile(pattern, re.I)
    for pattern in (
        rf"prompt contains (?:at least )?{_N} (?:input )?tokens",
        rf"request has {_N} input tokens",
        rf"\({_N} in the messages",
        rf"\({_N} in your prompt",
        rf"\({_N} of text input",
        rf"input token count \({_N}\)",
        rf"exceed context limit: {_N} \+",
        rf"keep the first {_N} tokens",
        rf"{_N} tokens from the input",
        rf"prompt \(length {_N}\)",
        rf"(?:request|prompt|input) \({_N} tokens",
        rf"{_N} `inputs` tokens",
        rf"messages resulted in {_N} tokens",
        rf"given: {_N}",
        rf"you requested {_N} tokens",
    )
]
_OUTPUTS = [
    re.compile(pattern, re.I)
    for pattern in (
        rf"supports at most {_N} completion tokens",
        rf"valid range of max_(?:completion_)?tokens is \[\d+, ?{_N}\]",
        rf"> {_N}, which is the maximum allowed number of output tokens",
        rf"max_(?:completion_)?tokens.{{0,40}}less than or equal to {_N}",
        rf"maximum (?:value|number)(?: of| for) .{{0,30}}(?:output|completion)[ _]tokens (?:is|of) {_N}",
    )
]
_TOO_LONG = re.compile(
    r"too long|context.{0,12}(length|size|window)|exceed|longer than|reduce the (length|size)|too large|"
    r"must have less than|maximum.{0,20}(length|tokens)|input length",
    re.I,
)


@dataclass(frozen=True)
class Lengths:
    """Tokens that a refusal names: what a prompt and its reply may have, what the prompt has, what a reply may have."""

    context: int | None
    prompt: int | None
    output: int | None
    at_least: bool = False


def lengths_in(message: str, body: Any = None) -> Lengths | None:
    """What a refusal says about lengths, None if it is about something else."""
    inner = body.get("error") if isinstance(body, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get("n_ctx"), int):
        prompt = inner.get("n_prompt_tokens")
        return Lengths(inner["n_ctx"], prompt if isinstance(prompt, int) else None, None)
    context, prompt, output = _first(_LIMITS, message), _first(_PROMPTS, message), _first(_OUTPUTS, message)
    if context is None and output is None and not _is_about_length(message):
        return None
    return Lengths(context, prompt, output, at_least="at least" in message)


def _is_about_length(message: str) -> bool:
    return bool(_TOO_LONG.search(message)) and bool(re.search(r"token|length|context|input|prompt", message, re.I))


def _first(patterns: list[re.Pattern[str]], message: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(message)
        if found:
            return int(found[1].replace(",", ""))
    return None
