"""What is shown of long texts: whole lines, around the evidence, never more than the budget."""

from __future__ import annotations

import itertools
import random

from prismem_core.evolution.excerpts import EXTENTS, Extent, excerpt, fitted, units_within

LONG = "\n".join(f"line {i}" for i in range(100))


def test_a_text_within_the_budget_is_unchanged() -> None:
    for text in ("", "x", LONG):
        assert excerpt(text, len(text), ["x"]) == text


def test_without_a_focus_the_first_whole_lines_are_shown() -> None:
    assert excerpt(LONG, 34) == "line 0\nline 1\nline 2\n(...)"
    assert excerpt(LONG, 34, ["not there", ""]) == "line 0\nline 1\nline 2\n(...)"


def test_lines_around_the_first_focus_that_stands_there() -> None:
    assert excerpt(LONG, 40, ["nowhere", "line 50"]) == "(...)\nline 49\nline 50\nline 51\n(...)"
    assert excerpt(LONG, 40, ["line 99"]) == "(...)\nline 97\nline 98\nline 99"
    assert excerpt(LONG, 40, ["line 0\nline 1"]) == "line 0\nline 1\nline 2\nline 3\n(...)"


def test_a_line_beyond_the_budget_is_cut_around_the_focus() -> None:
    line = "a" * 500 + "HERE" + "b" * 500
    assert excerpt(line, 50, ["HERE"]) == "(...)\nHERE" + "b" * 34 + "\n(...)"
    assert excerpt(f"x\n{line}\ny", 50) == "x\n(...)"
    assert excerpt(line, 50) == "a" * 38 + "\n(...)"
    assert excerpt("a" * 500 + "END", 50, ["END"]) == "(...)\n" + "a" * 35 + "END"


def test_no_excerpt_is_longer_than_its_budget_and_each_is_a_piece_of_the_text() -> None:
    rng = random.Random(5)
    for _ in range(500):
        text = "\n".join("w" * rng.choice((0, 1, 5, 40, 300)) + str(i) for i in range(rng.randint(1, 40)))
        focus = text[(at := rng.randrange(len(text))) : at + 9]
        budget = rng.randint(20, 400)
        shown = excerpt(text, budget, [focus])
        assert len(shown) <= budget
        assert shown.removeprefix("(...)\n").removesuffix("\n(...)") in text


def test_units_likest_to_the_evidence_are_kept_in_their_order() -> None:
    units = ["Ann paints a lake.", "Bob runs.", "Ann paints a lake.", "A lake in winter is what Ann painted."]
    assert units_within(units, 1000, "painted a lake") == [units[0], units[1], units[3]]
    assert units_within(units, 30, "Bob runs") == ["Ann paints a lake.", "Bob runs."]
    assert units_within(units, 5, "painted a lake in winter") == [units[3]], "one is always shown"
    assert units_within([], 0, "x") == []


def test_a_prompt_takes_the_richest_extent_that_fits() -> None:
    def render(extent: Extent) -> tuple[str, str]:
        return "system", "x" * extent.excerpt

    assert fitted(render, 2406) == ("system", "x" * 2400)
    assert fitted(render, 2405) == ("system", "x" * 1200)
    assert fitted(render, 206) == fitted(render, 1) == ("system", "x" * 200)


def test_extents_only_ever_show_less() -> None:
    def bounds(extent: Extent) -> list[float]:
        return [float("inf") if v is None else float(v) for v in vars(extent).values()]

    for richer, poorer in itertools.pairwise(EXTENTS):
        assert all(a >= b for a, b in zip(bounds(richer), bounds(poorer), strict=True))
        assert richer != poorer
