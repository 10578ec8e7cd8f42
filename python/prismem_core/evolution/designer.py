"""The designer: who reads a program's weaknesses and writes its next revision (P section 3.1, Appendix F).

A designer sees training cases only. It is deterministic or its model calls are cached, so that a resumed run repeats
its decisions; `brief.rng()` is the only source of chance it should use. A provider that fails raises RoleError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from prismem_core.evaluation.cases import Case
from prismem_core.evaluation.diagnostics_table import DiagnosticsTable, Lengths
from prismem_core.program.interface import Interface
from prismem_core.tasks.capability import Capability

Stage = Literal["cold_start", "refinement", "integration"]


@dataclass(frozen=True)
class RevisionRecord:
    """An earlier iteration's revision as it ended.

    `program_id` is None where no valid program came of it. `accuracy` holds the training means of the capabilities that
    were measured; `train` and `valid` are None unless the full evaluation succeeded. `outcome` is `retained` or the
    reason code of the rejection.
    """

    iteration: int
    parent_id: str
    program_id: str | None
    target: Capability | None
    diagnosis: str
    summary: str
    components: tuple[str, ...]
    accuracy: Mapping[Capability, float]
    train: float | None
    valid: float | None
    outcome: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """One reply of the coder and what became of it, fed back to the next call.

    `reason` is a code such as `reply:unusable`, `patch:ambiguous_context`, `validation:load_error`,
    `execution:limit:cpu`, `gate:target`, `gate:gain`, `gate:drop`; `message` explains it. `source` is None where the
    patch did not apply. `accuracy` and `valid` are filled as far as the candidate was measured; `cases` (stage III) are
    its outputs on the paired tasks.
    """

    iteration: int
    number: int
    summary: str
    code: str
    reason: str
    message: str
    source: str | None = None
    program_id: str | None = None
    accuracy: Mapping[Capability, float] = field(default_factory=dict)
    valid: float | None = None
    cases: tuple[Case, ...] = ()


@dataclass(frozen=True)
class ParentBrief:
    """What a designer is told in stages I and II.

    `accuracy` holds the parent's training means of the capabilities that have training tasks. `table` is None in stage
    II; `lengths` is always there. `explored` holds, in stage I, the children of the same parent and, in
    stage II, the retained versions of the target. `tried` holds every attempt of earlier iterations, for designers that
    must not repeat themselves. `target` is None in stage I and where the strategy has no targets. `interface` is what
    the backend offers; `prompts/memory_interface.md` says it in words.
    """

    stage: Stage
    iteration: int
    parent_id: str
    source: str
    target: Capability | None
    accuracy: Mapping[Capability, float]
    train: float
    table: DiagnosticsTable | None
    lengths: Lengths
    cases: tuple[Case, ...]
    explored: tuple[RevisionRecord, ...]
    tried: tuple[RevisionRecord, ...]
    seed: int = 0
    interface: Interface = "paper"

    def rng(self) -> np.random.Generator:
        """A fresh generator of this iteration, the same on every call and after a resume."""
        return np.random.default_rng([self.seed, self.iteration])


@dataclass(frozen=True)
class SpecialistView:
    """The specialist of one capability beside the base.

    `distance` counts edges of the lineage tree, `gain` is the training mean of the capability, specialist minus base.
    """

    capability: Capability
    program_id: str
    source: str
    distance: int
    gain: float
    accuracy: Mapping[Capability, float]
    parent_id: str | None
    is_base: bool


@dataclass(frozen=True)
class PairedCase:
    """The base and a specialist on the training task where the specialist gains most; its parent's case where known."""

    capability: Capability
    task_id: str
    base: Case
    specialist: Case
    specialist_parent: Case | None


@dataclass(frozen=True)
class IntegrationBrief:
    """What a designer is told in stage III; `specialists` go from the nearest to the farthest, ties canonical."""

    iteration: int
    base_id: str
    source: str
    accuracy: Mapping[Capability, float]
    train: float
    lengths: Lengths
    specialists: tuple[SpecialistView, ...]
    pairs: tuple[PairedCase, ...]
    tried: tuple[RevisionRecord, ...]
    seed: int = 0
    interface: Interface = "paper"

    def rng(self) -> np.random.Generator:
        """A fresh generator of this iteration, the same on every call and after a resume."""
        return np.random.default_rng([self.seed, self.iteration])


@dataclass(frozen=True)
class Diagnosis:
    """One diagnosis in words; `details` is plain JSON for the designer's own later use and is kept in the journal."""

    text: str
    capability: Capability | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Revision:
    """A summary and a unified diff against the parent (stage III: against the base); `details` as in Diagnosis.

    `problem` says why a coder's reply held no diff that could be read: such a revision is a failed attempt.
    """

    summary: str
    code: str
    details: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class IntegrationPlan:
    """How to bring the specialists' gains into the base, step by step; `details` as in Diagnosis."""

    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Designer(Protocol):
    """Proposes revisions; `revise` and `integrate` return None when there is nothing left to propose."""

    identity: str

    def diagnose(self, brief: ParentBrief) -> Diagnosis: ...

    def revise(self, brief: ParentBrief, diagnosis: Diagnosis, feedback: Sequence[Attempt]) -> Revision | None: ...

    def plan_integration(self, brief: IntegrationBrief) -> IntegrationPlan: ...

    def integrate(
        self, brief: IntegrationBrief, plan: IntegrationPlan, attempts: Sequence[Attempt]
    ) -> Revision | None: ...
