"""A judge that is a model, whatever the benchmark: all first questions of all answers go out as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismem_core.evaluation.judge_request import PROMPT_VERSION
from prismem_core.evaluation.judges.rules import Call, Grading, grading
from prismem_core.pipeline.structured import CompletesWithSalt, ask_structured
from prismem_core.roles.protocols import ChatRequest, Verdict
from prismem_core.tasks.task import Task


def judge_identity(chat: str) -> str:
    """What a judge over the chat of that identity calls itself; it holds the version of the prompts."""
    return f"model judge {PROMPT_VERSION}: {chat}"


class ModelJudge:
    """A `Judge` over any chat, by the rules of each task's benchmark (docs/judges.md).

    A reply that cannot be read is asked for again with the reason, up to `retries` times beyond what earlier processes
    left in the cache; where one of a task's replies stays unreadable its verdict has no score. An answer that says
    nothing scores zero without a call. The judge is shown the question, the reference or rubric and the answer, each as
    data, and nothing else.
    """

    def __init__(self, chat: CompletesWithSalt, retries: int = 2, max_tokens: int = 8192) -> None:
        self.identity = judge_identity(chat.identity)
        self._chat = chat
        self._retries = retries
        self._max_tokens = max_tokens

    def score(self, task: Task, answer: str) -> Verdict:
        """The verdict on one answer."""
        return self.score_all([(task, answer)])[0]

    def score_all(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Verdicts in the order of `pairs`; raises RoleError when the model fails."""
        gradings = [grading(task, answer) if answer.strip() else None for task, answer in pairs]
        grades = iter(self._grades([call for one in gradings if one is not None for call in one.calls]))
        return [Verdict(0.0) if one is None else _verdict(one, [next(grades) for _ in one.calls]) for one in gradings]

    def _grades(self, calls: Sequence[Call]) -> list[Any]:
        """What each call's reply says, None where none could be read."""

        def request(i: int, problem: str) -> ChatRequest:
            return calls[i].request(problem, self._max_tokens)

        answered = ask_structured(
            self._chat, request, len(calls), lambda i, text: calls[i].read(text), self._retries, fresh=True
        )
        return [state.value for state in answered]


def _verdict(one: Grading, grades: Sequence[Any]) -> Verdict:
    """A mean over fewer grades would be a grade of something else, so one that is missing leaves no score."""
    return Verdict(None) if any(grade is None for grade in grades) else one.verdict(grades)
