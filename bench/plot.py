"""One picture of all records: a panel a job, a bar a competitor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .contest import PeerMissing, require

_OURS, _EXACT, _OTHER = "#1f6f54", "#8aa0b4", "#d9c9a3"


def draw(records: Sequence[dict[str, Any]], path: Path) -> str | None:
    """Write the picture; returns why not where matplotlib is absent."""
    shown = [record for record in records if record["results"]]
    if not shown:
        return "nothing was measured"
    try:
        figures = require("matplotlib.figure", "matplotlib")
    except PeerMissing as missing:
        return str(missing)
    columns = min(3, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = figures.Figure(figsize=(5.2 * columns, 2.9 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    for panel in panels.flat[len(shown) :]:
        panel.set_axis_off()
    for record, panel in zip(shown, panels.flat, strict=False):
        results = sorted(record["results"], key=lambda result: -float(result["seconds"]["median"]))
        milliseconds = [result["seconds"]["median"] * 1e3 for result in results]
        colours = [_OURS if r["ours"] else _EXACT if r["accuracy"] == "exact" else _OTHER for r in results]
        names = [r["name"] + ("" if r["accuracy"] == "exact" else f" ({r['accuracy']})") for r in results]
        panel.barh(names, milliseconds, color=colours)
        panel.axvline(record["float32_seconds"] * 1e3, color="black", linewidth=0.8, linestyle=":")
        panel.set_xscale("log")
        panel.set_title(record["job"], fontsize=9, loc="left")
        panel.tick_params(labelsize=7)
        panel.set_xlabel("ms (dotted: fp32 limit)", fontsize=7)
    figure.savefig(path)
    return None
