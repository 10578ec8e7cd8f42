"""What a run's evaluations cost in task-model calls without reuse, with that of Table 6, and in fact, by iteration.

`off` is the logical cost in the journal: every question of every evaluation is paid for by every program, but once a
program. `paper` leaves out what Table 6 lets an evaluation take over from those before it, computed from the programs
in the journal: a stage is taken over on the questions of an earlier evaluation whose program has the same key for it.
That is exact where the questions of one evaluation contain those of the other, and at most too high otherwise. `made`
is what the ledger says, whatever mode the run had. Diagnostics, embeddings (shared by their text in both modes) and
calls a program makes itself (`ask`, shared by their text too) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prismem_core.errors import ProgramError
from prismem_core.pipeline.keys import stage_keys
from prismem_core.program.program import Program
from prismem_core.roles.ledger import Ledger, Usage
from prismem_core.runs.events import Evaluated, ProgramAdded
from prismem_core.runs.run import RunRecord

ASKED_STAGES = ("extract", "plan", "answer")
TEST = "test"
DIAGNOSTICS = "diagnostics"


@dataclass(frozen=True)
class _Measured:
    """One evaluation: who may share each stage with it, its questions, what each stage costs by itself."""

    keys: Mapping[str, str]
    tasks: frozenset[str]
    usage: Mapping[str, Usage]


def reuse_account(record: RunRecord, ledger: Ledger | None) -> list[dict[str, Any]]:
    """One row a step (`"0"` is the seed, `"test"` the end): `step`, `off`, `paper` and `made`, each calls and tokens.

    `made` is None where the ledger does not say in which iteration its calls were made.
    """
    sources = {e.program: e.source for e in record.events if isinstance(e, ProgramAdded)}
    seen: dict[str, list[_Measured]] = {mode: [] for mode in ("off", "paper")}
    paid: dict[str, dict[str, Usage]] = {}
    for event in record.events:
        if not isinstance(event, Evaluated) or "usage" not in event.details:
            continue
        step = TEST if event.purpose == TEST else str(event.iteration)
        row = paid.setdefault(step, {"off": Usage(), "paper": Usage()})
        for program, tasks, record_of_usage in _parts(event):
            usage = {stage: Usage(**record_of_usage["stages"][stage]) for stage in ASKED_STAGES}
            for mode, keys in _keys(program, sources[program]).items():
                one = _Measured(keys, tasks, usage)
                for stage in ASKED_STAGES:
                    row[mode].add(_less(usage[stage], _covered(one, seen[mode], stage)))
                seen[mode].append(one)
    made = None if ledger is None else _made(ledger)
    return [
        {
            "step": step,
            **{mode: usage.to_dict() for mode, usage in row.items()},
            "made": None if made is None else made.get(step, Usage()).to_dict(),
        }
        for step, row in paid.items()
    ]


def _keys(program: str, source: str) -> dict[str, dict[str, str]]:
    """By mode and stage, a key that two evaluations share where the second need not pay for what the first did."""
    try:
        keys = stage_keys(Program(source), "paper")
    except ProgramError:
        # It was never run, so nobody shares with it.
        return {}
    paper = {"extract": keys.extract, "plan": keys.plan, "answer": keys.answer}
    return {"off": dict.fromkeys(ASKED_STAGES, program), "paper": paper}


def _parts(event: Evaluated) -> list[tuple[str, frozenset[str], Mapping[str, Any]]]:
    """The programs that answered, each with its questions and its usage; several where questions were routed."""
    parts = event.details.get("routing", {}).get("parts")
    if parts is None:
        return [(event.program, frozenset(_tasks(event)), event.details["usage"])]
    return [(part["program"], frozenset(part["tasks"]), part["usage"]) for part in parts]


def _tasks(event: Evaluated) -> list[str]:
    return list(event.scores) or [f"{event.program} {event.purpose}, which failed"]


def _covered(one: _Measured, before: list[_Measured], stage: str) -> Usage:
    """What earlier evaluations have paid of a stage: one that holds all questions, or some that hold parts of them."""
    sharing = [other for other in before if other.keys[stage] == one.keys[stage]]
    if any(one.tasks <= other.tasks for other in sharing):
        return one.usage[stage]
    total, taken = Usage(), frozenset[str]()
    for other in sorted(sharing, key=lambda other: -len(other.tasks)):
        # Segments belong to a history, which disjoint questions may share: only one part counts for them.
        apart = not taken & other.tasks and (stage != "extract" or not taken)
        if other.tasks < one.tasks and apart:
            total.add(other.usage[stage])
            taken |= other.tasks
    return total


def _less(whole: Usage, part: Usage) -> Usage:
    return Usage(
        max(0, whole.calls - part.calls),
        max(0, whole.input_tokens - part.input_tokens),
        max(0, whole.output_tokens - part.output_tokens),
    )


def _made(ledger: Ledger) -> dict[str, Usage] | None:
    found: dict[str, Usage] = {}
    for (iteration, stage, purpose), usage in ledger.by_iteration().items():
        if stage not in ASKED_STAGES or purpose == DIAGNOSTICS:
            continue
        if iteration is None:
            return None
        found.setdefault(TEST if purpose == TEST else str(iteration), Usage()).add(usage)
    return found
