"""Normal forms, stems and blocks against the golden vectors and against cases with a known answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prismem_core.tasks.text import (
    STOP_WORDS,
    blocks,
    content_stems,
    dice,
    distinct_evidence,
    normal_form,
    stem,
    tokens,
)

Golden = Callable[[str], Any]


def test_normal_forms_of_the_vectors(golden: Golden) -> None:
    cases = golden("diagnostics")["normalise"]
    assert [normal_form(case["text"]) for case in cases] == [case["expect"] for case in cases]
    assert cases


def test_blocks_of_the_vectors(golden: Golden) -> None:
    cases = golden("diagnostics")["blocks"]
    assert [blocks(case["text"]) for case in cases] == [case["expect"] for case in cases]
    assert cases


def test_stems_of_the_vectors(golden: Golden) -> None:
    expected = golden("compression")["stems"]
    assert {word: stem(word) for word in expected} == expected
    assert expected


def test_dice_of_the_vectors(golden: Golden) -> None:
    cases = golden("compression")["dice"]
    assert [dice(case["a"], case["b"]) for case in cases] == pytest.approx(
        [case["expect"] for case in cases], abs=1e-12
    )
    assert cases


def test_the_stop_words_are_the_fixed_list() -> None:
    assert len(STOP_WORDS) == 117
    assert {"a", "about", "itself", "whom", "yours"} <= STOP_WORDS
    assert not {"never", "myself", "also"} & STOP_WORDS


def test_content_stems_keep_order_and_repeats() -> None:
    assert content_stems("The runner RAN; running, the 2nd run!") == ["runner", "ran", "run", "2nd", "run"]
    assert tokens("Don't stop-me") == ["don", "t", "stop", "me"]


def test_distinct_evidence_keeps_the_first_spelling() -> None:
    assert distinct_evidence(["A  cat", "", "a CAT", " \n", "a dog", "ａ cat"]) == ("A  cat", "a dog")
