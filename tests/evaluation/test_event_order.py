"""Event ordering: Kendall's tau-b against its definition, and what an answer's order is worth."""

from __future__ import annotations

import itertools
import math

import pytest

from prismem_core.evaluation.judges.event_order import kendall_tau_b, order_score


def test_tau_of_worked_examples() -> None:
    assert kendall_tau_b([1, 2, 3, 4], [1, 2, 3, 4]) == 1.0
    assert kendall_tau_b([1, 2, 3, 4], [4, 3, 2, 1]) == -1.0
    assert kendall_tau_b([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(4 / 6)
    # One pair tied on the right: five pairs agree, sqrt(6 * 5).
    assert kendall_tau_b([1, 2, 3, 4], [1, 2, 2, 3]) == pytest.approx(5 / math.sqrt(30))
    assert kendall_tau_b([1, 2], [1, 1]) is None and kendall_tau_b([1], [1]) is None and kendall_tau_b([], []) is None


def test_tau_agrees_with_scipy() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    for left, right in itertools.product(itertools.product(range(3), repeat=4), repeat=2):
        found = kendall_tau_b(left, right)
        expected = scipy_stats.kendalltau(left, right, variant="b").statistic
        assert (found is None and math.isnan(expected)) or found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("told", "events", "expected"),
    [
        ([1, 2, 3], 3, (1.0, 1.0, 1.0, 1.0, 1.0)),
        ([3, 2, 1], 3, (1.0, 1.0, 1.0, -1.0, 0.0)),
        ([2, 1, 3], 3, (1.0, 1.0, 1.0, 1 / 3, 2 / 3)),
        ([1], 1, (1.0, 1.0, 1.0, 1.0, 1.0)),
        ([], 3, (0.0, 0.0, 0.0, 0.0, 0.0)),
        ([0, 0], 3, (0.0, 0.0, 0.0, 0.0, 0.0)),
        # The first two of four in order: those that are missing share the place after them.
        ([1, 2], 4, (1.0, 0.5, 2 / 3, 5 / math.sqrt(30), 2 / 3 * (5 / math.sqrt(30) + 1) / 2)),
        # A number that comes again is another event, as one that is none.
        ([1, 2, 1], 2, (2 / 3, 1.0, 0.8, 1.0, 0.8)),
        ([1, 2, 0], 2, (2 / 3, 1.0, 0.8, 1.0, 0.8)),
        # Another event told first is out of order with both.
        ([0, 1, 2], 2, (2 / 3, 1.0, 0.8, -1 / 3, 0.8 / 3)),
    ],
)
def test_what_an_order_is_worth(told: list[int], events: int, expected: tuple[float, ...]) -> None:
    found = order_score(told, events)
    assert (found.precision, found.recall, found.f1, found.tau, found.score) == pytest.approx(expected)


def test_every_score_of_three_events_lies_between_zero_and_one() -> None:
    for length in range(5):
        for told in itertools.product(range(4), repeat=length):
            found = order_score(told, 3)
            assert 0.0 <= found.score <= found.f1 <= 1.0 and -1.0 <= found.tau <= 1.0
            assert found.score < 1.0 or told == (1, 2, 3)
