"""The tables of an ablation, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.tasks.capability import CAPABILITIES

from .figures import FIRST


def tables(found: Mapping[str, Any]) -> str:
    """All tables of a result file, data set by data set."""
    return "\n\n".join("\n\n".join(_of_data(name, data)) for name, data in found["data"].items())


def _of_data(name: str, data: Mapping[str, Any]) -> list[str]:
    strategies: Mapping[str, Any] = data["strategies"]
    count = data["questions"]["test"]
    return [
        f"**{name}** ({count['all']} test questions; mean over seeds [95 % interval over seeds])",
        _table(
            ("strategy", "seeds", "overall", "mean over questions", "official", "official, answerable", "recall"),
            [
                ("start", "", *(_number(data["start"][key]) for key in _SCORES)),
                *(
                    (s, str(len(own["seeds"])), *(_cell(own["measures"].get(key)) for key in _SCORES))
                    for s, own in strategies.items()
                ),
            ],
        ),
        "Test score by capability:",
        _capabilities(data),
        *(_compared(data["differences"]) if data["differences"] else []),
        "What carries over (mean over questions), how many results came from an integration, how many are different "
        "programs, and what was asked (calls without reuse, embedded texts included):",
        _table(
            ("strategy", "train", "valid", "test", "train - test", "valid - test", "integrated", "different", "calls"),
            [
                (
                    s,
                    *(_cell(own["measures"][key], signed="-" in key) for key in _CARRIED),
                    f"{sum(run['integrated'] for run in own['runs'])} of {len(own['runs'])}",
                    str(len({tuple(run["digests"]) for run in own["runs"]})),
                    f"{own['measures']['calls_without_reuse']['mean']:,.0f}",
                )
                for s, own in strategies.items()
            ],
        ),
    ]


_SCORES = ("test_overall", "test", "official", "official_answerable", "recall")
_CARRIED = ("train", "valid", "test", "train-test", "valid-test")


def _capabilities(data: Mapping[str, Any]) -> str:
    counts = data["questions"]["test"]
    present = [str(c) for c in CAPABILITIES if str(c) in counts]
    rows = [
        (s, *(_number(own["capabilities"]["test"].get(c, {}).get("mean")) for c in present))
        for s, own in data["strategies"].items()
    ]
    return _table(("strategy", *(f"{c} ({counts[c]})" for c in present)), rows)


def _compared(differences: Mapping[str, Any]) -> list[str]:
    return [
        f"Differences of the test score, {FIRST} minus the other (over seeds: pairs of the same seed; over questions: "
        "each question's difference, averaged over the seeds):",
        _differences(differences, "test"),
        "The same on the validation questions, which chose the results:",
        _differences(differences, "valid"),
    ]


def _differences(differences: Mapping[str, Any], part: str) -> str:
    rows = []
    for other, found in differences.items():
        cells = [
            _cell(found[part][measure][kind], signed=True)
            for measure in ("overall", "score")
            for kind in ("over_seeds", "over_questions")
        ]
        values = found[part]["overall"]["over_seeds"]["values"]
        higher = f"{sum(v > 1e-9 for v in values)} / {sum(v < -1e-9 for v in values)} of {len(values)}"
        rows.append((other, *cells, higher))
    columns = (
        "other", "overall, over seeds", "overall, over questions", "questions, over seeds", "questions, over questions",
        "seeds higher / lower",
    )  # fmt: skip
    return _table(columns, rows)


def _cell(value: Mapping[str, Any] | None, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    middle = _number(value["mean"], signed)
    if value["low"] is None:
        return middle
    return f"{middle} [{_number(value['low'], signed)}, {_number(value['high'], signed)}]"


def _number(value: float | None, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.3f}" if signed else f"{value:.3f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [columns, rule, *rows])
