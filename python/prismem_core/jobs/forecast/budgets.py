"""How far a budget reaches: whether it covers the start program, and how many proposals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prismem_core.errors import SettingsError
from prismem_core.jobs.forecast.amounts import Range
from prismem_core.jobs.forecast.forecast import COLD_START, INTEGRATION, REFINEMENT, START, TEST, Forecast
from prismem_core.jobs.model_tables import spec_of
from prismem_core.jobs.models import job_models, ledger_role
from prismem_core.jobs.settings import JobSettings
from prismem_core.roles.budget import Allowance

FEWEST_PROPOSALS = 3
"""Fewer than that are hardly an evolution."""


@dataclass(frozen=True)
class Reach:
    """What one cap allows: proposals as a range (`low`: even if all goes badly), of `wanted` in all.

    `start` is what the start program's evaluation takes of it.
    """

    name: str
    cap: float
    whose: str
    start: Range
    proposals: Range
    wanted: int


def reaches(forecast: Forecast, settings: JobSettings) -> list[Reach]:
    """What each cap that can be foreseen allows; those on time cannot."""
    found = _reaches(forecast, settings.budget.allowance, None, "all models")
    for role, model in job_models(settings).items():
        if spec_of(role, model).kind != "offline" or model.allowance != Allowance():
            name = ledger_role(role)
            found += _reaches(forecast, model.allowance, name, f"the {name} model")
    return found


def check_start(found: list[Reach]) -> None:
    """SettingsError where a cap surely ends the run before its start program is measured."""
    for reach in found:
        if reach.start.low > reach.cap:
            raise SettingsError(
                f"the budget of {reach.name} for {reach.whose}, {_shown(reach.cap)}, does not cover the evaluation of "
                f"the start program, which needs at least {_shown(reach.start.low)} (about "
                f"{_shown(reach.start.expected)}); raise it, or take fewer questions (`prismem forecast` says more)"
            )


def warning(found: list[Reach]) -> str:
    """What to say where fewer than three proposals fit, else nothing."""
    wanting = [reach for reach in found if reach.proposals.expected < min(FEWEST_PROPOSALS, reach.wanted)]
    if not wanting:
        return ""
    worst = min(wanting, key=lambda reach: reach.proposals.expected)
    return (
        f"the budget of {worst.name} for {worst.whose}, {_shown(worst.cap)}, is expected to allow "
        f"{worst.proposals.expected:.0f} of {worst.wanted} proposals, fewer than {FEWEST_PROPOSALS}: raise it, or take "
        "fewer questions"
    )


def sentence(found: list[Reach]) -> str:
    """How many proposals the tightest cap allows."""
    if not found:
        return ""
    tight = min(found, key=lambda reach: (reach.proposals.expected, reach.proposals.high))
    reach = tight.proposals
    return (
        f"The budget of {tight.name} for {tight.whose}, {_shown(tight.cap)}, is expected to allow "
        f"{reach.expected:.0f} of {tight.wanted} proposals and the test questions ({reach.low:.0f} if all goes badly, "
        f"{reach.high:.0f} if all goes well)."
    )


def _reaches(forecast: Forecast, allowed: Allowance, role: str | None, whose: str) -> list[Reach]:
    measures: list[tuple[str, float | None, Callable[[str], Range]]] = [
        ("calls", allowed.calls, lambda part: forecast.of(part=part, role=role).calls),
        ("tokens", allowed.tokens, lambda part: forecast.of(part=part, role=role).tokens),
        ("money", allowed.money, lambda part: forecast.money(part=part, role=role)),
    ]
    return [
        Reach(name, cap, whose, cost(START), _proposals(forecast, cap, cost), sum(forecast.iterations.values()))
        for name, cap, cost in measures
        if cap is not None
    ]


def _proposals(forecast: Forecast, cap: float, cost: Callable[[str], Range]) -> Range:
    """The proposals that fit beside the start program and the test questions: few where each costs the most."""

    def fitting(read: Callable[[Range], float]) -> float:
        left, count = cap - read(cost(START)) - read(cost(TEST)), 0
        for part in (COLD_START, REFINEMENT, INTEGRATION):
            iterations = forecast.iterations.get(part, 0)
            for _ in range(iterations):
                left -= read(cost(part)) / iterations
                if left < 0:
                    return float(count)
                count += 1
        return float(count)

    return Range(
        fitting(lambda amount: amount.high),
        fitting(lambda amount: amount.expected),
        fitting(lambda amount: amount.low),
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.4g}"
