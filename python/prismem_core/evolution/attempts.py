"""One iteration's attempts at a candidate: revise, patch, validate, measure, and feed errors back.

A reply that fails patching, validation or execution goes back to the coder up to `repair_attempts` times, a measured
but rejected one up to `measured_retries` times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prismem_core.digests import digest_bytes
from prismem_core.errors import PatchError
from prismem_core.evolution.archive import AttemptRecord
from prismem_core.evolution.context import Evolution
from prismem_core.evolution.designer import Attempt, Revision
from prismem_core.evolution.laboratory import CandidateFailure
from prismem_core.program.components import changed_components
from prismem_core.program.patch import apply_patch
from prismem_core.runs.events import Accepted, ProgramAdded, Rejected, Revised


@dataclass(frozen=True)
class Measurement:
    """What measuring a valid candidate showed: `failed` if it broke, `gate` whether it passed (None: no gate)."""

    accepted: bool
    gate: bool | None
    reason: str = ""
    message: str = ""
    measures: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False

    @classmethod
    def failure(cls, failure: CandidateFailure, gate: bool | None) -> Measurement:
        """A candidate that broke while it ran."""
        place = f" (line {failure.line})" if failure.line is not None else ""
        return cls(False, gate, f"execution:{failure.kind}", failure.message + place, failed=True)


@dataclass(frozen=True)
class Outcome:
    """How an iteration's attempts ended; `program` is the last candidate that was measured."""

    program: str | None = None
    accepted: bool = False
    gate: bool | None = None


def propose(
    evolution: Evolution,
    iteration: int,
    parent: str,
    ask: Callable[[Sequence[Attempt]], Revision | None],
    measure: Callable[[str], Measurement],
    feedback: Callable[[], Sequence[Attempt]] | None = None,
    *,
    gated: bool = True,
) -> Outcome:
    """Attempt a candidate until one is accepted, the designer declines or the tries are used up.

    `ask` gets the attempts so far (by default those of this iteration), `measure` evaluates a program that was added.
    """
    settings = evolution.settings
    repairs, retries = settings.repair_attempts, settings.measured_retries
    outcome = Outcome(gate=False if gated else None)
    while True:
        number = len(evolution.archive.iteration(iteration).attempts)
        evolution.step(iteration, "revise")
        revision = ask(feedback() if feedback else iteration_attempts(evolution, iteration))
        if revision is None:
            message = "the designer has nothing left to propose"
            evolution.emit(Rejected(iteration, number, None, "declined", message))
            return outcome
        evolution.emit(Revised(iteration, parent, number, revision.summary, revision.code, revision.details))
        program = _admit(evolution, iteration, parent, number, revision)
        if program is not None:
            result = measure(program)
            gate = result.gate if outcome.gate is not True else True
            outcome = Outcome(program, result.accepted, gate)
            if result.accepted:
                evolution.emit(Accepted(iteration, number, program, result.measures))
                return outcome
            evolution.emit(Rejected(iteration, number, program, result.reason, result.message, result.measures))
            if not result.failed:
                retries -= 1
                if retries < 0:
                    return outcome
                continue
        repairs -= 1
        if repairs < 0:
            return outcome


def _admit(evolution: Evolution, iteration: int, parent: str, number: int, revision: Revision) -> str | None:
    """Patch and validate a reply; the id of the program it makes, None after recording why it makes none."""
    if revision.problem:
        evolution.emit(Rejected(iteration, number, None, "reply:unusable", revision.problem))
        return None
    evolution.step(iteration, "validate")
    base = evolution.archive.program(parent).source
    try:
        source = apply_patch(base, revision.code)
    except PatchError as error:
        hunk = f" (hunk {error.hunk})" if error.hunk is not None else ""
        evolution.emit(Rejected(iteration, number, None, f"patch:{error.code}", f"{error}{hunk}"))
        return None
    verdict = evolution.laboratory.validate(source, base)
    if not verdict.ok:
        evolution.emit(Rejected(iteration, number, None, f"validation:{verdict.code}", verdict.message))
        return None
    program = program_id(iteration, sum(p.iteration == iteration for p in evolution.archive.programs.values()))
    evolution.emit(
        ProgramAdded(
            iteration,
            program,
            parent,
            source,
            digest_bytes(source.encode("utf-8", "surrogatepass")),
            revision.code,
            revision.summary,
            changed_components(base, source),
        )
    )
    return program


def program_id(iteration: int, repair: int = 0) -> str:
    """`n07` for the first program of iteration 7, `n07r1` for the next."""
    return f"n{iteration:02d}" + (f"r{repair}" if repair else "")


def iteration_attempts(evolution: Evolution, iteration: int) -> list[Attempt]:
    """The attempts of an iteration so far, as the coder sees them."""
    return [attempt_view(evolution, record) for record in evolution.archive.iteration(iteration).attempts]


def attempt_view(evolution: Evolution, record: AttemptRecord, case_tasks: Sequence[str] = ()) -> Attempt:
    """An attempt as the coder sees it; with `case_tasks`, its cases on them if it was fully evaluated."""
    archive, laboratory = evolution.archive, evolution.laboratory
    if record.program is None:
        return Attempt(record.iteration, record.number, record.summary, record.code, record.reason, record.message)
    program = archive.program(record.program)
    cases = laboratory.cases(program.id, program.source, case_tasks) if case_tasks and program.full else ()
    return Attempt(
        record.iteration,
        record.number,
        record.summary,
        record.code,
        record.reason,
        record.message,
        program.source,
        program.id,
        archive.accuracy(program.id),
        archive.mean(program.id, archive.valid_ids) if program.full else None,
        tuple(cases),
    )
