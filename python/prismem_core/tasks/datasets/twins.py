"""Twins: the answerable question that keeps an abstention honest (offline score)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from prismem_core.tasks.task import Task
from prismem_core.tasks.text import content_stems, normal_form


def with_twins(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """The tasks with `twin` set on each one that expects abstention.

    The twin is an answerable task of the same history: one with the same evidence, else one that shares evidence, else
    any; of several the one whose question is nearest by Dice over content stems, ties to the earliest. None where a
    history has no answerable task. A twin that a task already has is kept.
    """
    tasks = tuple(tasks)
    answerable: dict[str, list[Task]] = {}
    for task in tasks:
        if not task.expects_abstention:
            answerable.setdefault(task.history_id, []).append(task)
    keys = {task.id: _evidence_key(task) for task in tasks}
    stems: dict[str, frozenset[str]] = {}

    def stem_set(question: str) -> frozenset[str]:
        if question not in stems:
            stems[question] = frozenset(content_stems(question))
        return stems[question]

    def twin(task: Task) -> str | None:
        candidates = answerable.get(task.history_id, [])
        key = keys[task.id]
        if key:
            same = [other for other in candidates if keys[other.id] == key]
            candidates = same or [other for other in candidates if keys[other.id] & key] or candidates
        best, best_score = None, -1.0
        asked = stem_set(task.question)
        for other in candidates:
            words = stem_set(other.question)
            total = len(asked) + len(words)
            score = 2 * len(asked & words) / total if total else 0.0
            if score > best_score:
                best, best_score = other.id, score
        return best

    return tuple(
        replace(task, twin=twin(task)) if task.expects_abstention and task.twin is None else task for task in tasks
    )


def _evidence_key(task: Task) -> frozenset[str]:
    """What two tasks must share to rest on the same evidence: turn ids, or texts where no ids are known."""
    return frozenset(task.evidence_ids or (normal_form(text) for text in task.evidence))
