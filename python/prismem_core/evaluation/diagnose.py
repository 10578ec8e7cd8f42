"""Diagnostics of a program on real tasks: what Eq. 8-11 compare is gathered from the pipeline and embedded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prismem_core.evaluation.cases import Case, EvidenceView, TaskDiagnostics
from prismem_core.evaluation.diagnostics import (
    EvidenceRows,
    TaskRows,
    diagnose_tasks,
    diagnostics_table,
    measure_lengths,
    unit_json,
)
from prismem_core.evaluation.diagnostics_table import DiagnosticsTable, Lengths
from prismem_core.evaluation.evaluate import Evaluation
from prismem_core.ops.screened import Screen
from prismem_core.pipeline.pipeline import ExtractedHistory, Pipeline
from prismem_core.pipeline.segment import Segment
from prismem_core.program.program import Program
from prismem_core.roles.protocols import Embedder
from prismem_core.tasks.history import History
from prismem_core.tasks.task import Task
from prismem_core.tasks.text import blocks, distinct_evidence, normal_form


class Diagnoser:
    """Computes diagnostics and cases of evaluated programs."""

    def __init__(self, pipeline: Pipeline, histories: Mapping[str, History], embedder: Embedder) -> None:
        self._pipeline = pipeline
        self._histories = histories
        self._embedder = embedder
        self._forms: dict[str, str] = {}

    def tasks(self, program: Program, evaluation: Evaluation, tasks: Sequence[Task]) -> list[TaskDiagnostics | None]:
        """Eq. 9-11 of each task; a task whose trace failed counts as having retrieved nothing."""
        texts: dict[str, int] = {}
        rows = self._rows(program, evaluation, tasks, texts)
        screen = Screen(self._pipeline.settings.device, measured=self._pipeline.measured)
        return diagnose_tasks(rows, self._embedder.embed(list(texts)), screen)

    def table(self, program: Program, evaluation: Evaluation, tasks: Sequence[Task]) -> DiagnosticsTable:
        """The diagnostics table over `tasks`; capabilities without tasks have no row."""
        scores = [evaluation.scores.get(task.id, 0.0) for task in tasks]
        diagnostics = self.tasks(program, evaluation, tasks)
        return diagnostics_table([t.primary for t in tasks], scores, diagnostics, self.lengths(evaluation, tasks))

    def lengths(self, evaluation: Evaluation, tasks: Sequence[Task]) -> Lengths:
        """Unit and retrieved lengths over the distinct histories and the questions of `tasks`."""
        histories = dict.fromkeys(task.history_id for task in tasks)
        units = [u for history_id in histories for u in evaluation.extracted[history_id].units]
        return measure_lengths(units, [evaluation.outcomes[task.id].trace.retrieved for task in tasks])

    def cases(self, program: Program, evaluation: Evaluation, tasks: Sequence[Task]) -> list[Case]:
        """The cases a designer is shown, in the order of `tasks`."""
        cases = []
        for task, diagnostics in zip(tasks, self.tasks(program, evaluation, tasks), strict=True):
            outcome = evaluation.outcomes[task.id]
            views = []
            for snippet in distinct_evidence(task.evidence):
                segment, units = self._source(evaluation.extracted[task.history_id], snippet)
                views.append(EvidenceView(snippet, segment.text if segment else "", tuple(units or ())))
            cases.append(
                Case(
                    task.id,
                    task.primary,
                    task.secondary,
                    task.asked,
                    task.reference,
                    outcome.trace.answer,
                    outcome.scored.score or 0.0,
                    diagnostics,
                    outcome.trace.query,
                    outcome.trace.retrieved,
                    tuple(views),
                    {"parts": dict(outcome.scored.parts), "recall": outcome.recall, "native_type": task.native_type},
                )
            )
        return cases

    def _source(self, history: ExtractedHistory, snippet: str) -> tuple[Segment | None, list[str] | None]:
        """The first segment in time order that contains the snippet, and its units as JSON; None where none does."""
        form = normal_form(snippet)
        for group in history.groups:
            for segment in group.segments:
                known = self._forms.get(segment.text)
                if known is None:
                    known = self._forms[segment.text] = normal_form(segment.text)
                if form in known:
                    return segment, [unit_json(u) for u in history.extractions[segment.text].units]
        return None, None

    def _rows(
        self, program: Program, evaluation: Evaluation, tasks: Sequence[Task], texts: dict[str, int]
    ) -> list[TaskRows]:
        """What Eq. 9-11 compare, as places in `texts`, which gets every text once."""
        asked = list(dict.fromkeys((task.history_id, s) for task in tasks for s in distinct_evidence(task.evidence)))
        oracle: dict[tuple[str, str], list[str]] = {}
        if asked:
            result = self._pipeline.run(program, self._histories, asked, answers=False)
            oracle = {pair: blocks(trace.retrieved) for pair, trace in zip(asked, result.traces, strict=True)}

        def places(chosen: Sequence[str]) -> tuple[int, ...]:
            return tuple(texts.setdefault(text, len(texts)) for text in chosen)

        rows = []
        for task in tasks:
            pieces = []
            for snippet in distinct_evidence(task.evidence):
                _, units = self._source(evaluation.extracted[task.history_id], snippet)
                (own,) = places([snippet])
                found = places(oracle[task.history_id, snippet])
                pieces.append(EvidenceRows(own, None if units is None else places(units), found))
            rows.append(TaskRows(tuple(pieces), places(blocks(evaluation.outcomes[task.id].trace.retrieved))))
        return rows
