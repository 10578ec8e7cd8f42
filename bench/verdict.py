"""Goals and what was reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .contest import BEST_EXACT, FP32_LIMIT, Contest, Goal
from .limits import Limits


def judged(
    goals: Sequence[Goal], results: Sequence[dict[str, Any]], contest: Contest, limits: Limits
) -> list[dict[str, Any]]:
    """For each goal the ratio of medians, and whether it was reached; "reached" is None where it cannot be judged."""
    seconds = {result["name"]: result["seconds"]["median"] for result in results}
    exact = [r for r in results if not r["ours"] and r["accuracy"] == "exact"]
    verdicts = []
    for goal in goals:
        rival, rival_seconds = goal.against, seconds.get(goal.against)
        if goal.against == BEST_EXACT and exact:
            best = min(exact, key=lambda result: float(result["seconds"]["median"]))
            rival, rival_seconds = str(best["name"]), float(best["seconds"]["median"])
        elif goal.against == FP32_LIMIT:
            rival_seconds = limits.seconds(contest.fp32.bytes_read, contest.fp32.flops)
        own = seconds.get(goal.ours)
        ratio = None if own is None or rival_seconds is None else rival_seconds / own
        verdicts.append(
            {
                "ours": goal.ours,
                "against": goal.against,
                "rival": rival,
                "wanted": goal.ratio,
                "ratio": ratio,
                "reached": None if ratio is None else ratio >= goal.ratio,
            }
        )
    return verdicts


def wanted_text(goal: dict[str, Any]) -> str:
    """The goal in words."""
    wanted = f"{goal['wanted'] * 100:.0f} %" if goal["against"] == FP32_LIMIT else f"{goal['wanted']:g}x"
    return f">= {wanted} of the {FP32_LIMIT}" if goal["against"] == FP32_LIMIT else f">= {wanted} {goal['against']}"


def reached_text(goal: dict[str, Any]) -> str:
    """What was reached, in words."""
    ratio = goal["ratio"]
    if ratio is None:
        return "not judged: a side is absent"
    shown = f"{ratio * 100:.0f} %" if goal["against"] == FP32_LIMIT else f"{ratio:.2f}x"
    rival = f" ({goal['rival']})" if goal["rival"] != goal["against"] else ""
    if goal["reached"]:
        return f"{shown}{rival}"
    return f"{shown}{rival}, {(1 - ratio / goal['wanted']) * 100:.0f} % short"
