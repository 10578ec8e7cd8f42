"""A timed case from its preparation to the record: results compared first, then times, floors and goals."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..floors import A100, H200, Work
from .cases import Contest, Goal, Timed
from .stage import Stage
from .timing import Times, captured, measured

OURS = ("triton", "cuda", "int8 codes", "int4 codes")


def compile_only(stage: Stage, case: Timed) -> None:
    """Run ours once, so that compiled kernels are in the cache on disk."""
    contest = case.make(stage)
    for name in OURS:
        if name in contest.competitors:
            contest.competitors[name](0)
    stage.sync()


def hold(stage: Stage, case: Timed, reached: Mapping[str, float], seconds: float) -> dict[str, Any]:
    """Compare, time and judge a case."""
    start = time.monotonic()
    contest = case.make(stage)
    results = {}
    for name, call in contest.competitors.items():
        with stage.poisoned():
            results[name] = call(0)
    stage.sync()
    wrong = {name: said for name, said in contest.agree(results).items() if said is not None}
    del results
    right = {name: call for name, call in contest.competitors.items() if name not in wrong}
    graphs, missing = _graphs(stage, contest, right)
    times = measured(stage, {**right, **graphs}, max(seconds - (time.monotonic() - start), seconds / 4))
    work = case.work(stage.dry)
    goals = [] if stage.dry else [judged(goal, times, work, contest, reached) for goal in case.goals]
    ours = [f"{name}: {said}" for name, said in wrong.items() if name in OURS]
    return {
        "times": {name: asdict(found) for name, found in times.items()},
        "work": asdict(work),
        "floors": {gpu.name: work.seconds(gpu) for gpu in (A100, H200)},
        "reached_floor": floor_here(work, reached),
        "absent": {**contest.missing, **missing, **{name: f"wrong: {said}" for name, said in wrong.items()}},
        "goals": goals,
        "complaint": "; ".join(ours) or None,
    }


def _graphs(stage: Stage, contest: Contest, right: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Ours as CUDA graphs, and why some are not."""
    graphs, missing = {}, {}
    for name in contest.capturable:
        if stage.dry or name not in right:
            continue
        try:
            graphs[f"{name}, graph"] = captured(stage, right[name], contest.sets)
        except Exception as error:  # the call itself is timed all the same
            missing[f"{name}, graph"] = f"{type(error).__name__}: {error}"[:300]
    return graphs, missing


def floor_here(work: Work, reached: Mapping[str, float]) -> float:
    """The floor at the rates measured in this run: the copy's for bytes, the matmul's for products of halves."""
    seconds = work.bytes / reached["bandwidth"]
    return max(seconds, work.operations / reached["half"]) if work.unit == "half" else seconds


def judged(
    goal: Goal, times: Mapping[str, Times], work: Work, contest: Contest, reached: Mapping[str, float]
) -> dict[str, Any]:
    """A goal with what was measured; `reached` is None where a competitor is absent."""
    names = [name for name in OURS if name in times] if goal.ours == "best" else [goal.ours]
    found: dict[str, Any] = {**asdict(goal), "measured": None, "reached": None}
    if not names or any(name not in times for name in names):
        return found
    name = min(names, key=lambda name: times[name].median)
    ours = times[name]
    if goal.against == "bandwidth":
        value = work.bytes / reached["bandwidth"] / ours.median
    elif goal.against in ("memory", "rows"):
        rows = contest.row_bytes / reached["bandwidth"]
        value = ours.extra_bytes / contest.matrix_bytes if goal.against == "memory" else ours.median / rows
        return {**found, "ours": name, "measured": value, "reached": value <= goal.ratio}
    elif goal.against in times:
        value = times[goal.against].median / ours.median
    else:
        return found
    return {**found, "ours": name, "measured": value, "reached": value >= goal.ratio}


def summary(records: Sequence[Mapping[str, Any]]) -> str:
    """The short table that comes last."""
    lines = [f"{'case':52s} ms by competitor; floor at the rates of this run; goals"]
    for record in records:
        if record["part"] != "timing" or "times" not in record:
            continue
        times = "  ".join(f"{name} {found['median'] * 1e3:.3g}" for name, found in record["times"].items())
        lines.append(f"{record['name']:52s} {times}; floor {record['reached_floor'] * 1e3:.3g}")
        for goal in record["goals"]:
            measured = "not measured" if goal["measured"] is None else f"{goal['measured']:.3g}"
            verdict = {True: "reached", False: "missed", None: ""}[goal["reached"]]
            lines.append(f"    {goal['ours']} against {goal['against']}: {measured}, goal {goal['ratio']:g} {verdict}")
    for record in records:
        if record["status"] == "failed":
            lines.append(f"FAILED {record['part']}: {record['name']}: {record.get('reason', '')}"[:300])
    return "\n".join(lines)
