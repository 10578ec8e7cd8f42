"""BEAM's event ordering: how many of the reference events an answer tells, and in how far in their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class OrderScore:
    """`score` is F1 times (tau + 1) / 2; all but `tau` in [0, 1], `tau` in [-1, 1]."""

    precision: float
    recall: float
    f1: float
    tau: float
    score: float


def order_score(told: Sequence[int], events: int) -> OrderScore:
    """The score of an answer that tells `told`: numbers of the reference events 1 to `events` (0: another event).

    A number that comes again counts as another event. Precision and recall are those of the events told. Tau is
    Kendall's tau-b between reference and answer over all events of either; those that one of them lacks share the place
    after its last. With a single event and nothing else told, where tau is not defined, it is 1.
    """
    places: dict[int, int] = {}
    others = []
    for place, number in enumerate(told):
        if number and number not in places:
            places[number] = place
        else:
            others.append(place)
    matched = len(places)
    if not matched:
        return OrderScore(0.0, 0.0, 0.0, 0.0, 0.0)
    precision, recall = matched / len(told), matched / events
    f1 = 2 * precision * recall / (precision + recall)
    last = len(told)
    reference = [*range(events), *(events for _ in others)]
    answer = [*(places.get(number, last) for number in range(1, events + 1)), *others]
    tau = kendall_tau_b(reference, answer)
    tau = 1.0 if tau is None else tau
    return OrderScore(precision, recall, f1, tau, f1 * (tau + 1) / 2)


def kendall_tau_b(left: Sequence[int], right: Sequence[int]) -> float | None:
    """Kendall's tau-b of two rankings of the same items, ties allowed; None where either ties all.

    (C - D) / sqrt((P - T_left) (P - T_right)) over the P pairs: C agree, D disagree, T are tied.
    """
    pairs = list(combinations(range(len(left)), 2))
    products = [_sign(left[i] - left[j]) * _sign(right[i] - right[j]) for i, j in pairs]
    untied = math.prod(sum(ranks[i] != ranks[j] for i, j in pairs) for ranks in (left, right))
    return sum(products) / math.sqrt(untied) if untied else None


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
