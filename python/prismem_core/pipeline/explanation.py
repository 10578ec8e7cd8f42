"""Which stages a revised program shares with its parent, mode by mode, and why: what `prismem explain-reuse` prints.

All verdicts come from the keys the pipeline itself uses. They are about a cache that holds a run of the parent on the
same histories and questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from prismem_core.pipeline.keys import RETRIEVE_ROOTS, Reuse, StageKeys, stage_keys
from prismem_core.program.changes import Change, DynamicLookup, chains_to, changes, dynamic_lookups
from prismem_core.program.components import NAMED, STAGES, reaching, restart_stage
from prismem_core.program.interface import ProgramInterface
from prismem_core.program.program import Program
from prismem_core.program.reachability import INDEX_ROOTS

State = Literal["reused", "where equal", "again"]
"""`reused`: no call is paid. `where equal`: looked up by what comes before, so that equal input is found. `again`: run
anew.
"""
MODES: tuple[Reuse, ...] = ("content", "paper", "off")


@dataclass(frozen=True)
class StageReuse:
    """What becomes of a stage, and why."""

    stage: str
    state: State
    why: str


@dataclass(frozen=True)
class ModeReuse:
    """The stages under one mode, in their order; `start` is the first that is not reused, None where all are."""

    mode: Reuse
    start: str | None
    stages: tuple[StageReuse, ...]


@dataclass(frozen=True)
class Explanation:
    """What changed and what follows from it.

    `table6` is the stage at which Table 6 begins again, `reaches` each component it names with a chain to the change;
    `lookups` say where all code counts because names are looked up dynamically.
    """

    changes: tuple[Change, ...]
    reaches: dict[str, tuple[str, ...]]
    table6: str | None
    lookups: tuple[DynamicLookup, ...]
    modes: tuple[ModeReuse, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def explain_reuse(
    parent: Program,
    candidate: Program,
    shown_before: ProgramInterface,
    shown_after: ProgramInterface,
    modes: Sequence[Reuse] = MODES,
) -> Explanation:
    """Explain what a candidate shares with its parent; `shown_*` are what the loaded programs show of themselves."""
    found = changes(parent.source, candidate.source)
    pair = _Pair(parent, candidate, shown_before, shown_after, found)
    return Explanation(
        found,
        reaching(parent.components, candidate.components),
        restart_stage(parent.components, candidate.components),
        pair.lookups,
        tuple(pair.mode(mode) for mode in modes),
    )


class _Pair:
    def __init__(
        self,
        parent: Program,
        candidate: Program,
        before: ProgramInterface,
        after: ProgramInterface,
        found: Sequence[Change],
    ) -> None:
        self.parent, self.candidate = parent, candidate
        self.before, self.after = before, after
        self.changed = [change.component for change in found]
        code = [change.component for change in found if change.code]
        self.code = code
        self.lookups = dynamic_lookups(parent.source, candidate.source)
        self.table6 = reaching(parent.components, candidate.components)
        self.by_index = chains_to(code, parent.source, candidate.source, INDEX_ROOTS)
        self.by_retrieve = chains_to(code, parent.source, candidate.source, RETRIEVE_ROOTS)

    def mode(self, mode: Reuse) -> ModeReuse:
        """All stages under one mode."""
        old, new = stage_keys(self.parent, mode), stage_keys(self.candidate, mode)
        stages: list[StageReuse] = [self._segmentation()]
        stages.append(self._asked("extraction", mode, old.extract == new.extract, self._extraction_values()))
        stages.append(self._indexing(mode, old, new, stages[-1]))
        stages.append(self._asked("planning", mode, old.plan == new.plan, self._planning_values()))
        stages.append(self._retrieval(mode, old, new, stages[2], stages[3]))
        stages.append(self._answer(mode, old.answer == new.answer, stages[4]))
        start = next((stage.stage for stage in stages if stage.state != "reused"), None)
        return ModeReuse(mode, start, tuple(stages))

    def _segmentation(self) -> StageReuse:
        if self.before.segmentation == self.after.segmentation:
            return StageReuse("segmentation", "reused", f"Segmentation is {self.after.segmentation!r} in both")
        why = f"Segmentation was {self.before.segmentation!r} and is {self.after.segmentation!r}"
        return StageReuse("segmentation", "again", why)

    def _extraction_values(self) -> list[str]:
        pairs = [
            ("the fields of MemoryUnit", self.before.unit == self.after.unit),
            (
                "the value of MemoryExtractionInstruction",
                self.before.extraction_instruction == self.after.extraction_instruction,
            ),
            ("the value of Segmentation", self.before.segmentation == self.after.segmentation),
        ]
        return [what for what, same in pairs if not same]

    def _planning_values(self) -> list[str]:
        pairs = [
            ("the fields of Query", self.before.query == self.after.query),
            (
                "the value of QueryPlanningInstruction",
                self.before.planning_instruction == self.after.planning_instruction,
            ),
        ]
        return [what for what, same in pairs if not same]

    def _asked(self, stage: str, mode: Reuse, same_key: bool, differing: list[str]) -> StageReuse:
        """Extraction and planning, whose requests hold values of the program and nothing of its code."""
        if differing:
            return StageReuse(stage, "again", f"{_and(differing)} changed, which every request holds")
        if not same_key:
            return StageReuse(stage, "again", self._other_key(stage, mode))
        schema, instruction = _SHOWN[stage]
        why = f"the fields of {schema} and the value of {instruction} are what they were"
        edited = [name for name in (schema, instruction) if name in self.changed]
        return StageReuse(stage, "reused", why + (f", although {_and(edited)} changed in its text" if edited else ""))

    def _indexing(self, mode: Reuse, old: StageKeys, new: StageKeys, extraction: StageReuse) -> StageReuse:
        if old.index != new.index:
            why = self._other_key("indexing", mode)
            return StageReuse("indexing", "again", why)
        if extraction.state != "reused":
            why = "its code is the same: a history whose units come out as they were has the memory it had"
            return StageReuse("indexing", "where equal", why)
        why = self._untouched("__init__ and index", self.by_index, self.by_retrieve, "Memory.retrieve")
        return StageReuse("indexing", "reused", why)

    def _retrieval(
        self, mode: Reuse, old: StageKeys, new: StageKeys, indexing: StageReuse, planning: StageReuse
    ) -> StageReuse:
        if old.retrieve != new.retrieve:
            why = self._other_key("retrieval", mode)
            if indexing.state == "reused":
                why += "; memories are built again from the stored units, and every call that takes is in the cache"
            return StageReuse("retrieval", "again", why)
        if indexing.state == "again":
            return StageReuse("retrieval", "again", "it searches memories that other code built")
        if planning.state == "again" or indexing.state != "reused":
            why = "its code is the same: a query that comes out as it was finds the text it got from an equal memory"
            return StageReuse("retrieval", "where equal", why)
        why = self._untouched("retrieve", self.by_retrieve, self.by_index, "Memory.index")
        return StageReuse("retrieval", "reused", why)

    def _answer(self, mode: Reuse, same_key: bool, retrieval: StageReuse) -> StageReuse:
        if self.before.answer_instruction != self.after.answer_instruction:
            return StageReuse("answer", "again", "the value of AnswerInstruction changed, which every request holds")
        if not same_key:
            return StageReuse("answer", "again", self._other_key("answer", mode))
        if retrieval.state != "reused":
            why = "the instruction is the same: a question whose retrieved text comes out as it was is not asked again"
            return StageReuse("answer", "where equal", why)
        return StageReuse("answer", "reused", "instruction, questions and retrieved texts are what they were")

    def _other_key(self, stage: str, mode: Reuse) -> str:
        """Why the code's part in the key of a stage differs."""
        if mode == "off":
            return "off shares nothing between programs that differ in a single character"
        if mode == "paper" and stage != "retrieval":
            return self._by_table6(stage)
        if mode == "paper" and self._named(_TABLE_STAGES["planning"]):
            return self._by_table6("planning")
        return self._by_code(stage)

    def _by_table6(self, stage: str) -> str:
        """The first component that makes Table 6 begin at `stage` or before."""
        named = self._named(_TABLE_STAGES[stage])
        if named:
            name = min(named, key=lambda n: (STAGES.index(NAMED[n]), len(self.table6[n]), n))
            chain = self.table6[name]
            return f"{name} changed" if len(chain) == 1 else f"{name} reaches a change: {_arrows(chain)}"
        others = [name for name in self.changed if name not in NAMED]
        if others and stage != "extraction":
            return f"{_and(others)} changed, and helpers count from indexing on whoever uses them"
        return self._by_code("indexing" if stage == "indexing" else "retrieval")

    def _named(self, stages: Sequence[str]) -> list[str]:
        return [name for name in self.table6 if NAMED[name] in stages]

    def _by_code(self, stage: str) -> str:
        if self.lookups:
            one = self.lookups[-1]
            return (
                f"all code counts for every stage, because of line {one.line} of the {one.program} "
                f"({one.what}), and {_and(self.code) or 'the order of the definitions'} changed"
            )
        chains = self.by_index if stage == "indexing" else self.by_retrieve
        if not chains:
            return "the order of definitions changed, and it counts: some run when loaded, or hide others of their name"
        chain = min(chains.values(), key=lambda c: (len(c), c))
        more = f" (and {len(chains) - 1} more)" if len(chains) > 1 else ""
        return f"{chain[0]} changed{more}" if len(chain) == 1 else f"a change is reached: {_arrows(chain)}{more}"

    def _untouched(self, who: str, own: dict[str, Any], others: dict[str, Any], other: str) -> str:
        if not self.code:
            return "nothing but docstrings changed" if self.changed else "no component changed"
        only = [name for name in self.code if name in others and name not in own]
        unused = [name for name in self.code if name not in others and name not in own]
        reasons = []
        if only:
            which = "which" if len(only) > 1 or only != [other] else ""
            reasons.append(f"the change is in {_and(only)}" + (f", {which} only {other} reaches" if which else ""))
        if unused:
            reasons.append(f"{_and(unused)} {'is' if len(unused) == 1 else 'are'} reached by no code of the memory")
        return f"no code that {who} can run changed: {'; '.join(reasons)}" if reasons else f"no code of {who} changed"


_SHOWN = {
    "extraction": ("MemoryUnit", "MemoryExtractionInstruction"),
    "planning": ("Query", "QueryPlanningInstruction"),
}
_TABLE_STAGES = {stage: STAGES[: STAGES.index(stage) + 1] for stage in ("extraction", "indexing", "planning", "answer")}


def _arrows(chain: Sequence[str]) -> str:
    return " -> ".join(chain)


def _and(names: Sequence[str]) -> str:
    shown = [*names[:4], f"{len(names) - 4} more"] if len(names) > 5 else list(names)
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1] if shown else ""
