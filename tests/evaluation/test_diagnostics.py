"""Diagnostics against the golden vectors and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prismem_core.evaluation.diagnostics import (
    EvidenceVectors,
    TaskVectors,
    diagnose_tasks,
    diagnostics_table,
    measure_lengths,
)
from prismem_core.evaluation.diagnostics_table import Lengths
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.text import distinct_evidence


def matrix(rows: list[list[float]], dimension: int) -> np.ndarray:
    return np.asarray(rows, np.float32).reshape(len(rows), dimension)


def vectors(task: dict[str, Any], dimension: int) -> TaskVectors:
    first = {}
    for piece in task["evidence"]:
        first.setdefault(piece["text"], piece)
    kept = [first[text] for text in distinct_evidence([piece["text"] for piece in task["evidence"]])]
    return TaskVectors(
        tuple(
            EvidenceVectors(
                np.asarray(piece["emb"], np.float32),
                matrix(piece["units"], dimension) if piece["mapped"] else None,
                matrix(piece["oracle"], dimension),
            )
            for piece in kept
        ),
        matrix(task["retrieved"], dimension),
    )


def close(found: float | None, expected: float | None) -> bool:
    return (found is None and expected is None) or found == pytest.approx(expected, abs=1e-6)


def test_vectors(golden: Callable[[str], Any]) -> None:
    data = golden("diagnostics")
    dimension = next(len(p["emb"]) for t in data["tasks"] for p in t["evidence"])
    tasks = [vectors(task, dimension) for task in data["tasks"]]
    found = diagnose_tasks(tasks, dimension)
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


def test_one_launch_equals_one_task_at_a_time() -> None:
    rng = np.random.default_rng(3)

    def some(n: int) -> np.ndarray:
        return rng.standard_normal((n, 8)).astype(np.float32)

    tasks = [
        TaskVectors(
            tuple(EvidenceVectors(some(1)[0], None if e % 3 == 2 else some(e), some(2 * e)) for e in range(n)), some(n)
        )
        for n in (0, 1, 4, 2)
    ]
    assert diagnose_tasks(tasks, 8) == [diagnose_tasks([task], 8)[0] for task in tasks]


def test_unmapped_snippets_are_left_out_of_extraction_only() -> None:
    unit = np.eye(2, dtype=np.float32)
    mapped = EvidenceVectors(unit[0], unit[:1], unit[1:])
    unmapped = EvidenceVectors(unit[1], None, unit[1:])
    (both,) = diagnose_tasks([TaskVectors((mapped, unmapped), unit)], 2)
    assert both is not None
    assert (both.d_ext, both.d_idx, both.d_ret) == (1.0, 0.5, 1.0)
    (alone,) = diagnose_tasks([TaskVectors((unmapped,), unit[:0])], 2)
    assert alone is not None
    assert (alone.d_ext, alone.d_idx, alone.d_ret) == (None, 1.0, 0.0)
    assert diagnose_tasks([TaskVectors((), unit)], 2) == [None]
