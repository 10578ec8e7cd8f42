"""Distorted verdicts and answers of a real server: read through what can be, asked again else, and never guessed at."""

from __future__ import annotations

import pytest

from tests.scripted_server.fixture import ScriptedServer

from .conftest import Evaluate

QUESTIONS = 4
READ_THROUGH = ["fenced", "prose_around", "think", "reasoning_field", "parts", "extra_field"]
UNREADABLE = [
    "only_reasoning",
    "only_reasoning_field",
    "empty",
    "null",
    "prose",
    "half",
    "whitespace",
    "wrong_types",
    "missing_field",
    "not_finite",
]


@pytest.mark.parametrize("shape", READ_THROUGH)
def test_a_verdict_is_found_in_what_models_put_around_it(
    evaluate: Evaluate, scripted_server: ScriptedServer, shape: str
) -> None:
    good = evaluate(judge=scripted_server.model("judge"))["programs"]["seed"]
    scripted_server.reset()
    scripted_server.play({"purpose": "judge", "do": {"shape": shape}})
    found = evaluate(judge=scripted_server.model("judge"))["programs"]["seed"]
    assert found["scored"] == QUESTIONS and found["score"] == good["score"]
    assert len(scripted_server.requests("chat", "judge")) == QUESTIONS


@pytest.mark.parametrize("do", [*({"shape": shape} for shape in UNREADABLE), {"finish": "length"}], ids=str)
def test_a_verdict_that_is_none_is_asked_again_and_then_counted(
    evaluate: Evaluate, scripted_server: ScriptedServer, do: dict[str, str]
) -> None:
    scripted_server.play({"purpose": "judge", "times": 1, "do": do})
    found = evaluate(judge=scripted_server.model("judge"))["programs"]["seed"]
    assert (found["scored"], found["left_out"]["judge"]) == (QUESTIONS, 0)
    asked = scripted_server.requests("chat", "judge")
    assert len(asked) == QUESTIONS + 1 and "could not be used" in asked[-1]["body"]["messages"][-1]["content"]
    scripted_server.play({"purpose": "judge", "do": do})
    result = evaluate(judge=scripted_server.model("judge"), output_retries=1)
    found = result["programs"]["seed"]
    assert found["scored"] == 0
    assert found["left_out"] == {"provider": 0, "judge": QUESTIONS, "candidate": 0, "limit": 0}
    assert found["score"] is None and found["overall"] is None and found["official"] is not None
    assert result["calls"]["judge/judge"]["calls"] == 2 * QUESTIONS


@pytest.mark.parametrize(
    ("do", "count"),
    [
        ({"shape": "only_reasoning"}, "unread_answers"),
        ({"shape": "only_reasoning_field"}, "unread_answers"),
        ({"shape": "empty"}, "unread_answers"),
        ({"shape": "null"}, "unread_answers"),
        ({"finish": "length"}, "cut_answers"),
    ],
    ids=str,
)
def test_an_answer_that_says_nothing_or_breaks_off_is_asked_again_and_then_counted(
    evaluate: Evaluate, scripted_server: ScriptedServer, do: dict[str, str], count: str
) -> None:
    good = evaluate()["programs"]["seed"]
    assert (good["unread_answers"], good["cut_answers"]) == (0, 0)
    scripted_server.reset()
    scripted_server.play({"purpose": "answer", "times": QUESTIONS, "do": do})
    mended = evaluate()["programs"]["seed"]
    assert mended["score"] == good["score"] and mended[count] == 0
    assert len(scripted_server.requests("chat", "answer")) == 2 * QUESTIONS
    scripted_server.play({"purpose": "answer", "do": do})
    spoilt = evaluate(output_retries=1)["programs"]["seed"]
    assert spoilt[count] == QUESTIONS and spoilt["scored"] == QUESTIONS
    limits = [entry["body"]["max_tokens"] for entry in scripted_server.requests("chat", "answer")]
    # The second try of a portion may come before the first of another, and then meet the same fault: a third follows.
    assert set(limits) - {32768} == ({8192, 16384} if count == "cut_answers" else {8192})
    assert 32768 not in limits or count == "cut_answers"
