"""The lexical judge: official metrics by task, no model."""

from __future__ import annotations

from prismem_core.evaluation.metrics import (
    bleu1,
    cut_words,
    f1_multi,
    f1_multi_symmetric,
    f1_set,
    is_abstention,
    official_f1,
    plain_coverage,
    rubric_coverage,
)
from prismem_core.roles.protocols import Verdict
from prismem_core.tasks.task import Task


class LexicalJudge:
    """A `Judge` by `task.metric`: LoCoMo's F1 with its category rules, or rubric coverage where a task has a rubric.

    The parts of a verdict are `f1`, `f1_set`, `bleu1` against the reference (not for abstention), `abstained`, and
    for rubrics `coverage` and `coverage_plain`.
    """

    identity = "lexical-1"

    def __init__(self, boilerplate: frozenset[str] = frozenset()) -> None:
        self._boilerplate = boilerplate
        if boilerplate:
            self.identity = f"lexical-1/boilerplate:{'|'.join(sorted(boilerplate))}"

    def score(self, task: Task, answer: str) -> Verdict:
        """The official metric of the task in [0, 1]; an unknown metric counts as F1."""
        parts = {"abstained": float(is_abstention(answer))}
        if task.metric == "abstention":
            return Verdict(parts["abstained"], parts)
        reference = task.reference.split(";")[0] if task.metric == "f1_first" else task.reference
        parts |= {
            "f1": official_f1(answer, reference),
            "f1_set": f1_set(answer, reference),
            "bleu1": bleu1(answer, reference),
        }
        if task.metric == "rubric" and task.rubric:
            parts["coverage_plain"] = plain_coverage(answer, task.rubric)
            parts["coverage"] = rubric_coverage(answer, task.rubric, task.question, self._boilerplate)
            return Verdict(parts["coverage"], parts)
        if task.metric == "f1_multi":
            parts["f1_multi"] = f1_multi(answer, reference)
            parts["f1_multi_symmetric"] = f1_multi_symmetric(answer, reference)
            return Verdict(parts["f1_multi"], parts)
        return Verdict(parts["f1"], parts)


def cut_reply(answer: str, words: int) -> str:
    """An answer as it is judged: its first `words` words, where it is longer than that."""
    return answer if len(answer.split()) <= words else cut_words(answer, words)
