"""The offline score: its parts by hand, and strategies that win official metrics but must lose here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prismem_core.clients.offline.reader import read
from prismem_core.evaluation.means import mean
from prismem_core.evaluation.metrics import is_abstention, nugget_form
from prismem_core.evaluation.offline_score import (
    DatasetStats,
    dataset_stats,
    offline_score,
    piece_recall,
)
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import load
from prismem_core.tasks.task import Dataset, Task

ABSTENTION = "No information available"
INSTRUCTION = (
    "Provide a short answer. If the person asked about never said it, answer 'No information available'. "
    "Answer with a date where one is asked for and with a list of things, separated by a comma, where several are."
)


def task(
    identifier: str, question: str, reference: str, evidence: str, metric: str = "f1", twin: str | None = None
) -> Task:
    capability = {"abstention": Capability.ADVERSARIAL, "f1_multi": Capability.MULTI_SESSION_SYNTHESIS}
    return Task(
        identifier,
        "h",
        question,
        reference,
        (evidence,) if evidence else (),
        metric,
        capability.get(metric, Capability.FACTUAL_RETRIEVAL),
        metric=metric,
        twin=twin,
    )


PLAIN = task("a", "What did Ana buy at the market?", "a red kayak", "I finally bought a red kayak at the market today")
RETRIEVED = (
    "[8 May 2023] Ana: I finally bought a red kayak at the market today\n[8 May 2023] Ben: Nice, I went running."
)


def test_a_score_that_drives_selection_knows_no_rubric_of_the_test_questions() -> None:
    item = "the response says that there is contradictory information"
    tasks = tuple(
        replace(task(f"q{i}", f"question {i}", "yes", "It is so.", "rubric"), rubric=(item, f"fact {i}"))
        for i in range(6)
    )
    dataset = Dataset("d", {}, tasks, "0" * 64, {})
    assert dataset_stats(dataset).boilerplate == {nugget_form(item)}
    assert dataset_stats(dataset, {"q0", "q1", "q2"}).boilerplate == {nugget_form(item)}
    assert dataset_stats(dataset, {"q0", "q1"}).boilerplate == frozenset()


def test_answer_and_evidence_count_half_each() -> None:
    score = offline_score(PLAIN, "red kayak", RETRIEVED, None)
    assert (score.score, score.f1, score.recall, score.abstained) == (1.0, 1.0, 1.0, False)
    assert offline_score(PLAIN, "red kayak", "nothing", None).score == 0.5
    assert offline_score(PLAIN, "green boat", RETRIEVED, None).score == 0.5
    assert offline_score(PLAIN, ABSTENTION, RETRIEVED, None).score == 0.0
    assert offline_score(PLAIN, "  ", RETRIEVED, None).score == 0.0


def test_without_evidence_the_answer_counts_alone() -> None:
    bare = task("a", "Who?", "Ana", "")
    assert offline_score(bare, "Ana", "", None).score == 1.0
    assert offline_score(bare, "Ana", "", None).recall is None


def test_replies_are_cut_before_they_are_judged() -> None:
    assert offline_score(PLAIN, "word " * 32 + "red kayak", RETRIEVED, None, DatasetStats(32)).f1 == 0.0
    assert offline_score(PLAIN, "word " * 30 + "red kayak", RETRIEVED, None, DatasetStats(32)).f1 > 0.0


def test_abstaining_counts_only_where_the_twin_is_answered() -> None:
    asked = task("b", "What did Ben buy at the market?", "", PLAIN.evidence[0], "abstention", twin="a")
    assert offline_score(asked, ABSTENTION, RETRIEVED, "red kayak").score == 1.0
    assert offline_score(asked, ABSTENTION, RETRIEVED, ABSTENTION).score == 0.0
    assert offline_score(asked, ABSTENTION, RETRIEVED, "").score == 0.0
    assert offline_score(asked, ABSTENTION, "nothing", "red kayak").score == 0.0
    assert offline_score(asked, "red kayak", RETRIEVED, "red kayak").score == 0.0
    assert offline_score(asked, ABSTENTION, RETRIEVED, None).score == 1.0


def test_multi_hop_uses_the_symmetric_form() -> None:
    several = task("m", "What does Ana like?", "kayaks, tea", "", "f1_multi")
    assert offline_score(several, "kayaks, tea, a, b, c, d", "", None).score < 1.0
    assert offline_score(several, "kayaks, tea", "", None).score == 1.0


def test_piece_recall_wants_the_words_of_one_line_in_order() -> None:
    snippet = "I finally bought a red kayak at the market today"
    assert piece_recall([snippet], f"Ana: {snippet.upper()}!") == 1.0
    assert piece_recall([snippet], "I finally bought a red kayak\nat the market today") == 0.0
    assert piece_recall([snippet], " ".join(sorted(snippet.split()))) == 0.0
    assert piece_recall([snippet, snippet.upper(), "something else"], snippet) == 0.5
    assert piece_recall(["Kayak!"], "a red kayak") == 1.0
    assert piece_recall(["!?"], "!?") == 0.0
    assert piece_recall([], "text") is None


def test_a_passage_of_a_long_message_counts() -> None:
    words = [f"word{i}" for i in range(400)]
    message = " ".join(words)
    assert piece_recall([message], " ".join(words[100:134])) == 1.0  # 33 of the 40 bigrams asked for
    assert piece_recall([message], " ".join(words[100:130])) == 0.0  # 29


def test_boilerplate_is_shared_by_many_questions_of_one_type() -> None:
    def rubric_task(i: int, own: str) -> Task:
        items = ("LLM response should state: there is contradictory information", own)
        return Task(f"t{i}", "h", "q", "", (), "contradiction", Capability.ADVERSARIAL, metric="rubric", rubric=items)

    tasks = tuple(rubric_task(i, f"LLM response should mention: fact {i}") for i in range(4))
    dataset = Dataset("d", {}, tasks, "", {}, reply_words=80)
    stats = dataset_stats(dataset)
    assert stats == DatasetStats(80, frozenset({"there is contradictory information"}))
    assert offline_score(tasks[0], "There is contradictory information", "", None, stats).score == 0.0
    assert offline_score(tasks[0], "fact 0", "", None, stats).score == 1.0


FACTS = [
    ("Ana", "adopted a grey kitten from the shelter", "What did Ana adopt from the shelter?", "a grey kitten"),
    ("Ben", "repaired the bicycle of my neighbour", "What did Ben repair?", "the bicycle of the neighbour"),
    ("Ana", "baked walnut bread for the festival", "What did Ana bake for the festival?", "walnut bread"),
    (
        "Ben",
        "painted a mural of dolphins near the harbour",
        "What did Ben paint near the harbour?",
        "a mural of dolphins",
    ),
    ("Ana", "signed up for evening pottery lessons", "What did Ana sign up for?", "evening pottery lessons"),
    ("Ben", "planted tomatoes behind the garage", "What did Ben plant behind the garage?", "tomatoes"),
]


def synthetic() -> tuple[list[Task], str]:
    tasks: list[Task] = []
    lines = []
    for i, (person, said, question, answer) in enumerate(FACTS):
        other = "Ben" if person == "Ana" else "Ana"
        lines.append(f"[{i + 1} May 2023] {person}: I {said} yesterday.")
        lines.append(f"[{i + 1} May 2023] {other}: That sounds lovely, tell me more soon!")
        evidence = f"I {said} yesterday."
        tasks.append(task(f"q{i}", question, answer, evidence))
        tasks.append(task(f"x{i}", question.replace(person, other), "", evidence, "abstention", twin=f"q{i}"))
    return tasks, "\n".join(lines)


Answer = Callable[[Task, str], str]


def honest(asked: Task, retrieved: str) -> str:
    return read(INSTRUCTION, retrieved, asked.question)


def strategies() -> Iterator[tuple[str, Answer]]:
    coin = random.Random(7)
    yield "always abstain", lambda asked, retrieved: ABSTENTION
    yield "never abstain", lambda asked, retrieved: read("Provide a short answer.", retrieved, asked.question)
    yield (
        "abstain at random",
        lambda asked, retrieved: (
            ABSTENTION if coin.random() < 0.5 else read("Provide a short answer.", retrieved, asked.question)
        ),
    )
    yield "dump words", lambda asked, retrieved: ", ".join(dict.fromkeys(retrieved.split()))
    yield "echo the question", lambda asked, retrieved: asked.question
    yield "empty", lambda asked, retrieved: ""


def total(tasks: list[Task], retrieved: dict[str, str], answer: Answer, stats: DatasetStats) -> float:
    replies = {asked.id: answer(asked, retrieved[asked.id]) for asked in tasks}
    scores: dict[str, list[float]] = {}
    for asked in tasks:
        twin = replies.get(asked.twin) if asked.twin else None
        score = offline_score(asked, replies[asked.id], retrieved[asked.id], twin, stats).score
        scores.setdefault(asked.primary, []).append(score)
    return mean([mean(values) for values in scores.values()])


def test_degenerate_strategies_lose_on_a_small_set() -> None:
    tasks, text = synthetic()
    retrieved = {asked.id: text for asked in tasks}
    best = total(tasks, retrieved, honest, DatasetStats())
    assert best > 0.8
    for name, answer in strategies():
        assert total(tasks, retrieved, answer, DatasetStats()) < best - 0.1, name


def test_always_abstaining_earns_nothing() -> None:
    tasks, text = synthetic()
    assert all(is_abstention(ABSTENTION) for _ in tasks)
    assert total(tasks, {t.id: text for t in tasks}, lambda asked, retrieved: ABSTENTION, DatasetStats()) == 0.0


@pytest.mark.slow
def test_degenerate_strategies_lose_on_locomo(data_dir: Path) -> None:
    """Gold sessions as the retrieved text: no model and no program, but real questions."""
    dataset = load(data_dir / "locomo" / "locomo10_first6.json")
    tasks = [t for t in dataset.tasks if t.history_id == "conv-26"]
    retrieved: dict[str, str] = {}
    for asked in tasks:
        wanted = set(asked.evidence_ids)
        sessions = [
            s for s in dataset.histories["conv-26"].sessions if not wanted or wanted & {turn.id for turn in s.turns}
        ]
        retrieved[asked.id] = "\n".join(s.text for s in sessions)[:16000]
    stats = dataset_stats(dataset)
    best = total(tasks, retrieved, honest, stats)
    assert best > 0.4
    for name, answer in strategies():
        assert total(tasks, retrieved, answer, stats) < best, name
