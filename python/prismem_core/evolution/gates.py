"""Who is best and who may stay: specialists, target gate, integration gate and paired cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prismem_core.evaluation.means import mean
from prismem_core.evolution.rounding import q

Scores = Mapping[str, float]


def mean_score(scores: Scores, task_ids: Sequence[str]) -> float:
    """s(P; S): the mean score over a set of tasks, 0.0 for the empty set."""
    return mean([scores[task] for task in task_ids])


def first_best(values: Sequence[float]) -> int:
    """The first index of the largest rounded value; ValueError for none."""
    if not values:
        raise ValueError("there is no program to choose from")
    return max(range(len(values)), key=lambda i: (q(values[i]), -i))


def specialists(
    programs: Sequence[Scores], valid_by_capability: Mapping[str, Sequence[str]], overall: Sequence[str]
) -> tuple[dict[str, int], int]:
    """The index of each capability's specialist and of the best program, in creation order.

    A capability without validation tasks is represented by the best program.
    """
    best = first_best([mean_score(scores, overall) for scores in programs])
    chosen = {
        capability: first_best([mean_score(scores, tasks) for scores in programs]) if tasks else best
        for capability, tasks in valid_by_capability.items()
    }
    return chosen, best


def improves(candidate: Scores, reference: Scores, task_ids: Sequence[str]) -> bool:
    """The target gate: whether the candidate's mean over the tasks is greater after rounding."""
    return q(mean_score(candidate, task_ids)) > q(mean_score(reference, task_ids))


@dataclass(frozen=True)
class IntegrationVerdict:
    """The integration gate with its numbers; `max_drop` is 0 where no capability can drop."""

    overall_candidate: float
    overall_base: float
    max_drop: float
    gain_ok: bool
    drop_ok: bool

    @property
    def accept(self) -> bool:
        """Whether the overall score rises and no capability falls too far."""
        return self.gain_ok and self.drop_ok

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for the journal."""
        return {**asdict(self), "accept": self.accept}


def drop(candidate: Scores, base: Scores, task_ids: Sequence[str]) -> float:
    """The relative loss `1 - s(candidate) / s(base)`, negative for a gain; 0 where the base's mean is 0."""
    reference = mean_score(base, task_ids)
    return 1.0 - mean_score(candidate, task_ids) / reference if reference else 0.0


def integration_gate(
    candidate: Scores,
    base: Scores,
    train_by_capability: Mapping[str, Sequence[str]],
    overall: Sequence[str],
    theta: float,
) -> IntegrationVerdict:
    """Accept if the overall score rises and the largest drop of a capability's training mean is at most theta."""
    drops = [drop(candidate, base, tasks) for tasks in train_by_capability.values() if tasks]
    largest = max(drops, default=0.0)
    score, reference = mean_score(candidate, overall), mean_score(base, overall)
    return IntegrationVerdict(score, reference, largest, q(score) > q(reference), q(largest) <= q(theta))


@dataclass(frozen=True)
class Pairing:
    """The training tasks of a capability whose specialist beats the base, with the signed gain on each."""

    capability: str
    tasks: Sequence[str]
    gains: Sequence[float]


def pairings(
    specialist_scores: Mapping[str, Scores], base: Scores, train_by_capability: Mapping[str, Sequence[str]]
) -> list[Pairing]:
    """The capabilities whose specialist beats the base on its training tasks, in the order of `train_by_capability`."""
    return [
        Pairing(capability, tasks, [specialist_scores[capability][task] - base[task] for task in tasks])
        for capability, tasks in train_by_capability.items()
        if improves(specialist_scores[capability], base, tasks)
    ]
