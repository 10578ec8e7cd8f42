"""The laboratory over real tasks: validation in the sandbox, evaluation through the pipeline, diagnostics on demand."""

from __future__ import annotations

from collections.abc import Sequence

from prismem_core.errors import JudgeError, ProgramError
from prismem_core.evaluation.cases import Case
from prismem_core.evaluation.diagnose import Diagnoser
from prismem_core.evaluation.diagnostics_table import DiagnosticsTable, Lengths
from prismem_core.evaluation.evaluate import Evaluation, Evaluator
from prismem_core.evaluation.score_table import summarise
from prismem_core.evolution.laboratory import CandidateFailure, Purpose, SetEvaluation, ValidationOutcome
from prismem_core.program.failure_words import explained
from prismem_core.program.interface import Interface
from prismem_core.program.program import Program
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.validation import validate
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import Embedder
from prismem_core.tasks.task import Task


class TaskLaboratory:
    """Measures programs on the train and valid tasks of a data set; the test tasks are not within its reach.

    The last few evaluations are kept in memory, so that diagnostics of the parent at hand cost no second pass.
    """

    KEPT = 3

    def __init__(
        self,
        evaluator: Evaluator,
        train: Sequence[Task],
        valid: Sequence[Task],
        sandbox: Sandbox,
        ledger: Ledger,
        diagnostic_embedder: Embedder,
        interface: Interface = "paper",
    ) -> None:
        self._interface = interface
        self._evaluator = evaluator
        self._train = tuple(train)
        self._valid = tuple(valid)
        self._sandbox = sandbox
        self._ledger = ledger
        self._diagnoser = Diagnoser(evaluator.pipeline, evaluator.dataset.histories, diagnostic_embedder)
        self._kept: dict[tuple[str, tuple[str, ...]], Evaluation] = {}

    @property
    def interface(self) -> Interface:
        """What the backend of the programs offers."""
        return self._interface

    @property
    def train(self) -> Sequence[Task]:
        """Training tasks in task-list order."""
        return self._train

    @property
    def valid(self) -> Sequence[Task]:
        """Validation tasks in task-list order."""
        return self._valid

    def validate(self, source: str, parent: str | None) -> ValidationOutcome:
        """All checks of a candidate; no model call is made."""
        report = validate(source, parent, sandbox=self._sandbox, interface=self._interface)
        known = report.line is None or f"line {report.line}" in report.message
        message = report.message if known else f"line {report.line}: {report.message}"
        return ValidationOutcome(report.code == "ok", report.code, message)

    def evaluate(self, program_id: str, source: str, task_ids: Sequence[str], purpose: Purpose) -> SetEvaluation:
        """Scores of the tasks, or the first failure; JudgeError where a verdict could not be read."""
        try:
            evaluation = self._run(program_id, source, tuple(task_ids), exact=True)
        except ProgramError as error:
            return SetEvaluation({}, CandidateFailure(error.code, str(error), error.line))
        details = summarise(evaluation)
        if evaluation.failure is not None:
            task_id, failure = evaluation.failure
            words = explained(failure.kind, failure.message, self._evaluator.pipeline.settings.limits)
            message = f"{failure.stage} failed on task {task_id}: {words}"
            return SetEvaluation({}, CandidateFailure(failure.kind, message, failure.line), details)
        _require_verdicts(evaluation, task_ids)
        return SetEvaluation(evaluation.scores, None, details)

    def cases(self, program_id: str, source: str, task_ids: Sequence[str]) -> Sequence[Case]:
        """Cases of the program on training tasks."""
        evaluation = self._run(program_id, source, tuple(task_ids))
        _require_verdicts(evaluation, task_ids)
        with self._ledger.scope(program=program_id, purpose="diagnostics"):
            return self._diagnoser.cases(Program(source), evaluation, self._evaluator.tasks(task_ids))

    def diagnostics(self, program_id: str, source: str) -> DiagnosticsTable:
        """The diagnostics table over all training tasks."""
        task_ids = tuple(task.id for task in self._train)
        evaluation = self._run(program_id, source, task_ids)
        _require_verdicts(evaluation, task_ids)
        with self._ledger.scope(program=program_id, purpose="diagnostics"):
            return self._diagnoser.table(Program(source), evaluation, self._train)

    def lengths(self, program_id: str, source: str) -> Lengths:
        """Unit and retrieved lengths over the training set."""
        evaluation = self._run(program_id, source, tuple(task.id for task in self._train))
        return self._diagnoser.lengths(evaluation, self._train)

    def _run(self, program_id: str, source: str, task_ids: tuple[str, ...], *, exact: bool = False) -> Evaluation:
        program = Program(source)
        for (digest, ids), kept in self._kept.items():
            # What enters the journal must not depend on what this process happens to have kept: a larger evaluation
            # would put its own means, and the failure of a task that was not asked for, there.
            if digest == program.digest and (ids == task_ids if exact else set(task_ids) <= set(ids)):
                return kept
        with self._ledger.scope(program=program_id):
            evaluation = self._evaluator.evaluate(program, task_ids)
        if evaluation.unscored:
            # The next look asks the judge again.
            return evaluation
        self._kept[program.digest, task_ids] = evaluation
        while len(self._kept) > self.KEPT:
            self._kept.pop(next(iter(self._kept)))
        return evaluation


def _require_verdicts(evaluation: Evaluation, task_ids: Sequence[str]) -> None:
    """JudgeError where one of the tasks has none: a score without it would be another score."""
    unscored = set(evaluation.unscored)
    missing = [i for i in task_ids if i in unscored]
    if missing:
        raise JudgeError(
            f"the judge's reply could not be read for {len(missing)} of {len(task_ids)} tasks (first: {missing[0]}), "
            "however often it was asked; expected a JSON object of the form it was given; what was paid for is kept: "
            "resume to ask those again"
        )
