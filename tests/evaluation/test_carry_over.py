"""What carries over: means, gaps and gains with intervals, and the sentence that names over-fitting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prismem_core.evaluation import carry_over as module
from prismem_core.evaluation.carry_over import carry_over
from prismem_core.evaluation.intervals import difference_interval, interval, paired_interval

SIZES = {"train": 60, "valid": 40, "test": 50}


def scores(levels: dict[str, dict[str, float]]) -> dict[str, dict[str, dict[str, float]]]:
    """Scores around `levels[program][part]`, the same noise for a question whoever answers it."""
    rng = np.random.default_rng(7)
    noise = {part: rng.uniform(-0.15, 0.15, size) for part, size in SIZES.items()}
    return {
        part: {
            program: {f"{part}-{i}": float(level[part] + n) for i, n in enumerate(noise[part])}
            for program, level in levels.items()
            if part in level
        }
        for part in SIZES
    }


def levels(train: float, valid: float, test: float) -> dict[str, float]:
    return {"train": train, "valid": valid, "test": test}


def test_every_estimate_is_that_of_its_questions() -> None:
    found = scores({"n00": levels(0.3, 0.3, 0.3), "n07": levels(0.5, 0.55, 0.45), "n18": levels(0.6, 0.6, 0.5)})
    told = carry_over(found, "n00", "n07", "n18")
    assert [(row["program"], row["roles"]) for row in told["programs"]] == [
        ("n00", ["start"]),
        ("n07", ["base"]),
        ("n18", ["result"]),
    ]
    by_part = {part: {p: list(own.values()) for p, own in programs.items()} for part, programs in found.items()}
    result = told["programs"][2]
    for part in SIZES:
        assert result[part] == interval(by_part[part]["n18"]).to_dict()
        gain = paired_interval(by_part[part]["n18"], by_part[part]["n00"]).to_dict()
        assert told["gains"]["over_start"][part] == gain
    assert result["gaps"]["valid"] == difference_interval(by_part["valid"]["n18"], by_part["test"]["n18"]).to_dict()
    assert told["gains"]["over_base"]["test"]["mean"] == pytest.approx(0.05)
    assert told["excess"]["valid"]["mean"] == pytest.approx(0.1) and told["excess"]["train"]["mean"] == pytest.approx(
        0.1
    )
    assert told["gains"]["over_start"]["test"]["n"] == SIZES["test"] and told["intervals"] is True


def test_over_fitting_to_validation_is_named_and_told_from_harder_test_questions() -> None:
    fitted = {"n00": levels(0.3, 0.3, 0.3), "n05": levels(0.5, 0.7, 0.5)}
    told = carry_over(scores(fitted), "n00", "n05", "n05")
    [finding] = told["findings"]
    assert finding.startswith("Over-fitting to the validation questions: there the result gained +0.400")
    assert "on the test questions +0.200" in finding
    harder = {"n00": levels(0.5, 0.5, 0.3), "n05": levels(0.7, 0.7, 0.5)}
    told = carry_over(scores(harder), "n00", "n05", "n05")
    assert len(told["findings"]) == 2 and all("harder" in finding for finding in told["findings"])
    assert all("the start by +0.1" in f or "the start by +0.2" in f for f in told["findings"])
    even = {"n00": levels(0.3, 0.3, 0.3), "n05": levels(0.5, 0.5, 0.5)}
    assert carry_over(scores(even), "n00", "n05", "n05")["findings"] == []


def test_a_run_that_goes_on_or_has_no_test_part_has_no_gaps() -> None:
    found = scores({"n00": {"train": 0.3, "valid": 0.3}, "n02": {"train": 0.4, "valid": 0.5}})
    told = carry_over(found, "n00", None, "n02")
    assert [row["program"] for row in told["programs"]] == ["n00", "n02"]
    assert all(row["test"] is None and row["gaps"] == {"train": None, "valid": None} for row in told["programs"])
    assert set(told["gains"]) == {"over_start"} and told["gains"]["over_start"]["test"] is None
    assert told["excess"] == {"train": None, "valid": None} and told["findings"] == []
    alone = carry_over({"train": {}, "valid": {}, "test": {}}, "n00", None, "n00")
    assert alone["programs"][0]["train"] is None and alone["gains"] == {} == alone["excess"]


def test_only_questions_with_a_score_count() -> None:
    found = scores({"n00": levels(0.3, 0.3, 0.3), "n05": levels(0.5, 0.5, 0.5)})
    del found["test"]["n05"]["test-0"], found["test"]["n00"]["test-1"]
    told = carry_over(found, "n00", "n05", "n05")
    assert told["programs"][1]["test"]["n"] == SIZES["test"] - 1
    assert told["gains"]["over_start"]["test"]["n"] == SIZES["test"] - 2


@pytest.mark.parametrize("how", ["asked", "missing"])
def test_without_intervals_there_are_plain_means(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    found = scores({"n00": levels(0.3, 0.3, 0.3), "n05": levels(0.5, 0.9, 0.5)})

    def refuse(*values: Any, **more: Any) -> Any:
        raise AssertionError("no interval was to be made")

    monkeypatch.setattr(module, "interval", refuse)
    monkeypatch.setattr(module, "difference_interval", refuse)
    if how == "missing":
        monkeypatch.setattr(module, "statistics_installed", lambda: False)
    told = carry_over(found, "n00", "n05", "n05", intervals=how == "missing")
    assert told["intervals"] is False and told["findings"] == []
    row = told["programs"][1]
    assert row["valid"]["mean"] == pytest.approx(0.9, abs=0.05) and row["valid"]["low"] is None
    assert row["gaps"]["valid"]["mean"] == pytest.approx(row["valid"]["mean"] - row["test"]["mean"])
