from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prismem_core.errors import ProgramError
from prismem_core.pipeline.segment import segment
from prismem_core.tasks.history import History, Session, Turn


def history(*sessions: list[str]) -> History:
    return History(
        "h",
        tuple(
            Session(
                str(i + 1), f"{i + 1} May 2023", tuple(Turn(f"D{i + 1}:{j + 1}", "Ann", t) for j, t in enumerate(texts))
            )
            for i, texts in enumerate(sessions)
        ),
    )


def test_a_short_session_is_one_segment_and_equals_its_raw_text() -> None:
    (group,) = segment(history(["hello", "how are you"]))
    assert group.raw_text == "[Session 1: 1 May 2023]\nAnn: hello\nAnn: how are you"
    assert [s.text for s in group.segments] == [group.raw_text]
    assert group.segments[0].turn_ids == ("D1:1", "D1:2")


def test_segments_hold_whole_turns_and_stay_within_the_limit() -> None:
    texts = ["a" * 50, "b" * 50, "c" * 200, "d"]
    (group,) = segment(history(texts), segment_chars=100)
    bodies = [s.text.split("\n")[1:] for s in group.segments]
    assert bodies == [["Ann: " + "a" * 50], ["Ann: " + "b" * 50], ["Ann: " + "c" * 200], ["Ann: d"]]
    assert all(s.text.startswith("[Session 1: 1 May 2023]\n") for s in group.segments)
    assert [len(s.text) <= 100 for s in group.segments] == [True, True, False, True]


def test_the_limit_itself_still_fits() -> None:
    header = len("[Session 1: 1 May 2023]")
    (group,) = segment(history(["x" * 10, "y" * 10]), segment_chars=header + 2 * (1 + len("Ann: ") + 10))
    assert len(group.segments) == 1


def test_a_session_without_turns_is_indexed_without_segments() -> None:
    groups = segment(history([], ["hello"]))
    assert [len(g.segments) for g in groups] == [0, 1]
    assert groups[0].raw_text == "[Session 1: 1 May 2023]"


def test_windows_follow_the_vectors(golden: Callable[[str], Any]) -> None:
    checked = 0
    for case in golden("trimem")["windows"]:
        groups = segment(history(["x"] * case["T"]), f"window:{case['l']}:{case['s']}")
        numbers = [[int(i.split(":")[1]) for i in g.segments[0].turn_ids] for g in groups]
        spans = [[n[0] - 1, n[-1]] for n in numbers]
        assert spans == case["expect"]
        checked += 1
    assert checked


@pytest.mark.parametrize("value", ["window", "window:0:1", "window:3:4", "turn", "window:10:x"])
def test_other_segmentations_are_refused(value: str) -> None:
    with pytest.raises(ProgramError, match="expected 'session' or 'window:LENGTH:STRIDE'"):
        segment(history(["hello"]), value)
