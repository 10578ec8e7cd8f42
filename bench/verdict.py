"""Goals and what was reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .contest import AT_MOST, BEST_EXACT, FP32_LIMIT, Contest, Goal
from .limits import Limits


def judged(
    goals: Sequence[Goal], results: Sequence[dict[str, Any]], contest: Contest, limits: Limits
) -> list[dict[str, Any]]:
    """For each goal the ratio of medians, or of costs, and whether it was reached.

    "reached" is None where it cannot be judged. Against AT_MOST "ratio" is the cost itself.
    """
    exact = [r for r in results if not r["ours"] and r["accuracy"] == "exact"]
    verdicts = []
    for goal in goals:
        amounts = _amounts(results, goal.cost)
        rival, rival_amount = goal.against, amounts.get(goal.against)
        best = min((str(r["name"]) for r in exact if r["name"] in amounts), key=amounts.__getitem__, default=None)
        if goal.against == BEST_EXACT and best is not None:
            rival, rival_amount = best, amounts[best]
        elif goal.against == FP32_LIMIT:
            rival_amount = limits.seconds(contest.fp32.bytes_read, contest.fp32.flops)
        own = amounts.get(goal.ours)
        at_most = goal.against == AT_MOST
        ratio = own if at_most else None if own is None or rival_amount is None else rival_amount / max(own, 1e-12)
        verdicts.append(
            {
                "ours": goal.ours,
                "against": goal.against,
                "rival": rival,
                **({"cost": goal.cost} if goal.cost else {}),
                "wanted": goal.ratio,
                "ratio": ratio,
                "reached": None if ratio is None else ratio <= goal.ratio if at_most else ratio >= goal.ratio,
            }
        )
    return verdicts


def _amounts(results: Sequence[dict[str, Any]], cost: str) -> dict[str, float]:
    """What each competitor takes, the less the better: the median of its seconds, or the cost of this name."""
    if not cost:
        return {result["name"]: float(result["seconds"]["median"]) for result in results}
    return {result["name"]: float(result["costs"][cost]) for result in results if cost in result.get("costs", {})}


def cost_text(name: str, amount: float) -> str:
    """A cost in words: its name without the unit, and the amount with one."""
    words, _, unit = name.rpartition("_")
    words = f"{words.replace('_', ' ')} ".lstrip()
    if unit == "seconds":
        return f"{words}{amount * 1e3:.3g} ms" if amount < 1 else f"{words}{amount:.3g} s"
    return f"{words}{amount / 1e6:.4g} MB" if unit == "bytes" else f"{words}{amount:.4g} {unit}"


def wanted_text(goal: dict[str, Any]) -> str:
    """The goal in words."""
    if goal["against"] == AT_MOST:
        return f"at most {cost_text(goal.get('cost') or 'seconds', goal['wanted'])}"
    if goal.get("cost"):
        return f"at most {1 / goal['wanted']:.3g}x the {goal['cost'].replace('_', ' ')} of {goal['against']}"
    wanted = f"{goal['wanted'] * 100:.0f} %" if goal["against"] == FP32_LIMIT else f"{goal['wanted']:g}x"
    return f">= {wanted} of the {FP32_LIMIT}" if goal["against"] == FP32_LIMIT else f">= {wanted} {goal['against']}"


def reached_text(goal: dict[str, Any]) -> str:
    """What was reached, in words."""
    ratio = goal["ratio"]
    if ratio is None:
        return "not judged: a side is absent"
    if goal["against"] == AT_MOST:
        over = "" if goal["reached"] else f", {(ratio / goal['wanted'] - 1) * 100:.0f} % over"
        return f"{cost_text(goal.get('cost') or 'seconds', ratio)}{over}"
    if goal.get("cost"):
        over = "" if goal["reached"] else f", {(goal['wanted'] / ratio - 1) * 100:.0f} % over"
        return f"{1 / max(ratio, 1e-12):.2f}x{over}"
    shown = f"{ratio * 100:.0f} %" if goal["against"] == FP32_LIMIT else f"{ratio:.2f}x"
    rival = f" ({goal['rival']})" if goal["rival"] != goal["against"] else ""
    if goal["reached"]:
        return f"{shown}{rival}"
    return f"{shown}{rival}, {(1 - ratio / goal['wanted']) * 100:.0f} % short"
