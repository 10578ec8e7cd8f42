"""The offline annotation and the twins of abstention questions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import annotate, load, secondary_labels
from prismem_core.tasks.datasets.twins import with_twins
from prismem_core.tasks.task import Task

F, T, P, M, A = Capability


@pytest.mark.parametrize(
    "question, sessions, primary, expected",
    [
        ("When did Ana paint?", ["1"], T, ()),
        ("When did Ana paint?", ["1"], F, (T,)),
        ("When did Ana paint?", ["1", "4"], A, (T, M)),
        ("What did Ana paint?", ["1", "1"], F, ()),
        ("What did Ana and Bo paint?", ["1", "2"], F, (M,)),
        ("What did Ana and Bo paint?", ["1", "2"], M, ()),
        ("Which book would Ana enjoy?", ["1"], F, (P,)),
        ("Can you recommend a film that I may watch first, before March 3?", ["1", "2"], F, (T, P)),
        ("How many days passed between the two trips?", ["1", "2"], M, (T,)),
        ("What should I cook?", [], T, (P,)),
    ],
)
def test_rules(question: str, sessions: list[str], primary: Capability, expected: tuple[Capability, ...]) -> None:
    assert secondary_labels(question, sessions, primary) == expected


def test_annotate_leaves_the_test_set_and_unused_tasks_without_labels() -> None:
    sample = load("sample")
    bare = replace(sample, tasks=tuple(replace(t, secondary=(), labelled=False) for t in sample.tasks))
    split = bare.split({"train": ["ines-marek"], "valid": ["yuki-leon"], "test": ["noor-beatriz"]})
    done = annotate(bare, split)
    for part in ("ines-marek", "yuki-leon"):
        assert any(t.secondary for t in done.tasks if t.history_id == part)
    for part in ("noor-beatriz", "amara-felix"):
        assert not any(t.secondary for t in done.tasks if t.history_id == part)
    assert all(t.primary not in t.secondary and len(t.secondary) <= 2 for t in done.tasks)


def test_annotate_keeps_labels_of_the_source_and_drops_those_of_the_test_set() -> None:
    sample = load("sample")
    done = annotate(sample, sample.split())
    for before, after in zip(sample.tasks, done.tasks, strict=True):
        assert after.secondary == (() if before.history_id in sample.default_split["test"] else before.secondary)


def task(name: str, question: str, evidence: str = "", *, abstain: bool = False, history: str = "h") -> Task:
    ids = tuple(evidence.split())
    metric = "abstention" if abstain else "f1"
    return Task(name, history, question, "x", ids, "t", A if abstain else F, metric=metric, evidence_ids=ids)


def twin_of(*tasks: Task) -> str | None:
    return next(t.twin for t in with_twins(tasks) if t.expects_abstention)


def test_the_same_evidence_comes_before_shared_evidence_and_words() -> None:
    asked = task("q", "What did Bo buy in Rome?", "1 2", abstain=True)
    same, shared, near = (
        task("a", "Who?", "2 1"),
        task("b", "What did Bo buy?", "1"),
        task("c", "What did Bo buy in Rome"),
    )
    assert twin_of(asked, near, shared, same) == "a"
    assert twin_of(asked, near, shared) == "b"
    assert twin_of(asked, near, task("d", "Where?", "7")) == "c"


def test_nearest_by_stems_and_ties_to_the_earliest() -> None:
    asked = task("q", "What did Bo buy?", "1", abstain=True)
    assert twin_of(task("a", "Who sang?", "1"), asked, task("b", "What was Bo buying?", "1")) == "b"
    assert twin_of(task("a", "Who sang?", "1"), asked, task("b", "Who danced?", "1")) == "a"


def test_twins_are_answerable_tasks_of_the_same_history() -> None:
    asked = task("q", "What did Bo buy?", "1", abstain=True)
    other = task("a", "What did Bo buy?", "1", history="other")
    also = task("b", "What did Bo buy?", "1", abstain=True)
    assert twin_of(asked, other, also) is None


def test_a_twin_that_is_given_stays() -> None:
    asked = replace(task("q", "What did Bo buy?", "1", abstain=True), twin="given")
    assert twin_of(asked, task("a", "What did Bo buy?", "1")) == "given"
    assert all(t.twin is None for t in with_twins([task("a", "Why?")]))
