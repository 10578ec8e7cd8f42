"""A question about a history with its reference answer, evidence and labels, which no memory program sees (spec 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prismem_core.errors import DataError
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.history import History


@dataclass(frozen=True)
class Task:
    """One question.

    `evidence` holds the texts of the cited turns. `metric` names the official metric: `f1`, `f1_multi`,
    `f1_first` (reference cut at the first `;`), `abstention` or `rubric`. `twin` is the id of the answerable task that must
    also be answered for an abstention to count (offline score), None where there is none.
    """

    id: str
    history_id: str
    question: str
    reference: str
    evidence: tuple[str, ...]
    native_type: str
    primary: Capability
    secondary: tuple[Capability, ...] = ()
    metric: str = "f1"
    rubric: tuple[str, ...] = ()
    twin: str | None = None

    @property
    def expects_abstention(self) -> bool:
        """Whether the right reply is that the dialogue does not say it."""
        return self.metric == "abstention"


@dataclass(frozen=True)
class Split:
    """Task ids of the three parts, in task-list order."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """Histories and tasks of one source.

    `repairs` counts what the loader had to mend, by kind; `digest` is the SHA-256 of the source files; `default_split` maps
    `train`, `valid` and `test` to history ids.
    """

    name: str
    histories: Mapping[str, History]
    tasks: tuple[Task, ...]
    digest: str
    default_split: Mapping[str, tuple[str, ...]]
    reply_words: int = 32
    repairs: Mapping[str, int] = field(default_factory=dict)

    def task(self, task_id: str) -> Task:
        """The task of that id; raises DataError for an unknown one."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise DataError(f"data set {self.name!r} has no task {task_id!r}")

    def split(self, parts: Mapping[str, Sequence[str]] | None = None) -> Split:
        """The tasks of each part; a part lists history ids and no history may stand in two parts (spec 13)."""
        parts = dict(self.default_split if parts is None else parts)
        seen: dict[str, str] = {}
        for part, ids in parts.items():
            if part not in ("train", "valid", "test"):
                raise DataError(f"unknown part {part!r} of the split; expected train, valid or test")
            for history_id in ids:
                if history_id not in self.histories:
                    raise DataError(
                        f"the split names history {history_id!r}, which data set {self.name!r} lacks; it has: "
                        + ", ".join(self.histories)
                    )
                if history_id in seen:
                    raise DataError(f"history {history_id!r} stands in both {seen[history_id]!r} and {part!r}")
                seen[history_id] = part
        chosen = {
            part: tuple(t.id for t in self.tasks if t.history_id in set(parts.get(part, ())))
            for part in ("train", "valid", "test")
        }
        return Split(**chosen)
