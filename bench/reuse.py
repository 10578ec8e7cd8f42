"""What reuse saves: one evolution three times, with `reuse` = content, paper and off, compared iteration by iteration.

    python -m bench.reuse --data sample --run-root runs/reuse [--set KEY=VALUE ...]

Each run is a process of its own (`prismem evolve`, or `prismem resume` where its directory holds one); what it cost is
read from its journal and its ledger of calls, so a table can be printed again at any time. The runs must agree in all
events of their journals but for the time: reuse never changes a result.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismem_core.errors import PrismemError
from prismem_core.roles.ledger import Ledger, Usage
from prismem_core.runs.events import Evaluated, IterationFinished, RunFinished
from prismem_core.runs.run import MANIFEST, RunRecord, read_run

MODES = ("content", "paper", "off")
"""In the order they run: the quick ones first."""
POLL_SECONDS = 0.5
EMBED = "embed"
TEST = "test"


@dataclass(frozen=True)
class Cost:
    """What one iteration of one run really paid: model calls and their tokens, embedded texts, seconds.

    `wall` and `cpu` are None where the iteration was not watched.
    """

    calls: int = 0
    tokens: int = 0
    embedded: int = 0
    wall: float | None = None
    cpu: float | None = None

    @property
    def all_calls(self) -> int:
        """Every line of the ledger: calls of the task model and embedded texts."""
        return self.calls + self.embedded


class Fault(PrismemError):
    """Two runs that should be equal are not, or a run that saves must not pay more and does."""

    exit_code = 9


def follow(command: Sequence[str], run: Path, seconds: Path, log: Path) -> None:
    """Run `command`, noting in `seconds` the wall and CPU time at the end of each iteration of the run it makes.

    Times go on where an earlier process of the run ended. CPU time is that of the process and all its descendants, to
    within the half second between two looks; it is None where the system has no /proc.
    """
    done = [json.loads(line) for line in seconds.read_text().splitlines()] if seconds.exists() else []
    base_wall = done[-1]["wall"] if done else 0.0
    base_cpu = done[-1]["cpu"] if done else 0.0
    known = len(done)
    journal = run / "journal.jsonl"
    began = time.monotonic()
    with log.open("a", encoding="utf-8") as output, seconds.open("a", encoding="utf-8") as noted:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            cpu = 0.0
            while True:
                code = process.poll()
                now = tree_cpu_seconds(process.pid)
                cpu = cpu if now is None else max(cpu, now)
                finished = _finished(journal)
                # The test questions come after the last iteration and make the last entry, at the end of the process.
                for number in range(known, finished + (code is not None)):
                    entry = {"step": number, "wall": base_wall + time.monotonic() - began, "cpu": base_cpu + cpu}
                    noted.write(json.dumps(entry) + "\n")
                    noted.flush()
                    known = number + 1
                if code is not None:
                    break
                time.sleep(POLL_SECONDS)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        raise Fault(f"{' '.join(command)} ended with code {code}; its output is in {log}")


def _finished(journal: Path) -> int:
    """Iterations that a journal says are finished; the seed's counts."""
    try:
        return journal.read_bytes().count(b'"event":"iteration_finished"')
    except FileNotFoundError:
        return 0


def tree_cpu_seconds(root: int) -> float | None:
    """CPU seconds of a process, its living descendants and all that ended under them; None without /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    try:
        entries = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    for pid in entries:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))
    total = 0
    for pid in ticks:
        ancestor = pid
        while ancestor not in (root, 0):
            ancestor = parents.get(ancestor, 0)
        total += ticks[pid] if ancestor == root else 0
    return total / os.sysconf("SC_CLK_TCK")


def costs(record: RunRecord, ledger: Ledger, seconds: Path) -> dict[str, Cost]:
    """What a run paid by iteration (`0` is the seed) and, under `test`, for the questions measured at the end."""
    usage: dict[str, list[Usage]] = {}
    steps = [str(e.iteration) for e in record.events if isinstance(e, IterationFinished)]
    for (iteration, stage, purpose), one in ledger.by_iteration().items():
        step = TEST if purpose == TEST else str(iteration)
        chat, embedded = usage.setdefault(step, [Usage(), Usage()])
        (embedded if stage == EMBED else chat).add(one)
    times = [json.loads(line) for line in seconds.read_text().splitlines()] if seconds.exists() else []
    result = {}
    for position, step in enumerate([*steps, TEST]):
        chat, embedded = usage.get(step, [Usage(), Usage()])
        wall = cpu = None
        if position < len(times):
            before = times[position - 1] if position else {"wall": 0.0, "cpu": 0.0}
            wall, cpu = (times[position][name] - before[name] for name in ("wall", "cpu"))
        result[step] = Cost(chat.calls, chat.input_tokens + chat.output_tokens, embedded.calls, wall, cpu)
    return result


def disagreement(first: RunRecord, second: RunRecord) -> str | None:
    """The first event that two journals do not share, time apart; None where one is the beginning of the other."""
    for number, (one, other) in enumerate(zip(first.events, second.events, strict=False)):
        if one.to_json() != other.to_json():
            return f"event {number}: {one.name} of iteration {one.iteration} against {other.name} of {other.iteration}"
    return None


def table(paid: Mapping[str, Mapping[str, Cost]]) -> str:
    """The costs of the modes side by side, in Markdown; steps that a mode has not reached are dashes."""
    modes = [mode for mode in ("off", "paper", "content") if mode in paid]
    steps = max((list(known) for known in paid.values()), key=len)
    quantities = ("calls", "tokens", "embedded", "cpu", "wall")
    head = ["step", *(f"{quantity} {mode}" for quantity in quantities for mode in modes)]
    rows = []
    for step in steps:
        rows.append([step, *(_cell(paid[mode].get(step), q) for q in quantities for mode in modes)])
    shared = [step for step in steps if all(step in paid[mode] for mode in modes)]
    totals = {mode: {q: total([paid[mode][step] for step in shared], q) for q in quantities} for mode in modes}
    name = "total" if shared == steps else f"total to {shared[-1]}" if shared else "total"
    rows.append([name, *(_number(totals[mode][q]) for q in quantities for mode in modes)])
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---", *["---:"] * (len(head) - 1)], *rows]]
    return "\n".join(lines)


def total(costs: Sequence[Cost], quantity: str) -> float | None:
    """The sum of a quantity, None where it is not known for all."""
    values = [getattr(cost, quantity) for cost in costs]
    return None if any(value is None for value in values) else sum(values)


def _cell(cost: Cost | None, quantity: str) -> str:
    return "-" if cost is None else _number(getattr(cost, quantity))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def faults(paid: Mapping[str, Mapping[str, Cost]]) -> list[str]:
    """Steps at which content paid for more than paper, or paper for more than off."""
    found = []
    for less, more in (("content", "paper"), ("paper", "off"), ("content", "off")):
        if less not in paid or more not in paid:
            continue
        for step in paid[less].keys() & paid[more].keys():
            for quantity in ("calls", "tokens", "embedded"):
                low, high = getattr(paid[less][step], quantity), getattr(paid[more][step], quantity)
                if low > high:
                    found.append(f"step {step}: {less} paid {low} {quantity}, {more} {high}")
    return sorted(found)


_SAVED = {
    "all_calls": "calls, embedded texts included,",
    "calls": "calls of the task model",
    "tokens": "tokens of the task model",
    "embedded": "embedded texts",
    "cpu": "CPU seconds",
    "wall": "wall seconds",
}


def saving(paid: Mapping[str, Mapping[str, Cost]]) -> list[str]:
    """One line a mode and quantity: what it saves of the whole cost of off, over the steps both have reached."""
    lines = []
    for mode in ("paper", "content"):
        if mode in paid and "off" in paid:
            steps = [step for step in paid["off"] if step in paid[mode]]
            for quantity, name in _SAVED.items():
                own = total([paid[mode][step] for step in steps], quantity)
                whole = total([paid["off"][step] for step in steps], quantity)
                if own is not None and whole:
                    lines.append(f"{mode} saves {1 - own / whole:.1%} of the {name} of off")
    return lines


def summarise(root: Path, modes: Sequence[str]) -> tuple[str, list[str]]:
    """The table of the runs under `root` with its verdicts, and what is wrong with them."""
    records = {mode: read_run(root / mode) for mode in modes if (root / mode / MANIFEST).exists()}
    paid = {
        mode: costs(record, Ledger(root / mode / "calls.jsonl", read_only=True), root / f"{mode}.seconds.jsonl")
        for mode, record in records.items()
    }
    for mode, record in records.items():
        if not _measured_on_test(record):
            paid[mode].pop(TEST, None)
    wrong = faults(paid)
    known = list(records)
    for one, other in itertools.pairwise(known):
        differing = disagreement(records[one], records[other])
        if differing is not None:
            wrong.append(f"the journals of {one} and {other} differ at {differing}")
    lengths = {len(record.events) for record in records.values()}
    agreed = f"the journals agree in {'all' if len(lengths) == 1 else 'the first'} {min(lengths)} events"
    lines = [table(paid), "", *saving(paid), *([agreed] if not wrong else []), *wrong]
    return "\n".join(lines), wrong


def _measured_on_test(record: RunRecord) -> bool:
    """Whether the step after the iterations is complete: start and result have been measured on the test questions."""
    final = {e.final for e in record.events if isinstance(e, RunFinished)}
    measured = {e.program for e in record.events if isinstance(e, Evaluated) and e.purpose == TEST}
    return bool(final) and final | {"n00"} <= measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not yet finished, then print the table; the exit code is 9 if a check fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.reuse", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", help='what `prismem evolve --data` takes; "sample" by default', default="sample")
    parser.add_argument("--run-root", type=Path, required=True, help="directory of the runs, one below it a mode")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for `prismem evolve`")
    parser.add_argument("--split", help="as for `prismem evolve`")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only-table", action="store_true", help="print the table of what is there")
    given = parser.parse_args(arguments)
    root: Path = given.run_root
    try:
        if not given.only_table:
            root.mkdir(parents=True, exist_ok=True)
            for mode in given.modes:
                _run(root, mode, given)
        text, wrong = summarise(root, given.modes)
    except PrismemError as error:
        print(f"bench.reuse: {error}", file=sys.stderr)
        return error.exit_code
    print(text)
    return Fault.exit_code if wrong else 0


def _run(root: Path, mode: str, given: Any) -> None:
    run = root / mode
    prismem = [sys.executable, "-m", "prismem_core"]
    if (run / MANIFEST).exists():
        command = [*prismem, "resume", str(run)]
    else:
        command = [*prismem, "evolve", "--data", given.data, "--run", str(run), "--reuse", mode, "--seed", given.seed]
        command += [word for pair in given.set for word in ("--set", pair)]
        command += [] if given.split is None else ["--split", given.split]
    follow(command, run, root / f"{mode}.seconds.jsonl", root / f"{mode}.log")


if __name__ == "__main__":
    sys.exit(main())
