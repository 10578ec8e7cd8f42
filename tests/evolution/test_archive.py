"""What the archive remembers of programs stays true when more is measured."""

from __future__ import annotations

import pytest

from prismem_core.evolution.archive import Archive
from prismem_core.runs.events import Evaluated, Event, ProgramAdded, RunStarted
from prismem_core.tasks.capability import Capability

F, T = Capability.FACTUAL_RETRIEVAL, Capability.TEMPORAL
TRAIN = [["a", "factual_retrieval", ["temporal"]], ["b", "factual_retrieval", []], ["c", "temporal", []]]


def events() -> list[Event]:
    return [
        RunStarted(0, "prismem", {}, "d", "s", TRAIN, [["v", "temporal", []]]),
        ProgramAdded(0, "n00", None, "x", "d", "", "", []),
        Evaluated(1, "n00", "target", {"a": 0.2, "b": 0.4}),
    ]


def test_means_follow_the_latest_scores() -> None:
    archive = Archive(events())
    assert archive.accuracy("n00") == {F: pytest.approx(0.3)}
    assert archive.mean("n00", ["a", "b"]) == pytest.approx(0.3)
    archive.apply(Evaluated(1, "n00", "full", {"a": 1.0, "b": 0.4, "c": 0.5, "v": 0.0}))
    assert archive.mean("n00", ["a", "b"]) == pytest.approx(0.7)
    assert archive.mean("n00", ("a",)) == 1.0
    assert archive.accuracy("n00") == {F: pytest.approx(0.7), T: 0.5}


def test_what_is_derived_from_labels_cannot_be_changed_by_a_reader() -> None:
    archive = Archive(events())
    primary, secondary = archive.labels()
    assert primary.tolist() == [0, 0, 1]
    assert secondary[:, 1].tolist() == [True, False, False]
    for array in (primary, secondary):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    archive.train_by_capability()["temporal"] = ()
    assert archive.train_by_capability()["temporal"] == ("c",)
