"""A forecast as tables and lines, and as plain JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismem_core.jobs.forecast.amounts import Amount, Range
from prismem_core.jobs.forecast.budgets import Reach, warning
from prismem_core.jobs.forecast.forecast import Forecast
from prismem_core.runs.report.tables import Table

_COLUMNS = (
    "expected",
    "calls",
    "calls at least",
    "calls at most",
    "tokens in",
    "tokens out",
    "tokens at least",
    "tokens at most",
)
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def forecast_tables(forecast: Forecast) -> list[Table]:
    """Calls and tokens by role and stage, and by part of the run."""
    priced = any(price.input_per_million or price.output_per_million for price in forecast.prices.values())
    models = [(f"{r}: {s}", forecast.of(role=r, stage=s), None) for r, s in forecast.rows]
    every = [*models, ("all models", forecast.of(), forecast.money())]
    parts = [(part, forecast.of(part=part), forecast.money(part=part)) for part in forecast.parts]
    return [
        _table("Forecast by model", every, priced),
        _table("Forecast by part of the run", parts, priced, _note(forecast)),
    ]


def forecast_json(forecast: Forecast, found: Sequence[Reach]) -> dict[str, Any]:
    """All of it; `tokens` tells of each role whether they are its own count or an estimate."""
    return {
        "models": [
            {"role": role, "stage": stage, **_json(forecast.of(role=role, stage=stage))}
            for role, stage in forecast.rows
        ],
        "parts": [
            {"part": part, "money": forecast.money(part=part).to_json(), **_json(forecast.of(part=part))}
            for part in forecast.parts
        ],
        "total": {"money": forecast.money().to_json(), **_json(forecast.of())},
        "iterations": dict(forecast.iterations),
        "tokens": {role: "counted" if kind == "offline" else "estimated" for role, kind in forecast.kinds.items()},
        "cached": forecast.cached,
        "budget": [
            {
                "cap": reach.name,
                "of": reach.whose,
                "value": reach.cap,
                "start": reach.start.to_json(),
                "proposals": reach.proposals.to_json(),
                "wanted": reach.wanted,
            }
            for reach in found
        ],
        "warning": warning(list(found)),
    }


def _note(forecast: Forecast) -> str:
    notes = ["Calls, tokens in and tokens out are expected values, beside their bounds"]
    if any(kind != "offline" for kind in forecast.kinds.values()):
        notes.append("tokens of models are estimated as characters / 4 (bounds: / 6, bytes / 2)")
    if any(kind == "offline" for kind in forecast.kinds.values()):
        notes.append("the embedded roles count characters / 4 themselves")
    if forecast.cached:
        notes.append("the cache may hold some of it, and what it holds costs nothing")
    notes.append("tries that a server fails are not foreseen; a text of an embedder is a call")
    return "; ".join(notes) + "."


def _table(title: str, rows: Sequence[tuple[str, Amount, Range | None]], priced: bool, note: str = "") -> Table:
    columns = (*_COLUMNS, *(("cost", "cost at most") if priced else ()))
    shown = []
    for name, amount, money in rows:
        cells = (name, *_cells(amount))
        if priced:
            cells += ("", "") if money is None else (f"{money.expected:,.2f}", f"{money.high:,.2f}")
        shown.append(cells)
    return Table(title, columns, tuple(shown), note)


def _cells(amount: Amount) -> tuple[str, ...]:
    calls, tokens = amount.calls, amount.tokens
    numbers = (calls.expected, calls.low, calls.high, amount.input_tokens.expected, amount.output_tokens.expected)
    return tuple(short(value) for value in (*numbers, tokens.low, tokens.high))


def short(value: float) -> str:
    """A number in three or four digits: 812, 9,120, 12.3k, 4.56M."""
    if value < 9999.5:
        return f"{value:,.0f}"
    size, unit = next((size, unit) for size, unit in _UNITS if value >= size)
    return f"{value / size:.3g}{unit}" if value / size < 999.5 else f"{value / size:,.0f}{unit}"


def _json(amount: Amount) -> dict[str, Any]:
    return {
        "calls": amount.calls.to_json(),
        "input_tokens": amount.input_tokens.to_json(),
        "output_tokens": amount.output_tokens.to_json(),
    }
