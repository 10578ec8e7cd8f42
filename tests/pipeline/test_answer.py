"""Answers that say nothing or break off: asked for again, then kept as what they are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from prismem_core.pipeline.answer import Reply, answer
from prismem_core.program.interface import FieldSpec, ProgramInterface, Schema
from prismem_core.roles.protocols import ChatReply, ChatRequest

FIELDS = Schema((FieldSpec("text", "str"),))
INTERFACE = ProgramInterface(FIELDS, FIELDS, "Extract.", "Plan.", "Answer.")
THOUGHT = "<think>Is it a kitten? Let me"


class Scripted:
    """Replies by question, the next one each time it is asked; (text, finish reason)."""

    identity = "scripted"

    def __init__(self, **replies: list[tuple[str, str]]) -> None:
        self.replies = replies
        self.seen: list[ChatRequest] = []

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        found = []
        for request in requests:
            self.seen.append(request)
            text, finish = self.replies[str(request.inputs["question"])].pop(0)
            found.append(ChatReply(text, 10, 2, finish))
        return found


def answered(retries: int, *replies: tuple[str, str]) -> tuple[Reply, Scripted]:
    chat = Scripted(q=list(replies))
    (found,) = answer(chat, INTERFACE, ["q"], ["memory"], max_tokens=100, retries=retries)
    return found, chat


def test_an_answer_is_asked_for_once_and_its_request_holds_no_problem() -> None:
    found, chat = answered(2, ("a kitten", "stop"))
    assert found == Reply("a kitten", "", 1, 10, 2)
    assert chat.seen[0].sample == 0 and chat.seen[0].prompt.rstrip().endswith(">")
    assert "could not be used" not in chat.seen[0].prompt


@pytest.mark.parametrize("nothing", ["", " \n", THOUGHT, "<think>A kitten.</think>\n"])
def test_an_answer_that_says_nothing_is_asked_for_again_with_the_reason(nothing: str) -> None:
    found, chat = answered(2, (nothing, "stop"), ("a kitten", "stop"))
    assert found == Reply("a kitten", "", 2, 20, 4)
    assert chat.seen[1].sample == 1 and "it held no answer" in chat.seen[1].prompt
    assert chat.seen[1].max_tokens == 100


def test_a_cut_answer_is_asked_for_again_with_more_room() -> None:
    found, chat = answered(2, (THOUGHT, "length"), ("a kit", "length"), ("a kitten", "stop"))
    assert found == Reply("a kitten", "", 3, 30, 6)
    assert [request.max_tokens for request in chat.seen] == [100, 200, 400]


def test_after_the_last_try_an_answer_is_kept_as_what_it_is() -> None:
    assert answered(1, ("", "stop"), ("", "stop"))[0] == Reply("", "empty", 2, 20, 4)
    assert answered(0, ("a kit", "length"))[0] == Reply("a kit", "cut", 1, 10, 2)
    assert answered(1, ("a kit", "length"), ("", "stop"))[0] == Reply("a kit", "cut", 2, 20, 4)
    assert answered(1, (THOUGHT, "length"), (THOUGHT, "length"))[0] == Reply("", "cut", 2, 20, 4)


def test_only_what_was_unusable_is_asked_again() -> None:
    chat = Scripted(a=[("one", "stop")], b=[("", "stop"), ("two", "stop")], c=[("three", "stop")])
    found = answer(chat, INTERFACE, ["a", "b", "c"], ["m", "m", "m"], max_tokens=100, retries=2)
    assert [reply.text for reply in found] == ["one", "two", "three"]
    assert [request.inputs["question"] for request in chat.seen] == ["a", "b", "c", "b"]
