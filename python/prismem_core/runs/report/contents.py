"""What a report says, as plain JSON data: scores by split and capability, official metrics, recall, calls, reuse,
lineage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prismem_core.errors import failure_kind
from prismem_core.roles.budget import Price
from prismem_core.roles.ledger import Ledger, Usage
from prismem_core.runs.events import (
    ROUTER,
    Evaluated,
    IterationFinished,
    ProgramAdded,
    Rejected,
    RunFinished,
    RunStarted,
    SpecialistsChanged,
    TasksAnnotated,
)
from prismem_core.runs.isolation import isolation_from_json
from prismem_core.runs.run import RunRecord
from prismem_core.tasks.capability import CAPABILITIES

TOKENS_STAGES = ("extract", "plan", "answer")
ROUTE = "route"
TEST = "test"
START = "n00"
NO_LEDGER = "The calls that were made are not known: the run's calls.jsonl is missing. Restore it from a copy."


@dataclass(frozen=True)
class Contents:
    """The report of a run; `data` is what `prismem report --json` prints."""

    data: Mapping[str, Any]

    @property
    def final(self) -> str | None:
        """The result's program id, None while the run goes on."""
        final: str | None = self.data["final"]
        return final

    @property
    def best(self) -> str:
        """The result, or the best program so far."""
        return str(self.data["final"] or self.data["best"])


def contents(
    record: RunRecord,
    ledger: Ledger | None,
    reuse: Sequence[Mapping[str, Any]] = (),
    reuse_check: Mapping[str, int] | None = None,
    prices: Mapping[str, Price] | None = None,
    carry_over: Mapping[str, Any] | None = None,
) -> Contents:
    """Fold the journal of a run (finished or not) and the ledger of its calls into a report.

    Without a ledger it is not known which calls were made: `models` is None, and so is what `calls` says of them.

    `carry_over` is what `evaluation/carry_over.py` makes of `task_scores` for the programs that `shown` names.

    `reuse` is what the modes of reuse pay for by step: rows of `step`, `off`, `paper` and `made` (None: not known),
    `reuse_check` what `verify_reuse` compared: `memories`, `texts` and how many of these were `differing`. `prices` are
    those of the models by the ledger's role.
    """
    events = record.events
    started = next((e for e in events if isinstance(e, RunStarted)), None)
    finished = next((e for e in events if isinstance(e, RunFinished)), None)
    scores = _scores(record, started)
    data = {
        "run": record.directory.name,
        "version": record.manifest.version,
        "finished": finished is not None,
        "final": finished.final if finished else None,
        "base": finished.base if finished else None,
        "best": _best(record),
        "strategy": started.strategy if started else record.manifest.settings.get("strategy"),
        "designer": started.designer if started else None,
        "data": dict(record.manifest.data),
        "roles": dict(record.manifest.roles),
        "isolation": isolation_from_json(record.manifest.isolation).to_json(),
        "settings": dict(record.manifest.settings),
        "job": dict(record.manifest.extra),
        "scores": scores,
        "annotation": _annotation(record),
        "routing": scores[TEST].get(ROUTER, {}).get("routing"),
        "test_failures": {
            e.program: dict(e.failure)
            for e in events
            if isinstance(e, Evaluated) and e.purpose == TEST and e.failure is not None
        },
        "carry_over": carry_over,
        "specialists": next((dict(e.specialists) for e in reversed(events) if isinstance(e, SpecialistsChanged)), {}),
        "lineage": list(_lineage(record)),
        "iterations": [
            {
                "iteration": e.iteration,
                "stage": e.stage,
                "target": e.target,
                "parent": e.parent,
                "program": e.program,
                "retained": e.retained,
                "train": e.train,
                "valid": e.valid,
                "best": e.best,
            }
            for e in events
            if isinstance(e, IterationFinished)
        ],
        "rejections": _rejections(record),
        "calls": call_counts(record, ledger),
        "models": None if ledger is None else model_usage(ledger, prices or {}),
        "reuse": {"steps": list(reuse), "total": _reuse_total(reuse)},
        "reuse_check": reuse_check,
        "launches": None if ledger is None or not ledger.launches().calls else ledger.launches().to_dict(),
    }
    return Contents(data)


def shown(record: RunRecord) -> tuple[str, str | None, str]:
    """Start, base before integration (None while the run goes on) and result, or the best program so far."""
    finished = next((e for e in record.events if isinstance(e, RunFinished)), None)
    return (START, finished.base, finished.final) if finished else (START, None, _best(record))


def task_scores(record: RunRecord) -> dict[str, dict[str, Mapping[str, float]]]:
    """The scores of every question that has one, by part and program: of full evaluations, and of test questions."""
    started = next((e for e in record.events if isinstance(e, RunStarted)), None)
    parts = () if started is None else (("train", started.train), ("valid", started.valid))
    members = {part: [task[0] for task in tasks] for part, tasks in parts}
    scores: dict[str, dict[str, Mapping[str, float]]] = {"train": {}, "valid": {}, TEST: {}}
    for event in record.events:
        if not isinstance(event, Evaluated):
            continue
        if event.purpose == TEST:
            # A program that broke on some of the test questions is shown by the others.
            scores[TEST][event.program] = event.scores
        elif event.purpose == "full" and event.failure is None:
            for part, ids in members.items():
                scores[part][event.program] = {task: event.scores[task] for task in ids if task in event.scores}
    return scores


def _rejections(record: RunRecord) -> dict[str, int]:
    """How many proposals came to nothing, by what stopped them; broken programs and ended ones are told apart."""
    counts: dict[str, int] = {}
    for event in record.events:
        if isinstance(event, Rejected):
            step, _, kind = event.reason.partition(":")
            name = failure_kind(kind) if step == "execution" else step
            counts[name] = counts.get(name, 0) + 1
    return counts


def _best(record: RunRecord) -> str:
    return next((e.best for e in reversed(record.events) if isinstance(e, SpecialistsChanged)), START)


def model_usage(ledger: Ledger, prices: Mapping[str, Price]) -> dict[str, Any]:
    """All that was asked of the models: calls, tokens and cost by role and stage, and the sums; nothing is left out.

    A call of an embedder is a text. `cost` is in the currency of the prices, 0 where there are none. `time` has the
    wall seconds and the GPU seconds by role, those of searches under `engine`.
    """
    roles: dict[str, Any] = {}
    total, money = Usage(), 0.0
    for (role, stage), usage in ledger.totals().items():
        entry = roles.setdefault(role, {**Usage().to_dict(), "cost": 0.0, "stages": {}})
        entry["stages"][stage] = usage.to_dict()
        cost = prices.get(role, Price()).of(usage)
        for name, count in usage.to_dict().items():
            entry[name] += count
        entry["cost"] += cost
        total.add(usage)
        money += cost
    gpu = {role: round(seconds, 3) for role, seconds in ledger.gpu_seconds().items()}
    times = {"seconds": round(ledger.seconds(), 3), "gpu_seconds": {**gpu, "total": round(sum(gpu.values()), 3)}}
    return {"roles": roles, "total": {**total.to_dict(), "cost": money}, "time": times}


def _scores(record: RunRecord, started: RunStarted | None) -> dict[str, dict[str, Any]]:
    """Means by split, program and capability; `train` and `valid` come from full evaluations, `test` from the end."""
    primary = {} if started is None else {task: capability for task, capability, _ in (*started.train, *started.valid)}
    scores: dict[str, dict[str, Any]] = {
        part: {} if part == TEST else {program: _means(found, primary) for program, found in programs.items()}
        for part, programs in task_scores(record).items()
    }
    for event in record.events:
        if isinstance(event, Evaluated) and event.purpose == TEST:
            scores[TEST][event.program] = {k: v for k, v in event.details.items() if k != "usage"}
    return scores


def _annotation(record: RunRecord) -> dict[str, Any] | None:
    """Labels that a model gave: how often each capability is primary and secondary, what fell back; None by rules."""
    event = next((e for e in record.events if isinstance(e, TasksAnnotated)), None)
    if event is None:
        return None
    return {
        "annotator": event.annotator,
        "questions": len(event.labels),
        "primary": {str(c): sum(primary == c for _, primary, _ in event.labels) for c in CAPABILITIES},
        "secondary": {str(c): sum(c in secondary for _, _, secondary in event.labels) for c in CAPABILITIES},
        "agreeing": event.agreeing,
        "fallen_back": dict(event.fallen_back),
    }


def _means(scores: Mapping[str, float], primary: Mapping[str, str]) -> dict[str, Any]:
    groups: dict[str, list[float]] = {}
    for task, score in scores.items():
        groups.setdefault(primary[task], []).append(score)
    by_capability = {
        str(c): {"questions": len(groups[c]), "score": sum(groups[c]) / len(groups[c])}
        for c in CAPABILITIES
        if c in groups
    }
    means = [entry["score"] for entry in by_capability.values()]
    return {
        "questions": len(scores),
        "scored": len(scores),
        "score": sum(scores.values()) / len(scores) if scores else 0.0,
        "overall": sum(means) / len(means) if means else 0.0,
        "capabilities": by_capability,
    }


def _lineage(record: RunRecord) -> Iterator[dict[str, Any]]:
    outcome: dict[str, str] = {}
    for event in record.events:
        if isinstance(event, Rejected) and event.program is not None:
            outcome[event.program] = event.reason
        if isinstance(event, IterationFinished) and event.program is not None and event.retained:
            outcome[event.program] = "retained"
    for event in record.events:
        if isinstance(event, ProgramAdded):
            yield {
                "program": event.program,
                "parent": event.parent,
                "iteration": event.iteration,
                "summary": event.summary,
                "components": list(event.components),
                "outcome": "start" if event.parent is None else outcome.get(event.program, "measured"),
            }


def _logical(record: RunRecord) -> dict[str, Mapping[str, Any]]:
    """What each program's evaluations would cost with nothing reused; a full evaluation contains the target's."""
    usage: dict[str, Mapping[str, Any]] = {}
    for event in record.events:
        if not isinstance(event, Evaluated) or "usage" not in event.details:
            continue
        key = f"{event.program} test" if event.purpose == TEST else event.program
        if event.purpose != "target" or key not in usage:
            usage[key] = event.details["usage"]
    return usage


def call_counts(record: RunRecord, ledger: Ledger | None) -> dict[str, Any]:
    """Calls made against calls a run without reuse would have made (the evaluations alone, diagnostics apart).

    Without a ledger `made`, `saved` and `diagnostics` are None, and `note` says so.
    """
    logical: dict[str, Usage] = {}
    embedded = Usage()
    for usage in _logical(record).values():
        for stage, counts in usage["stages"].items():
            logical.setdefault(stage, Usage()).add(Usage(**counts))
        embedded.add(Usage(usage["embedded_texts"], usage["embedded_tokens"], 0))
    stages: dict[str, Any] = {}
    made = None if ledger is None else _made(ledger)
    # A classification of questions was made where questions were routed, and nowhere else.
    routed = [stage for stage in (ROUTE,) if stage in logical or stage in (made or {})]
    for stage in (*TOKENS_STAGES, *routed):
        stages[stage] = _saving(logical.get(stage, Usage()), made, stage)
    ask = Usage()
    for stage in ("index", "retrieve"):
        ask.add(logical.get(stage, Usage()))
    stages["ask"] = _saving(ask, made, "ask")
    stages["embed"] = _saving(embedded, made, "embed")
    total = {
        name: {
            field: sum(stages[s][name][field] for s in stages) for field in ("calls", "input_tokens", "output_tokens")
        }
        if name == "without_reuse" or made is not None
        else None
        for name in ("without_reuse", "made", "saved")
    }
    return {
        "stages": stages,
        "total": total,
        "diagnostics": None if ledger is None else ledger.for_purpose("diagnostics").to_dict(),
        "note": NO_LEDGER if ledger is None else None,
    }


def _reuse_total(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for mode in ("off", "paper", "made"):
        usage: Usage | None = Usage()
        for row in rows:
            usage = None if row[mode] is None else usage
            if usage is not None:
                usage.add(Usage(**row[mode]))
        total[mode] = None if usage is None else usage.to_dict()
    return total


def _made(ledger: Ledger) -> dict[str, Usage]:
    made: dict[str, Usage] = {}
    for (_, stage, purpose), usage in ledger.by_purpose().items():
        if purpose != "diagnostics":
            made.setdefault(stage, Usage()).add(usage)
    return made


def _saving(without: Usage, by_stage: Mapping[str, Usage] | None, stage: str) -> dict[str, dict[str, int] | None]:
    if by_stage is None:
        return {"without_reuse": without.to_dict(), "made": None, "saved": None}
    made = by_stage.get(stage, Usage())
    saved = Usage(
        without.calls - made.calls,
        without.input_tokens - made.input_tokens,
        without.output_tokens - made.output_tokens,
    )
    return {"without_reuse": without.to_dict(), "made": made.to_dict(), "saved": saved.to_dict()}
