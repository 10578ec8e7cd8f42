"""Diagnostics against the golden vectors and by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from prismem_core.evaluation.diagnostics import (
    EvidenceRows,
    TaskRows,
    diagnose_tasks,
    diagnostics_table,
    measure_lengths,
)
from prismem_core.evaluation.diagnostics_table import Lengths
from prismem_core.ops.screened import Screen
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.text import distinct_evidence


class Rows:
    """Rows of one matrix, handed out as they are added."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []

    def add(self, rows: Iterable[Any]) -> tuple[int, ...]:
        first = len(self.rows)
        self.rows += [np.asarray(row, np.float32) for row in rows]
        return tuple(range(first, len(self.rows)))

    @property
    def matrix(self) -> np.ndarray:
        return np.stack(self.rows)


def task_rows(rows: Rows, task: dict[str, Any]) -> TaskRows:
    first = {}
    for piece in task["evidence"]:
        first.setdefault(piece["text"], piece)
    kept = [first[text] for text in distinct_evidence([piece["text"] for piece in task["evidence"]])]
    return TaskRows(
        tuple(
            EvidenceRows(
                rows.add([piece["emb"]])[0],
                rows.add(piece["units"]) if piece["mapped"] else None,
                rows.add(piece["oracle"]),
            )
            for piece in kept
        ),
        rows.add(task["retrieved"]),
    )


def close(found: float | None, expected: float | None) -> bool:
    return (found is None and expected is None) or found == pytest.approx(expected, abs=1e-6)


def test_vectors(golden: Callable[[str], Any]) -> None:
    data = golden("diagnostics")
    rows = Rows()
    tasks = [task_rows(rows, task) for task in data["tasks"]]
    found = diagnose_tasks(tasks, rows.matrix)
    assert len(found) == len(data["expect_tasks"])
    for task, own, vector in zip(data["tasks"], found, tasks, strict=True):
        expected = data["expect_tasks"][task["id"]]
        assert len(vector.evidence) == expected["n_evidence"], task["id"]
        for name in ("d_ext", "d_idx", "d_ret"):
            assert close(None if own is None else getattr(own, name), expected[name]), (task["id"], name)
    table = diagnostics_table(
        [Capability(t["primary"]) for t in data["tasks"]], [t["score"] for t in data["tasks"]], found, Lengths(0, 0)
    )
    for capability in Capability:
        expected = data["expect_table"].get(str(capability))
        row = table.rows.get(capability)
        if row is None:
            assert expected is None or expected["n_tasks"] == 0
            continue
        assert row.n_tasks == expected["n_tasks"]
        assert row.accuracy == pytest.approx(expected["acc"], abs=1e-9)
        for name in ("d_ext", "d_idx", "d_ret"):
            assert close(getattr(row, name), expected[name]), (capability, name)


def test_length_vectors(golden: Callable[[str], Any]) -> None:
    checked = 0
    for case in golden("diagnostics")["lengths"]:
        units = [unit for history in case["histories"].values() for unit in history]
        found = measure_lengths(units, case["retrieved"])
        assert found.chars_per_unit == pytest.approx(case["expect"]["chars_per_unit"], abs=1e-9)
        assert found.retrieved_chars == pytest.approx(case["expect"]["retrieved_chars"], abs=1e-9)
        checked += 1
    assert checked


def some_tasks(sizes: tuple[int, ...] = (0, 1, 4, 2)) -> tuple[list[TaskRows], np.ndarray]:
    rng = np.random.default_rng(3)
    rows = Rows()

    def some(n: int) -> tuple[int, ...]:
        return rows.add(rng.standard_normal((n, 8)))

    tasks = [
        TaskRows(
            tuple(EvidenceRows(some(1)[0], None if e % 3 == 2 else some(e), some(2 * e)) for e in range(n)), some(n)
        )
        for n in sizes
    ]
    return tasks, rows.matrix


def test_one_launch_equals_one_task_at_a_time() -> None:
    tasks, matrix = some_tasks()
    together = diagnose_tasks(tasks, matrix)
    assert together == [diagnose_tasks([task], matrix)[0] for task in tasks]
    assert together[0] is None and together[2] is not None


def test_everything_goes_out_in_one_launch_that_shares_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[tuple[int, int, int]] = []
    search = Screen.segment_max_similarity

    def counted(self: Screen, evidence: Any, items: Any, segments: Any = None) -> Any:
        launches.append((len(evidence), len(items), len(segments.ranges)))
        return search(self, evidence, items, segments)

    monkeypatch.setattr(Screen, "segment_max_similarity", counted)
    matrix = np.random.default_rng(5).standard_normal((10, 4)).astype(np.float32)
    # Two snippets of one segment, and two tasks that retrieve the same.
    pieces = EvidenceRows(0, (2, 3), (4,)), EvidenceRows(1, (2, 3), (5, 6))
    tasks = [TaskRows(pieces, (7, 8, 9)), TaskRows(pieces[:1], (7, 8, 9))]
    found = diagnose_tasks(tasks, matrix)
    assert launches == [(9, 2 + 1 + 2 + 3, 4)]
    launches.clear()
    assert diagnose_tasks(tasks, matrix, launch_bytes=16) == found
    assert len(launches) == 2, "a launch that would take too much memory is cut between tasks"


def test_unmapped_snippets_are_left_out_of_extraction_only() -> None:
    unit = np.eye(2, dtype=np.float32)
    mapped, unmapped = EvidenceRows(0, (0,), (1,)), EvidenceRows(1, None, (1,))
    (both,) = diagnose_tasks([TaskRows((mapped, unmapped), (0, 1))], unit)
    assert both is not None
    assert (both.d_ext, both.d_idx, both.d_ret) == (1.0, 0.5, 1.0)
    (alone,) = diagnose_tasks([TaskRows((unmapped,), ())], unit)
    assert alone is not None
    assert (alone.d_ext, alone.d_idx, alone.d_ret) == (None, 1.0, 0.0)
    assert diagnose_tasks([TaskRows((), (0, 1))], unit) == [None]
