"""Records as tables: in the terminal while the jobs run, and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from prismem_core.errors import DataError

from .verdict import cost_text, reached_text, wanted_text

Record = dict[str, Any]

COLUMNS = ("competitor", "median", "best", "spread", "ours is", "rate", "of fp32 limit", "note")


def rows_of(record: Record) -> list[tuple[str, ...]]:
    """One row a competitor, the fastest first, then those that did not take part."""
    results = sorted(record["results"], key=lambda result: float(result["seconds"]["median"]))
    ours = min((r["seconds"]["median"] for r in results if r["ours"]), default=None)
    found: list[tuple[str, ...]] = []
    for result in results:
        seconds = result["seconds"]
        ratio = "" if ours is None or result["ours"] else f"{seconds['median'] / ours:.2f}x as fast"
        found.append(
            (
                result["name"],
                duration(seconds["median"]),
                duration(seconds["best"]),
                f"±{seconds['spread'] * 100:.0f} %",
                ratio,
                rate(result),
                f"{result['float32_limit'] * 100:.0f} %" if result["float32_limit"] else "",
                note(result),
            )
        )
    return found


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}" if seconds / unit < 1000 else f"{seconds / unit:.0f} {name}"
    return f"{seconds * 1e9:.3g} ns"


def rate(result: Record) -> str:
    """What of its own work a competitor does in a second, by what weighs more; "" where it is not known."""
    work = result["work"]
    if work is None:
        return ""
    median = result["seconds"]["median"]
    if work["products"]:
        return (
            f"{work['products'] / median / 1e9:.0f} GMAC/s"
            if work["products"] > 16 * work["bytes_read"]
            else (f"{work['bytes_read'] / median / 1e9:.1f} GB/s")
        )
    # Below some 8 operations a byte a core waits for memory.
    if work["flops"] > 8 * work["bytes_read"]:
        return f"{work['flops'] / median / 1e9:.1f} GFLOP/s"
    return f"{work['bytes_read'] / median / 1e9:.1f} GB/s"


def note(result: Record) -> str:
    """Accuracy, recall, costs, waiting, the time to build, and why more than the float32 limit is possible."""
    words = []
    if result["accuracy"] != "exact":
        words.append(result["accuracy"])
    if "recall" in result and (result["accuracy"] != "exact" or result["recall"] < 1.0):
        words.append(f"recall {result['recall']:.4f}")
    if result["float32_limit"] > 1.0 and result["work"] is not None:
        words.append("reads fewer bytes" if result["work"]["flops"] == 0 else "works on what the caches hold")
    words += [cost_text(name, amount) for name, amount in result.get("costs", {}).items()]
    seconds = result["seconds"]
    # Half as much again by the wall clock, and not too short to tell: it waits for a disk or for others.
    if seconds.get("wall", 0.0) > max(1.5 * seconds["median"], 1e-4):
        words.append(f"{duration(seconds['wall'])} by the wall")
    if result["build_seconds"] >= 0.01:
        words.append(f"built in {duration(result['build_seconds'])}")
    return ", ".join(words)


def show(record: Record, console: Console) -> None:
    """The tables of one record in the terminal."""
    table = Table(title=title_of(record), title_justify="left", caption=caption_of(record), caption_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("competitor", "note") else "right", overflow="fold")
    for row in rows_of(record):
        table.add_row(*(Text(cell) for cell in row))
    for absent in record["absent"]:
        table.add_row(Text(absent["name"]), *[""] * (len(COLUMNS) - 2), Text(f"absent: {absent['reason']}"))
    console.print(table)
    for fault in record["faults"]:
        console.print(Text(f"FAULT: {fault}", style="bold red"))
    for goal in record["goals"]:
        mark = {True: "reached", False: "NOT reached", None: "open"}[goal["reached"]]
        style = {True: "green", False: "yellow", None: "dim"}[goal["reached"]]
        console.print(Text(f"  {goal['ours']} {wanted_text(goal)}: {mark}, {reached_text(goal)}", style=style))
    console.print()


def title_of(record: Record) -> str:
    """Name and what is done."""
    quick = " (quick: smaller shapes)" if record["settings"]["quick"] else ""
    return f"{record['job']}: {record['summary']}{quick}"


def caption_of(record: Record) -> str:
    """Shape, data, clock, load and limits in one line."""
    limits, settings = record["limits"], record["settings"]
    shape = ", ".join(f"{name} {size}" for name, size in record["shape"].items())
    threads = f"{settings['threads']} thread{'s' if settings['threads'] > 1 else ''}"
    load = " to ".join(f"{value:.1f}" for value in record["load"])
    return (
        f"{shape}; {record['data']}; {threads}, {settings['instruction_set']}, {settings['clock']}; load {load}; "
        f"limits DRAM {limits['dram'] / 1e9:.1f} GB/s, L3 {limits['l3'] / 1e9:.0f} GB/s, "
        f"fp32 {limits['flops'] / 1e9:.0f} GFLOP/s, int8 {limits['products'] / 1e9:.0f} GMAC/s; "
        f"{record['wall_seconds']:.0f} s in all"
    )


def summary_rows(records: Sequence[Record]) -> list[tuple[str, str, str, str, str]]:
    """One row a goal: job, whose, goal, what was reached, verdict."""
    words = {True: "yes", False: "no", None: "open"}
    return [
        (record["job"], goal["ours"], wanted_text(goal), reached_text(goal), words[goal["reached"]])
        for record in records
        for goal in record["goals"]
    ]


SUMMARY_COLUMNS = ("job", "way", "goal", "measured", "reached")


def show_summary(records: Sequence[Record], console: Console) -> None:
    """All goals in one table; nothing where no job has one."""
    rows = summary_rows(records)
    if not rows:
        return
    table = Table(title="Goals", title_justify="left")
    for column in SUMMARY_COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row), style="" if row[-1] == "yes" else "yellow")
    console.print(table)


def markdown(records: Sequence[Record]) -> str:
    """The report: machine, goals, then a table a job."""
    lines = ["# Benchmarks", ""]
    if records:
        newest = records[-1]
        machine = newest["machine"]
        lines += [
            f"{machine['processor']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
            f"{machine['system']}, Python {machine['python']}; commit {newest['commit'] or 'unknown'}; "
            f"{newest['started']}.",
            "",
            "Times are medians of interleaved rounds; the part of the fp32 limit is the time that reading the float32 "
            "rows once and computing the float32 products would take at the limits measured in the same rounds. "
            "`docs/benchmarks.md` says how to read them.",
            "",
        ]
    rows = summary_rows(records)
    if rows:
        lines += ["## Goals", "", *_table(SUMMARY_COLUMNS, rows), ""]
    for record in records:
        absent = [
            (entry["name"], *[""] * (len(COLUMNS) - 2), f"absent: {entry['reason']}") for entry in record["absent"]
        ]
        lines += [
            f"## {title_of(record)}",
            "",
            caption_of(record),
            "",
            *_table(COLUMNS, [*rows_of(record), *absent]),
            "",
        ]
        lines += [f"- FAULT: {fault}" for fault in record["faults"]]
    return "\n".join(lines).rstrip() + "\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return [
        f"| {' | '.join(columns)} |",
        f"|{' --- |' * len(columns)}",
        *(f"| {' | '.join(row)} |" for row in escaped),
    ]


def append(path: Path, record: Record) -> None:
    """One more line of JSON Lines."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def newest(path: Path) -> list[Record]:
    """The last record of each job in a file, in the order of the jobs; DataError for a line that is none."""
    found: dict[str, Record] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            found.pop(record["job"], None)
            found[record["job"]] = record
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}, line {number}: expected a record of `prismem bench`; use another --output"
            ) from error
    return list(found.values())
