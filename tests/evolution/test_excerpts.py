"""How much of everything a prompt shows, and the plain cut of short texts."""

from __future__ import annotations

import itertools
import random

from prismem_core.evolution.excerpts import EXTENTS, Extent, beginning, fitted

LONG = "\n".join(f"line {i}" for i in range(100))


def test_a_text_within_the_budget_is_unchanged() -> None:
    for text in ("", "x", LONG):
        assert beginning(text, len(text)) == text


def test_the_first_whole_lines_are_shown() -> None:
    assert beginning(LONG, 26) == "line 0\nline 1\nline 2\n(...)"
    assert beginning(LONG, 32) == "line 0\nline 1\nline 2\n(...)"
    assert beginning(LONG, 33) == "line 0\nline 1\nline 2\nline 3\n(...)"
    assert beginning("a" * 500, 50) == "a" * 44 + "\n(...)"
    assert beginning("\n" + "a" * 500, 50) == "\n" + "a" * 43 + "\n(...)"


def test_no_beginning_is_longer_than_its_budget_and_each_begins_the_text() -> None:
    rng = random.Random(5)
    for _ in range(500):
        text = "\n".join("w" * rng.choice((0, 1, 5, 40, 300)) + str(i) for i in range(rng.randint(1, 40)))
        budget = rng.randint(20, 400)
        shown = beginning(text, budget)
        assert len(shown) <= budget
        assert text.startswith(shown.removesuffix("\n(...)"))


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
