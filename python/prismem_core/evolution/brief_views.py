"""A brief as plain values for prompts: scores, tables, cases, earlier revisions, specialists and attempts.

Everything of training cases only; texts are cut by `excerpts.py` alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prismem_core.evaluation.cases import Case, EvidenceView, TaskDiagnostics
from prismem_core.evaluation.diagnostics_table import DiagnosticsTable, Lengths
from prismem_core.evolution.designer import Attempt, IntegrationBrief, PairedCase, ParentBrief, RevisionRecord
from prismem_core.evolution.excerpts import Extent, excerpt, units_within
from prismem_core.program.patch import make_patch
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.text import dice

SIMILAR = 5


def accuracy_text(accuracy: Mapping[Capability, float], train: float) -> str:
    """Training means by capability and over all training tasks."""
    lines = [f"- `{c}`: {accuracy[c]:.4f}" for c in Capability if c in accuracy]
    return "\n".join([*lines, f"- average over all training questions: {train:.4f}"])


def lengths_text(lengths: Lengths) -> str:
    """The two length measurements in words."""
    return (
        f"- a unit has {lengths.chars_per_unit:.0f} characters on average (as JSON)\n"
        f"- a retrieved text has {lengths.retrieved_chars:.0f} characters on average"
    )


def diagnostics_text(table: DiagnosticsTable) -> str:
    """Accuracy and Eq. 9-11 by capability as a Markdown table."""
    lines = [
        "| Capability | Questions | Acc | evidence_extracted | evidence_oracle_retrieved | evidence_retrieved |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for capability, row in table.rows.items():
        measured = [row.accuracy, row.d_ext, row.d_idx, row.d_ret]
        shown = " | ".join("-" if value is None else f"{value:.4f}" for value in measured)
        lines.append(f"| {capability} | {row.n_tasks} | {shown} |")
    return "\n".join(lines)


def as_json(value: Any) -> str:
    """A value as a prompt shows it."""
    return json.dumps(value, ensure_ascii=False, indent=1)


def cases_text(cases: Sequence[Case], extent: Extent) -> str:
    """The first cases as JSON."""
    return as_json([_case(case, extent) for case in cases[: extent.cases]])


def _case(case: Case, extent: Extent) -> dict[str, Any]:
    shown = {
        "task_id": case.task_id,
        "primary": str(case.primary),
        "secondary": [str(c) for c in case.secondary],
        "question": excerpt(case.question, extent.excerpt),
        "reference_answer": excerpt(case.reference, extent.excerpt),
        **output_view(case, extent),
        "diagnostics": _diagnostics(case.diagnostics),
        "evidence": evidence_views(case.evidence, extent),
    }
    for view, own in zip(shown["evidence"], case.evidence, strict=False):
        view["extracted_as"] = _units(own, extent)
    return _counted(shown, len(case.evidence), "evidence_not_shown")


def output_view(case: Case, extent: Extent) -> dict[str, Any]:
    """What a program made of a question."""
    plan = json.dumps(dict(case.query_plan), ensure_ascii=False)
    whole = len(plan) <= extent.excerpt
    view = {
        "predicted_answer": excerpt(case.predicted, extent.excerpt),
        "score": round(case.score, 4),
        "query_plan": dict(case.query_plan) if whole else excerpt(plan, extent.excerpt),
        "retrieved_text": excerpt(case.retrieved_text, extent.excerpt, [view.snippet for view in case.evidence]),
    }
    recall = case.extras.get("recall")
    return view if recall is None else {**view, "evidence_recall": round(float(recall), 4)}


def evidence_views(evidence: Sequence[EvidenceView], extent: Extent) -> list[dict[str, Any]]:
    """Each piece of evidence with the text it comes from, a text that was just shown by its number alone."""
    views: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for number, own in enumerate(evidence[: extent.evidence], 1):
        original = excerpt(own.original_text, extent.excerpt, [own.snippet])
        first = seen.setdefault(original, number)
        repeated = first != number and bool(original)
        views.append(
            {
                "snippet": excerpt(own.snippet, extent.excerpt),
                "original_text": f"as that of piece {first}" if repeated else original,
            }
        )
    return views


def _units(own: EvidenceView, extent: Extent) -> list[str]:
    units = units_within(own.extracted_as, extent.excerpt, own.snippet)
    return [excerpt(unit, extent.excerpt, [own.snippet]) for unit in units]


def _counted(shown: dict[str, Any], total: int, name: str) -> dict[str, Any]:
    missing = total - len(shown["evidence"])
    return {**shown, name: missing} if missing else shown


def _diagnostics(values: TaskDiagnostics | None) -> dict[str, float | None] | None:
    if values is None:
        return None
    named = {
        "evidence_extracted": values.d_ext,
        "evidence_oracle_retrieved": values.d_idx,
        "evidence_retrieved": values.d_ret,
    }
    return {name: None if value is None else round(value, 4) for name, value in named.items()}


def records_text(records: Sequence[RevisionRecord], extent: Extent) -> str:
    """The latest of some earlier revisions as JSON, "" for none."""
    shown = records if extent.records is None else records[len(records) - min(len(records), extent.records) :]
    return as_json([_record(record, extent) for record in shown]) if shown else ""


def _record(record: RevisionRecord, extent: Extent) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "node": record.program_id,
        "parent": record.parent_id,
        "target": None if record.target is None else str(record.target),
        "summary": excerpt(record.summary, extent.excerpt),
        "components": list(record.components),
        "training_scores": _scores(record.accuracy),
        "training_average": None if record.train is None else round(record.train, 4),
        "outcome": record.outcome,
    }
    return {key: value for key, value in shown.items() if value not in (None, [], {})}


def _scores(accuracy: Mapping[Capability, float]) -> dict[str, float]:
    return {str(c): round(accuracy[c], 4) for c in Capability if c in accuracy}


def not_kept(brief: ParentBrief) -> list[RevisionRecord]:
    """Attempts on the same program for the same target that are not among the explored ones."""
    explored = {(record.iteration, record.program_id, record.summary) for record in brief.explored}
    return [
        record
        for record in brief.tried
        if record.parent_id == brief.parent_id
        and record.target == brief.target
        and (record.iteration, record.program_id, record.summary) not in explored
    ]


def unhelpful(brief: ParentBrief, diagnosis: str) -> list[RevisionRecord]:
    """Earlier revisions like the diagnosed one that brought nothing: no program, or no higher training mean.

    At most `SIMILAR`, those of the likest words, in the order of time; equally like ones: the latest.
    """
    means = {record.program_id: record.train for record in brief.tried if record.program_id is not None}
    means[brief.parent_id] = brief.train
    found = []
    for record in brief.tried:
        before = means.get(record.parent_id)
        helped = record.train is not None and (before is None or round(record.train, 9) > round(before, 9))
        likeness = dice(diagnosis, f"{record.diagnosis}\n{record.summary}")
        if not helped and likeness > 0:
            found.append((likeness, record))
    positions = sorted(range(len(found)), key=lambda i: (-round(found[i][0], 9), -i))[:SIMILAR]
    return [found[i][1] for i in sorted(positions)]


def specialist_name(capability: Capability) -> str:
    """What the prompts of stage III call a capability's specialist."""
    return f"specialist_{capability}"


def specialist_views(brief: IntegrationBrief, extent: Extent) -> list[dict[str, Any]]:
    """The specialists as the brief orders them; a source that is shown already is named instead."""
    views: list[dict[str, Any]] = []
    shown = {brief.base_id: "base"}
    for own in brief.specialists:
        name = specialist_name(own.capability)
        known = shown.setdefault(own.program_id, name)
        same = known if own.is_base or known != name else None
        views.append(
            {
                "name": name,
                "capability": str(own.capability),
                "program": own.program_id,
                "distance": own.distance,
                "gain": f"{own.gain:+.4f}",
                "parent": own.parent_id,
                "scores": json.dumps(_scores(own.accuracy)),
                "same": same,
                "source": None if same or not extent.whole_sources else own.source,
                "changes": None if same or extent.whole_sources else _changes(brief.source, own.source),
            }
        )
    return views


def _changes(base: str, source: str) -> str:
    # A diff cannot say that a final newline goes, and for reading it does not matter.
    return make_patch(base.rstrip("\n") + "\n", source.rstrip("\n") + "\n")


def pairs_text(brief: IntegrationBrief, extent: Extent) -> str:
    """The paired cases as JSON, each with the outputs of the versions that are known."""
    parents = {own.capability: own.parent_id for own in brief.specialists}
    return as_json([_pair(pair, parents, brief.base_id, extent) for pair in brief.pairs[: extent.cases]])


def _pair(pair: PairedCase, parents: Mapping[Capability, str | None], base_id: str, extent: Extent) -> dict[str, Any]:
    name = specialist_name(pair.capability)
    versions: dict[str, Any] = {"base": version_view(pair.base, extent), name: version_view(pair.specialist, extent)}
    if parents.get(pair.capability) == base_id:
        versions[f"{name}_parent"] = "is base"
    elif pair.specialist_parent is not None:
        versions[f"{name}_parent"] = version_view(pair.specialist_parent, extent)
    shown = {
        "capability": str(pair.capability),
        "task_id": pair.task_id,
        "question": excerpt(pair.base.question, extent.excerpt),
        "golden_answer": excerpt(pair.base.reference, extent.excerpt),
        "evidence": evidence_views(pair.base.evidence, extent),
        "versions": versions,
    }
    return _counted(shown, len(pair.base.evidence), "evidence_not_shown")


def version_view(case: Case, extent: Extent) -> dict[str, Any]:
    """One version's outputs on a case; `extracted_as` follows the case's pieces of evidence."""
    units = [_units(own, extent) for own in case.evidence[: extent.evidence]]
    return {**output_view(case, extent), "extracted_as": units}


def attempt_views(attempts: Sequence[Attempt], extent: Extent, prefix: str) -> list[dict[str, Any]]:
    """The latest attempts, named `prefix` and their number from 1; outputs that were not made are left out."""
    first = 0 if extent.attempts is None else max(0, len(attempts) - extent.attempts)
    return [
        {
            "name": f"{prefix}{number + 1}",
            "facts": as_json(_attempt(attempts[number], extent)),
            "code": _code(attempts[number].code, extent),
        }
        for number in range(first, len(attempts))
    ]


def _attempt(attempt: Attempt, extent: Extent) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "summary": excerpt(attempt.summary, extent.excerpt),
        "outcome": attempt.reason,
        "explanation": excerpt(attempt.message, max(extent.excerpt, 600)),
        "training_scores": _scores(attempt.accuracy),
        "outputs": {case.task_id: version_view(case, extent) for case in attempt.cases[: extent.cases]},
    }
    return {key: value for key, value in shown.items() if value != {}}


def _code(code: str, extent: Extent) -> str:
    return code if extent.code is None else excerpt(code, extent.code)
