"""What the simulation showed: means and paired differences with intervals, as JSON and as tables in Markdown."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from prismem_core.evaluation.intervals import Interval, interval, paired_interval
from prismem_core.evaluation.means import mean

from .kept import Results
from .study import OTHERS, PAPER_ORDER, PRISMEM, STRATEGIES


def summary(results: Results) -> dict[str, Any]:
    """Means by strategy and the differences `prismem` minus each other, in points (hundredths of the score)."""
    points = {strategy: [100 * run.final for run in results[strategy]] for strategy in STRATEGIES}
    differences = {other: paired_interval(points[PRISMEM], points[other]) for other in OTHERS}
    return {
        "seeds": len(points[PRISMEM]),
        "start": mean(100 * run.start for run in results[PRISMEM]),
        "final": {strategy: interval(values).to_dict() for strategy, values in points.items()},
        "prismem_minus": {other: {**d.to_dict(), "excludes_zero": d.excludes_zero} for other, d in differences.items()},
    }


def details(results: Results) -> dict[str, Any]:
    """What the runs did: base before integration, iterations, revisions kept, integrations, optimism of validation."""
    return {
        strategy: {
            "base": mean(100 * run.base for run in runs),
            "iterations": mean(run.iterations for run in runs),
            "retained": sum(run.retained for run in runs) / max(1, sum(run.revisions for run in runs)),
            "integrated": mean(run.integrated for run in runs),
            "valid_minus_final": mean(100 * (run.valid - run.final) for run in runs),
        }
        for strategy, runs in results.items()
    }


def order(results: Results) -> dict[str, Any]:
    """Strategies from the worst to the best, and each step of the paper's order with its paired interval."""
    means = {strategy: mean(run.final for run in runs) for strategy, runs in results.items()}
    ranked = sorted(STRATEGIES, key=lambda strategy: means[strategy])
    steps = []
    for worse, better in itertools.pairwise(PAPER_ORDER):
        step = paired_interval(*([100 * run.final for run in results[s]] for s in (better, worse)))
        steps.append({"better": better, "worse": worse, **step.to_dict(), "excludes_zero": step.excludes_zero})
    return {"found": ranked, "paper": list(PAPER_ORDER), "as_in_the_paper": ranked == list(PAPER_ORDER), "steps": steps}


def markdown(record: Mapping[str, Any]) -> str:
    """The tables of docs/simulation.md, from a record of results."""
    parts = []
    for name, world in record["worlds"].items():
        parts += [
            f"World `{name}`, {world['seeds']} seeds a strategy; the seed program scores {world['start']:.2f}.",
            _final_table(world),
            _order_text(world["order"]),
        ]
    seeds = ", ".join(str(point["seeds"]) for point in record["null"].values())
    parts += [f"The null world ({seeds} seeds), `prismem` minus:", _differences_table("null world", record["null"])]
    for axis, points in record["sweeps"].items():
        seeds = next(iter(points.values()))["seeds"]
        parts += [f"Sweep over {axis}, {seeds} seeds a point, `prismem` minus:", _differences_table(axis, points)]
    return "\n\n".join(parts) + "\n"


def _final_table(main: Mapping[str, Any]) -> str:
    rows = ["| strategy | final score | `prismem` minus it | base before integration | integrated | iterations |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for strategy in sorted(STRATEGIES, key=lambda s: -main["final"][s]["mean"]):
        less, more = _shown(main["final"][strategy], sign=False), ""
        if strategy in main["prismem_minus"]:
            more = _shown(main["prismem_minus"][strategy])
        ran = main["details"][strategy]
        shares = f"{ran['base']:.2f} | {ran['integrated']:.0%} | {ran['iterations']:.1f}"
        rows.append(f"| `{strategy}` | {less} | {more} | {shares} |")
    return "\n".join(rows)


def _order_text(found: Mapping[str, Any]) -> str:
    verdict = "is that of P Table 4" if found["as_in_the_paper"] else "is not that of P Table 4"
    rows = [f"The order, worst first, {verdict}: {', '.join(f'`{s}`' for s in found['found'])}.", ""]
    rows += ["| step of the paper's order | difference |", "| --- | --- |"]
    rows += [f"| `{step['better']}` minus `{step['worse']}` | {_shown(step)} |" for step in found["steps"]]
    return "\n".join(rows)


def _differences_table(axis: str, points: Mapping[str, Mapping[str, Any]]) -> str:
    heads = " | ".join(f"`{other}`" for other in OTHERS)
    rows = [f"| {axis} | `prismem` | {heads} |", "| --- | --- |" + " --- |" * len(OTHERS)]
    for value, point in points.items():
        cells = " | ".join(_shown(point["prismem_minus"][other]) for other in OTHERS)
        rows.append(f"| {value} | {point['final'][PRISMEM]['mean']:.2f} | {cells} |")
    return "\n".join(rows)


def _shown(values: Mapping[str, Any], *, sign: bool = True) -> str:
    """A mean with its interval; bold where a difference's interval leaves zero out."""
    found = Interval(values["mean"], values["low"], values["high"], values["n"])
    form = "+.2f" if sign else ".2f"
    # A difference of nothing has no sign.
    centre = format(found.mean + 0.0, form) if round(found.mean, 2) else "0.00"
    if found.low is None or found.high is None:
        return centre
    text = f"{centre} [{found.low:.2f}, {found.high:.2f}]"
    return f"**{text}**" if sign and found.excludes_zero else text
