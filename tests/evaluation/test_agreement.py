"""Agreement of two judges: kappa and its interval against their formulas, and what is said where there is none."""

from __future__ import annotations

import math
import sys
from itertools import product

import pytest

from prismem_core.errors import ArgumentError, SettingsError
from prismem_core.evaluation.agreement import agreement


def from_table(table: list[list[int]], scores: list[float]) -> tuple[list[float], list[float]]:
    pairs = [(scores[i], scores[j]) for i, j in product(range(len(scores)), repeat=2) for _ in range(table[i][j])]
    return [a for a, _ in pairs], [b for _, b in pairs]


def test_kappa_of_a_worked_example() -> None:
    # Observed 35 / 50; expected 0.5 * 0.6 + 0.5 * 0.4.
    found = agreement(*from_table([[20, 5], [10, 15]], [0.0, 1.0]))
    assert (found.n, found.agreement, found.difference) == (50, 0.7, 0.3)
    assert found.kappa == pytest.approx((0.7 - 0.5) / 0.5) and not found.weighted
    # The large-sample variance of Fleiss, Cohen and Everitt.
    kappa, rows, columns = 0.4, [0.5, 0.5], [0.6, 0.4]
    p = [[0.4, 0.1], [0.2, 0.3]]
    a = sum(p[i][i] * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2 for i in range(2))
    b = (1 - kappa) ** 2 * sum(p[i][j] * (columns[i] + rows[j]) ** 2 for i in range(2) for j in range(2) if i != j)
    c = (kappa - 0.5 * (1 - kappa)) ** 2
    width = 1.959964 * math.sqrt((a + b - c) / (50 * 0.25))
    assert found.low == pytest.approx(kappa - width, abs=1e-6) and found.high == pytest.approx(kappa + width, abs=1e-6)
    assert found.confusion.counts == ((20, 5), (10, 15)) and found.confusion.scores == (0.0, 1.0)
    assert found.note == ""


def test_graded_scores_count_disagreements_by_their_distance() -> None:
    table, scores = [[10, 2, 0], [1, 8, 3], [1, 0, 5]], [0.0, 0.5, 1.0]
    found = agreement(*from_table(table, scores))
    rows, columns = [12, 12, 6], [12, 10, 8]
    observed = sum(abs(scores[i] - scores[j]) * table[i][j] for i in range(3) for j in range(3)) / 30
    expected = sum(abs(scores[i] - scores[j]) * rows[i] * columns[j] for i in range(3) for j in range(3)) / 900
    assert found.weighted and found.kappa == pytest.approx(1 - observed / expected)
    assert found.low is not None and found.high is not None and found.low < found.kappa < found.high <= 1.0
    uneven = agreement(*from_table(table, [0.0, 0.1, 1.0]))
    assert uneven.kappa is not None and uneven.kappa != pytest.approx(found.kappa)


@pytest.mark.parametrize(
    ("first", "second", "kappa", "said"),
    [
        ([], [], None, "there is none"),
        ([1.0], [1.0], None, "at least 2"),
        ([1.0, 1.0], [1.0, 1.0], None, "both judges gave 1 throughout"),
        ([0.5, 0.5], [0.5, 0.5], None, "both judges gave 0.5 throughout"),
        ([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], 1.0, "agree throughout"),
        ([1.0, 1.0, 1.0], [1.0, 0.0, 1.0], 0.0, "judge A gave 1 throughout"),
        ([1.0, 0.0, 0.5], [0.0, 0.0, 0.0], 0.0, "judge B gave 0 throughout"),
    ],
)
def test_where_kappa_says_nothing_that_is_said(
    first: list[float], second: list[float], kappa: float | None, said: str
) -> None:
    found = agreement(first, second)
    assert found.kappa == kappa and found.low is None and found.high is None
    assert said in found.note
    assert found.n == len(first)


def test_total_disagreement_is_minus_one() -> None:
    found = agreement([0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0])
    assert found.agreement == 0.0 and found.kappa == pytest.approx(-1.0)
    assert found.low is None or found.low >= -1.0


def test_many_different_scores_are_shown_by_quarters_but_compared_as_they_are() -> None:
    first = [i / 20 for i in range(20)]
    second = [i / 20 + 0.01 for i in range(20)]
    found = agreement(first, second)
    assert found.agreement == 0.0 and found.kappa is not None and found.kappa > 0.9
    assert found.confusion.rounded and found.confusion.scores == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert sum(map(sum, found.confusion.counts)) == 20


def test_a_score_that_differs_by_rounding_alone_is_equal() -> None:
    assert agreement([0.1 + 0.2, 0.0, 1.0], [0.3, 0.0, 0.0]).agreement == pytest.approx(2 / 3)


@pytest.mark.parametrize("wrong", [float("nan"), -0.1, 1.1])
def test_what_is_no_score_is_refused(wrong: float) -> None:
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        agreement([wrong, 0.0], [0.0, 1.0])
    with pytest.raises(ArgumentError, match="2 and 1"):
        agreement([0.0, 0.0], [0.0])


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.stats.inter_rater", None)
    with pytest.raises(SettingsError, match=r"prismem-core\[statistics\]"):
        agreement([0.0, 1.0, 1.0], [0.0, 1.0, 0.0])
