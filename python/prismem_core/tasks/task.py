"""A question about a history with its reference answer, evidence and labels, which no memory program sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from prismem_core.errors import DataError
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.history import History
from prismem_core.tasks.irregularity import Irregularity


@dataclass(frozen=True)
class Task:
    """One question.

    `evidence` holds the texts of the cited turns, `evidence_ids` the turns' ids. `metric` names the official metric:
    `f1`, `f1_multi`, `f1_first` (reference cut at the first `;`), `abstention` or `rubric`. `twin` is the id of the
    answerable task that must also be answered for an abstention to count (offline score), None where there is none.
    `labelled` says that the source itself gave `secondary`, so that no rule guesses it. `benchmark` names the rules by
    which a model judges the answer (`locomo`, `longmemeval`, `beam`, `perltqa`; "" for the general ones). `asked_at` is
    when the question is put, in the words of the source; it is shown to a program with the question.
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
    evidence_ids: tuple[str, ...] = ()
    labelled: bool = False
    benchmark: str = ""
    asked_at: str = ""

    @property
    def asked(self) -> str:
        """The question as a memory program gets it."""
        return f"{self.question} (asked on {self.asked_at})" if self.asked_at else self.question

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

    `irregularities` are the records that were not of their form, `repairs` counts what was mended, by kind; `digest` is
    the SHA-256 of the source files; `default_split` maps `train`, `valid` and `test` to history ids and is empty where
    the source is too small to be split. `notes` are for the header of a result: what was excluded or corrected by the
    user's lists, the pinned revision of a known file.
    """

    name: str
    histories: Mapping[str, History]
    tasks: tuple[Task, ...]
    digest: str
    default_split: Mapping[str, tuple[str, ...]]
    reply_words: int = 32
    repairs: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    irregularities: tuple[Irregularity, ...] = ()

    @cached_property
    def _tasks_by_id(self) -> Mapping[str, Task]:
        return {task.id: task for task in self.tasks}

    def task(self, task_id: str) -> Task:
        """The task of that id; raises DataError for an unknown one."""
        try:
            return self._tasks_by_id[task_id]
        except KeyError:
            raise DataError(f"data set {self.name!r} has no task {task_id!r}") from None

    def split(self, parts: Mapping[str, Sequence[str]] | None = None) -> Split:
        """The tasks of each part; a part lists history ids and no history may stand in two parts.

        A history that the user's own list took out may still be named: a split does not depend on what is left out.
        """
        if parts is None and not self.default_split:
            raise DataError(
                f"data set {self.name!r} has only {len(self.histories)} conversation, and no conversation may stand in "
                "two parts: at least 2 are needed for train and valid, 3 for a test part as well"
            )
        parts = dict(self.default_split if parts is None else parts)
        left_out = set(self.notes.get("excluded", {}).get("conversations", ()))
        seen: dict[str, str] = {}
        for part, ids in parts.items():
            if part not in ("train", "valid", "test"):
                raise DataError(f"unknown part {part!r} of the split; expected train, valid or test")
            for history_id in ids:
                if history_id in left_out:
                    continue
                if history_id not in self.histories:
                    has = ", ".join([*islice(self.histories, 20), *(["..."] if len(self.histories) > 20 else [])])
                    raise DataError(
                        f"the split names history {history_id!r}, which data set {self.name!r} lacks; it has: {has}"
                    )
                if history_id in seen:
                    raise DataError(f"history {history_id!r} stands in both {seen[history_id]!r} and {part!r}")
                seen[history_id] = part
        chosen: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
        for task in self.tasks:
            if task.history_id in seen:
                chosen[seen[task.history_id]].append(task.id)
        return Split(**{part: tuple(ids) for part, ids in chosen.items()})
