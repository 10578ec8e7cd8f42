"""Prompts and replies that do not fit: what refusals say of lengths, and what is asked for then."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.clients.openai_compatible.asking import ask, failure

from prismem_core.clients.openai_compatible.context_limits import lengths_in
from prismem_core.roles.account import Account
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatRequest

WORDS = [
    (
        "This model's maximum context length is 1024 tokens. However, you requested 8192 output tokens and your prompt "
        "contains at least 1 input tokens, for a total of at least 8193 tokens.",
        (1024, 1, None, True),
    ),
    (
        "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens (1000 in the messages, "
        "4000 in the completion).",
        (4097, 1000, None, False),
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 1024 "
        "tokens and your request has 27 input tokens (8192 > 1024 - 27).",
        (1024, 27, None, False),
    ),
    (
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided "
        "100000.",
        (None, None, 16384, False),
    ),
    ("max_tokens=8192 cannot be greater than max_model_len=max_total_tokens=1024.", (1024, None, None, False)),
    (
        "This model's maximum context length is 2048 tokens, however you requested 3000 tokens (2500 in your prompt; "
        "500 for the completion).",
        (2048, 2500, None, False),
    ),
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", (4096, 5000, None, False)),
    (
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 100 `inputs` tokens and 8192 `max_new_tokens`",
        (4096, 100, None, False),
    ),
    (
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        (None, None, 8192, False),
    ),
    ("The decoder prompt (length 2000) is longer than the maximum model length of 1024.", (1024, 2000, None, False)),
    ("request (5000 tokens) exceeds the available context size (4096 tokens)", (4096, 5000, None, False)),
    (
        "This model's maximum context length is 512 tokens. However, your prompt contains 600 input tokens, which "
        "exceeds this limit even without any output tokens.",
        (512, 600, None, False),
    ),
    (
        "This model's maximum context length is 512 tokens. However, your prompt contains 90000 characters (more than "
        "8192 characters, which is the upper bound for 512 input tokens).",
        (512, None, None, False),
    ),
    ("input length is too long", (None, None, None, False)),
    (
        "This endpoint's maximum context length is 4096 tokens. However, you requested about 11192 tokens (3000 of "
        "text input, 8192 in the output). Please reduce the length of either one.",
        (4096, 3000, None, False),
    ),
    (
        "input (60 tokens) is too large to process. increase the physical batch size (current batch size: 8)",
        (8, 60, None, False),
    ),
    ("input is too large to process. increase the physical batch size", (None, None, None, False)),
    (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        (1048576, 1200000, None, False),
    ),
    (
        "input length and `max_tokens` exceed context limit: 3000 + 8192 > 4096, decrease input length or `max_tokens` "
        "and try again",
        (4096, 3000, None, False),
    ),
    (
        "Prompt contains 3000 tokens and 0 draft tokens and max_tokens 8192, too large for model with 4096 maximum "
        "context length",
        (4096, 3000, None, False),
    ),
    (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
        (4096, 5000, None, False),
    ),
]


@pytest.mark.parametrize(("message", "expected"), WORDS, ids=range(len(WORDS)))
def test_lengths_are_read_from_the_words_of_servers(message: str, expected: tuple[Any, ...]) -> None:
    found = lengths_in(message)
    assert found is not None
    assert (found.context, found.prompt, found.output, found.at_least) == expected


def test_a_refusal_about_something_else_names_no_length() -> None:
    assert lengths_in("temperature must be at most 1") is None
    assert lengths_in("response_format json_schema is not supported") is None
    assert lengths_in("no", {"error": {"n_ctx": 4096, "n_prompt_tokens": 5000}}) is not None


def test_fewer_output_tokens_are_asked_for_where_the_context_is_small(
    make: Any, scripted_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_server.play(default={"context": 300})
    chat = make.chat(scripted_server)
    assert chat.complete(ask("word " * 100))[0].text
    assert chat.complete(ask("other " * 150))[0].text
    assert len(scripted_server.requests()) <= 6
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1


def test_a_prompt_that_is_too_long_is_named_with_its_sizes(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"context": 300})
    request = ChatRequest("extract", "", "word " * 100_000)
    text = failure(make.chat(scripted_server), [request])
    assert "too long for scripted" in text
    assert "at least 125,004 tokens, 500,000 characters" in text
    assert "the 300 tokens of its context" in text
    assert "segment_chars" in text
    assert "word word" not in text


def test_a_request_that_is_too_large(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"status": 413, "html": True})
    text = failure(make.chat(scripted_server))
    assert "413" in text
    assert "segment_chars" in text
    assert len(scripted_server.requests()) == 1


def test_a_prompt_that_was_cut_in_silence_is_no_success(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"cut_prompt": 100})
    chat = make.chat(scripted_server)
    ledger = Ledger()
    chat.account = Account("task", ledger)
    assert chat.complete(ask("word " * 90))[0].text
    assert "cut the prompt in silence" in failure(chat, ask("word " * 600))
    assert ledger.totals()[("task", "unusable")].input_tokens == 100


@pytest.mark.parametrize(
    "prompt", ["我昨天签了租约。" * 230, "word " * 1000, "07:15 x=12; " * 300], ids=["zh", "en", "code"]
)
@pytest.mark.parametrize("limit", [200, 1024, 8192])
def test_room_is_found_where_a_server_stops_counting(make: Any, scripted_server: Any, prompt: str, limit: int) -> None:
    context = 4 * 1024
    # One token a character of Chinese, far more than an estimate from characters has.
    dense = "我" in prompt
    scripted_server.play(default={"context": context, "stops_counting": True, "character_tokens": dense})
    reply = make.chat(scripted_server).complete(ask(prompt, max_tokens=limit))[0]
    assert reply.finish_reason == "stop"
    asked = [entry["body"]["max_tokens"] for entry in scripted_server.requests()]
    room = context - scripted_server.requests()[-1]["prompt_tokens"]
    assert room // 3 <= asked[-1] <= room or asked == [limit]
    assert len(asked) <= 7


def test_a_prompt_that_fits_nowhere_is_told_in_its_error_alone(
    make: Any, scripted_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_server.play(default={"status": 400, "error": "the prompt exceeds the context length"})
    assert "too long for scripted" in failure(make.chat(scripted_server))
    assert not caplog.records
