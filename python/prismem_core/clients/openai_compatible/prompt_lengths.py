"""Prompts and the context they must fit: fewer output tokens, prompts that are too long, prompts that were cut."""

from __future__ import annotations

import re

from prismem_core.clients.openai_compatible.context_limits import Lengths
from prismem_core.roles.protocols import ChatRequest

FEWEST_OUTPUT_TOKENS = 16
_CHARS_A_TOKEN = 3
_CHECKED_FROM_WORDS = 256
_TOKENS_A_WORD = 0.6
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def fewer_tokens(lengths: Lengths, request: ChatRequest, limit: int) -> int | None:
    """Output tokens to ask for after a refusal for length; None if the prompt alone is too long."""
    context, prompt = lengths.context, lengths.prompt
    halved = limit // 2
    if lengths.output is not None and lengths.output < limit:
        fewer = lengths.output
    elif context is None:
        fewer = halved
    elif prompt is not None and prompt >= context:
        return None
    elif prompt is None or lengths.at_least:
        estimate = (len(request.system) + len(request.prompt)) // _CHARS_A_TOKEN
        fewer = context - max(estimate, prompt or 0)
        # A refusal at about that many tokens says that the estimate is too low (servers stop counting at the limit).
        fewer = fewer if fewer < limit - 1 else halved
        fewer = fewer if fewer >= FEWEST_OUTPUT_TOKENS else min(halved, context - (prompt or 0))
    else:
        fewer = context - prompt if context - prompt < limit else halved
    return fewer if fewer >= min(FEWEST_OUTPUT_TOKENS, limit - 1) and fewer >= 1 else None


def too_long(lengths: Lengths, request: ChatRequest, model: str) -> str:
    """What to say of a prompt that does not fit."""
    tokens = f"{'at least ' if lengths.at_least else ''}{lengths.prompt:,} tokens, " if lengths.prompt else ""
    context = f"the {lengths.context:,} tokens" if lengths.context else "what the server takes"
    chars = len(request.system) + len(request.prompt)
    advice = "lower segment_chars" if request.purpose == "extract" else "show the model less"
    return (
        f"a prompt of purpose {request.purpose!r} is too long for {model}: {tokens}{chars:,} characters, with room "
        f"for a reply more than {context} of its context; {advice}, or serve the model with a larger context"
    )


def cannot_hold(request: ChatRequest, input_tokens: int, model: str) -> str:
    """Why a prompt must have been cut in silence, from the tokens that the server read of it; "" if it need not.

    No tokenizer in use packs words so densely: a word set off by blanks takes a token or more, an ideograph about one.
    """
    text = f"{request.system}\n{request.prompt}"
    if len(text) < _CHECKED_FROM_WORDS or input_tokens == 0:
        return ""
    words = len(text.split()) + len(_IDEOGRAPH.findall(text)) // 2
    if words < _CHECKED_FROM_WORDS or input_tokens >= _TOKENS_A_WORD * words:
        return ""
    return (
        f"the server of {model} read {input_tokens:,} tokens of a prompt of purpose {request.purpose!r} with about "
        f"{words:,} words, so it cut the prompt in silence; serve the model with a larger context or lower "
        "segment_chars"
    )
