"""Diffs applied and made: every golden vector, and round trips of random edits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core.errors import ArgumentError, PatchError
from prismem_core.program.patch import apply_patch, make_patch


def outcome(source: str, diff: str) -> dict[str, Any]:
    try:
        return {"status": "ok", "hunk": None, "result": apply_patch(source, diff)}
    except PatchError as error:
        return {"status": error.code, "hunk": error.hunk, "result": None}


def test_golden(golden: Callable[[str], Any]) -> None:
    vectors = golden("patcher")
    assert vectors
    for vector in vectors:
        assert outcome(vector["source"], vector["diff"]) == vector["expect"], vector["name"]


LINES = st.lists(
    st.sampled_from(["", " ", "x = 1", "x = 1 ", "@@", "-a", "+b", "```", "\\ no", "    pass", "é\u2028\x0c"]),
    max_size=25,
)


@given(LINES, LINES)
@settings(max_examples=300, deadline=None)
def test_any_two_texts_round_trip(old: list[str], new: list[str]) -> None:
    before, after = ("".join(line + "\n" for line in lines) for lines in (old, new))
    diff = make_patch(before, after)
    if before == after:
        assert diff == ""
    else:
        assert apply_patch(before, diff) == after


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_small_edits_round_trip(data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from(["a", "b", "c", "    return y", ""]), min_size=1, max_size=60))
    edited = list(lines)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(edited)))
        removed = data.draw(st.integers(0, 3))
        edited[place : place + removed] = data.draw(st.lists(st.sampled_from(["a", "new", ""]), max_size=3))
    before, after = ("\n".join(part) + "\n" if part else "" for part in (lines, edited))
    diff = make_patch(before, after)
    assert (apply_patch(before, diff) if diff else before) == after


def test_hunks_stay_small_where_context_is_unique() -> None:
    lines = [f"line {number}" for number in range(200)]
    edited = list(lines)
    edited[20], edited[150] = "changed", "changed too"
    diff = make_patch("\n".join(lines) + "\n", "\n".join(edited) + "\n")
    assert diff.count("@@ -") == 2
    assert len(diff.splitlines()) == 14


def test_a_change_of_the_final_newline_is_refused() -> None:
    with pytest.raises(ArgumentError, match="final newline"):
        make_patch("a\n", "b")
    assert apply_patch("a", make_patch("a", "b\nc")) == "b\nc"


def test_messages_say_what_to_do() -> None:
    with pytest.raises(PatchError, match="occur 2 times in the source; add lines around them") as caught:
        apply_patch("a\nb\na\n", "@@\n-a\n+c\n")
    assert (caught.value.code, caught.value.hunk) == ("ambiguous_context", 0)
