"""The offline score: it drives selection where no model judges, because official metrics are won by degenerate answers.

Always abstaining beats plain BM25 on LoCoMo's official score, and a dump of words wins its multi-hop F1. Here an
answer earns half its score by what it says and half by the evidence that was retrieved for it, abstaining earns
nothing on a question that has an answer, and abstaining rightly earns only as much as the twin question was answered
and the evidence was there to see.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from prismem_core.evaluation.judge import cut_reply
from prismem_core.evaluation.metrics import (
    f1_first,
    f1_multi_symmetric,
    is_abstention,
    nugget_form,
    official_f1,
    rubric_coverage,
)
from prismem_core.tasks.task import Dataset, Task
from prismem_core.tasks.text import blocks, distinct_evidence, normal_form

PIECE_SHARE = 0.8
PIECE_BIGRAMS = 40
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class DatasetStats:
    """What the score must know of the data set: words a reply may have, and rubric items that many rubrics share."""

    reply_words: int = 32
    boilerplate: frozenset[str] = frozenset()


@dataclass(frozen=True)
class OfflineScore:
    """The score in [0, 1] and its parts; `recall` is None for a task without evidence."""

    score: float
    f1: float
    recall: float | None
    abstained: bool


def dataset_stats(dataset: Dataset, known: Collection[str] | None = None) -> DatasetStats:
    """The statistics of a data set, taken from the tasks of the ids `known` (None: all).

    A score that drives selection knows those of training and validation alone.
    A rubric item is boilerplate where at least 3 questions of one native type and a fifth of that type's questions
    have it: an item such as "there is contradictory information" is earned by a template, one such as "21 days" is
    not.
    """
    questions: Counter[str] = Counter()
    having: Counter[tuple[str, str]] = Counter()
    for task in dataset.tasks:
        if task.rubric and (known is None or task.id in known):
            questions[task.native_type] += 1
            having.update((task.native_type, item) for item in {nugget_form(item) for item in task.rubric})
    shared = {item for (kind, item), n in having.items() if n >= 3 and 5 * n >= questions[kind]}
    return DatasetStats(dataset.reply_words, frozenset(shared))


@lru_cache(maxsize=1 << 15)
def _bigrams(text: str) -> frozenset[tuple[str, ...]]:
    words = _WORD.findall(normal_form(text))
    return frozenset(pairwise(words)) if len(words) > 1 else frozenset((word,) for word in words)


@lru_cache(maxsize=1 << 15)
def _words(text: str) -> frozenset[tuple[str, ...]]:
    return frozenset((word,) for word in _WORD.findall(normal_form(text)))


def piece_recall(evidence: Iterable[str], retrieved: str) -> float | None:
    """Share of the distinct snippets that one line of the retrieved text holds; None without any.

    With B distinct word bigrams in a snippet, a line holds it if at least 80 % of min(B, 40) of them stand in that
    line: a long message counts by a passage of it. A snippet of one word counts by that word. Word order and the line
    matter: a dump of all words of a dialogue holds nothing.
    """
    snippets = distinct_evidence(evidence)
    if not snippets:
        return None
    lines = blocks(retrieved)
    return sum(_held(snippet, lines) for snippet in snippets) / len(snippets)


def _held(snippet: str, lines: list[str]) -> bool:
    wanted = _bigrams(snippet)
    if not wanted:
        return False
    single = len(next(iter(wanted))) == 1
    needed = PIECE_SHARE * min(len(wanted), PIECE_BIGRAMS)
    return any(len(wanted & (_words(line) if single else _bigrams(line))) >= needed for line in lines)


def offline_score(
    task: Task, answer: str, retrieved: str, twin_answer: str | None, stats: DatasetStats | None = None
) -> OfflineScore:
    """The score of one answer.

    Answerable: 0 if the reply is empty or abstains, else 0.5 F + 0.5 recall, F alone without evidence; F is the
    official F1, its symmetric form for multi-hop, the coverage of new stems for rubrics. To be abstained from: 1 if
    the reply abstains and the twin's does not, times recall (1 without evidence); without a twin (`twin_answer` None)
    the abstention alone counts.
    """
    stats = stats or DatasetStats()
    recall = piece_recall(task.evidence, retrieved)
    abstained = is_abstention(answer)
    if task.expects_abstention:
        twin_answered = twin_answer is None or (bool(twin_answer.strip()) and not is_abstention(twin_answer))
        earned = float(abstained and twin_answered) * (1.0 if recall is None else recall)
        return OfflineScore(earned, float(abstained), recall, abstained)
    said = _said(task, cut_reply(answer, stats.reply_words), stats)
    if abstained or not answer.strip():
        return OfflineScore(0.0, said, recall, abstained)
    return OfflineScore(said if recall is None else 0.5 * said + 0.5 * recall, said, recall, abstained)


def _said(task: Task, reply: str, stats: DatasetStats) -> float:
    if task.metric == "rubric" and task.rubric:
        return rubric_coverage(reply, task.rubric, task.question, stats.boilerplate, stats.reply_words)
    metrics = {"f1_multi": f1_multi_symmetric, "f1_first": f1_first}
    return metrics.get(task.metric, official_f1)(reply, task.reference)
