"""Compaction of texts and units against the golden vectors, by hand, and its guarantees on texts made at random."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismem_core.errors import ArgumentError
from prismem_core.evaluation.compaction import (
    MARK,
    Cues,
    Span,
    assemble,
    best_units,
    cosines,
    coverage,
    excerpt,
    relevance,
    select_units,
    spans_of,
)
from prismem_core.evaluation.compaction.assembly import Assembly
from prismem_core.tasks.text import dice, stem


def plain(spans: Sequence[Span]) -> list[dict[str, Any]]:
    return [{**asdict(span), "headers": list(span.headers)} for span in spans]


def of_spans(rows: Sequence[dict[str, Any]]) -> list[Span]:
    return [Span(**{**row, "headers": tuple(row["headers"])}) for row in rows]


def cues_of(vector: dict[str, Any]) -> tuple[Cues, list[list[float]]]:
    cues = Cues(vector["question"], vector["answer"], tuple(vector["evidence"]), vector["prediction"])
    own = vector["cue_embeddings"]
    predicted = [own["prediction"]] if vector["prediction"].strip() else []
    return cues, [own["qa"], *own["evidence"], *predicted]


def test_vectors_of_stems_and_dice(golden: Callable[[str], Any]) -> None:
    data = golden("compression")
    assert {word: stem(word) for word in data["stems"]} == data["stems"]
    for vector in data["dice"]:
        assert dice(vector["a"], vector["b"]) == pytest.approx(vector["expect"], abs=1e-9), vector


def test_vectors_of_spans(golden: Callable[[str], Any]) -> None:
    data = golden("compression")
    for vector in data["segment"]:
        assert plain(spans_of(vector["text"])) == vector["expect"], vector["text"]
    for vector in data["excerpts"]:
        assert plain(spans_of(vector["text"])) == vector["spans"], vector["name"]


def test_vectors_of_excerpts(golden: Callable[[str], Any]) -> None:
    for vector in golden("compression")["excerpts"]:
        spans = of_spans(vector["spans"])
        cues, rows = cues_of(vector)
        values = relevance([span.text for span in spans], vector["span_embeddings"], cues.texts, rows)
        found = excerpt(vector["text"], spans, values, cues.weights, vector["budget"])
        expected = vector["expect"]
        assert found.text == expected["excerpt"], vector["name"]
        assert (None if found.order is None else list(found.order)) == expected["order"], vector["name"]
        assert found.coverage == (
            None if expected["coverage"] is None else pytest.approx(expected["coverage"], abs=1e-6)
        )


def test_vectors_of_units(golden: Callable[[str], Any]) -> None:
    for vector in golden("compression")["units"]:
        cues, rows = cues_of(vector)
        units, embedded = vector["unit_texts"], vector["unit_embeddings"]
        values = relevance(units, embedded, cues.texts, rows)
        likeness = cosines(embedded, vector["cue_embeddings"]["evidence"])
        expected = vector["expect"]
        assert select_units(units, values, cues.weights, likeness, vector["budget"]) == expected["kept"]
        assert best_units(likeness) == expected["best_for_evidence"]


def texts_of(text: str) -> list[str]:
    return [span.text for span in spans_of(text)]


def test_headers_and_roles_to_the_letter() -> None:
    for header in (
        "[x]", f"[{'x' * 100}]", "[[x]", "  [x]\t", "SESSION:", "Date 2024", "time#", f"timestamp : {'x' * 99}",
        "======", "===x===", "====== a ====", "# T", f"###### {'x' * 100}", f"session 1{'x' * 100}",
    ):  # fmt: skip
        assert spans_of(header) == [], header
        assert [span.headers for span in spans_of(f"{header}\nbody")] == [(header,)], header
    for line in (
        "[]", f"[{'x' * 101}]", "[x] y", "[x]]", "dates: 1", "time flies", f"date:{'x' * 101}", "=====", "== x ===",
        "#T", "####### T", f"# {'x' * 101}", "2024-03-01",
    ):  # fmt: skip
        assert texts_of(line) == [line], line
    for line, role in {
        "user: x": "user: ", "  AI :x": "AI : ", "Human:\tx": "Human: ", "system:x": "system: ",
        "assistant:  x": "assistant: ",
    }.items():  # fmt: skip
        assert [(span.role, span.text) for span in spans_of(line)] == [(role, "x")], line
    for line in ("users: x", "the user: x", "user - x", "user"):
        assert [(span.role, span.text) for span in spans_of(line)] == [("", line)], line


def test_header_blocks_end_with_content() -> None:
    spans = spans_of("[a]\n\n \n[b]\nuser:\n[c]\nx\n\n[d]\n[e]\n")
    assert [(s.headers, s.record, s.role, s.text) for s in spans] == [
        (("[a]", "[b]"), 0, "user: ", ""),
        (("[c]",), 1, "", "x"),
    ]


def test_a_record_is_cut_only_when_it_is_long_or_has_a_fence() -> None:
    assert texts_of("user: " + "x" * 400) == ["x" * 400]
    assert texts_of(f"user: {'x' * 399}\n\ny") == ["x" * 399, "y"]
    assert texts_of(f"a\n\n{'b' * 397}") == [f"a\n\n{'b' * 397}"]
    sentences = ["x" * 200 + ".", "y" * 200 + "!?", "z" * 500]
    assert texts_of(" ".join(sentences)) == sentences
    assert texts_of(f"{sentences[0]}\n{sentences[2]}") == [sentences[0], sentences[2]]
    assert texts_of("one\n```\ntwo\n```\nthree\n\nfour. five.") == ["one", "```\ntwo\n```", "three", "four. five."]


def test_fences_open_and_close_to_the_letter() -> None:
    for text in (
        "```\na\n```", "   ~~~ python x\n[a]\nuser: a\n```\n  ~~~~  ", "````\n```\n~~~~\n````", "```\n\n\n```",
        "```\nunclosed\n``` not its end\n``", "```\r\na\r\n```\r",
    ):  # fmt: skip
        assert [(s.text, s.fence) for s in spans_of(text)] == [(text, True)], text
    assert [(s.text, s.fence) for s in spans_of("```\na\n\n\n")] == [("```\na", True)], "of outer newlines"
    assert [(s.text, s.fence) for s in spans_of("    ```\n``\nx```")] == [("```\n``\nx```", False)]
    assert texts_of("```\na\n```\n~~~\nb\n~~~") == ["```\na\n```", "~~~\nb\n~~~"]


def test_a_text_as_it_is_assembled() -> None:
    spans = spans_of("[a]\nuser: 1\nassistant: 2\n```\nx\n```\n3\n[b]\nuser:\n```\ny\n```\nlast")
    assert [span.text for span in spans] == ["1", "2", "```\nx\n```", "3", "```\ny\n```", "last"]
    assert assemble(spans, [0, 1, 2, 3, 4, 5]) == (
        "[a]\nuser: 1\nassistant: 2\n```\nx\n```\n3\n[b]\nuser:\n```\ny\n```\nlast"
    )
    assert assemble(spans, [2, 3, 5]) == (
        "(...)\n[a]\nassistant:\n```\nx\n```\n3\n(...)\n[b]\nuser: last"
    )  # fmt: skip
    assert assemble(spans, [1, 3]) == "(...)\n[a]\nassistant: 2\n(...)\nassistant: 3\n(...)"
    assert assemble(spans, []) == MARK
    assert assemble([], []) == ""


def test_where_nothing_fits_the_likest_piece_is_cut() -> None:
    text = f"user: {'a' * 500}\nassistant: {'b' * 500}\n```\n{'c' * 500}\n```"
    spans = spans_of(text)
    found = excerpt(text, spans, [[0.1], [0.4], [0.9]], [1.0], 40)
    assert (found.text, found.order, found.coverage) == (f"assistant: {'b' * 23}\n(...)", (), None)
    assert excerpt(text, spans, [[0.4], [0.4 + 1e-12], [0]], [1.0], 40).text.startswith("user: aaa"), "a tie"
    assert excerpt(text, spans, [[0.0]] * 3, [1.0], 1000).text == f"user: {'a' * 500}\n(...)", "none gains anything"
    assert excerpt("```\n" + "c" * 99, spans[2:], [[1.0]], [1.0], 50).text == MARK
    headers = "[a]\n" * 99
    assert excerpt(headers, spans_of(headers), np.zeros((0, 1)), [1.0], 50).text == MARK
    with pytest.raises(ArgumentError, match="budget: expected at least 6 characters, got 5"):
        excerpt(text, spans, [[0.1], [0.4], [0.9]], [1.0], 5)
    with pytest.raises(ArgumentError, match=r"relevance: expected shape \(3, 2\)"):
        excerpt(text, spans, [[0.1], [0.4], [0.9]], [1.0, 1.0], 50)


def test_a_span_may_take_less_room_than_the_mark_in_its_place() -> None:
    spans = [Span(text, (), 0, "", False) for text in ("aaaa", "b", "cccc", "d" * 99)]
    text = "\n".join(span.text for span in spans)
    found = excerpt(text, spans, [[0.9], [0.1], [0.8], [1.0]], [1.0], 21)
    assert (found.order, found.text) == ((0, 2, 1), "aaaa\nb\ncccc\n(...)")


def test_cues_and_their_weights() -> None:
    cues = Cues("q", "a", ("e", "f"), " \n")
    assert (cues.texts, cues.weights.tolist()) == (("q\na", "e", "f"), [1, 0.5, 0.5])
    cues = Cues("q", "a", (), "p")
    assert (cues.texts, cues.weights.tolist()) == (("q\na", "p"), [1, 0.5])


def test_relevance_by_hand() -> None:
    rows, cue_rows = [[3, 4], [0, 0], [-2, 0]], [[2, 0], [0, 0]]
    found = relevance(["cats running", "", "the"], rows, ["a cat ran", "of"], cue_rows)
    assert found.tolist() == [[0.75 * 0.6 + 0.25 * 0.5, 0], [0, 0], [0, 0]]
    assert cosines(rows, cue_rows).tolist() == [[0.6, 0], [0, 0], [-1, 0]]
    assert relevance([], np.zeros((0, 2)), ["x"], [[1, 0]]).shape == (0, 1)
    assert coverage([[0.5, 0.2], [0.5, 0.0]], [1, 2], [0, 1]) == pytest.approx(0.75 + 2 * 0.2)
    assert coverage([[0.5]], [1], []) == 0.0


def test_units_are_chosen_by_what_they_add() -> None:
    units = ["a" * 50, "b" * 50, "a" * 50, "c" * 10, "d" * 10]
    values = [[0.9], [0.5], [0.9], [0.1], [0.2]]
    likeness = [[0.1], [0.9], [0.9], [0.0], [0.0]]
    assert select_units(units, values, [1.0], likeness, 1000) == [0, 1, 3, 4], "a repeat is dropped"
    assert select_units(units, values, [1.0], likeness, 10) == [1], "the best is shown beyond the budget"
    assert select_units(units, values, [1.0], likeness, 61) == [1, 4]
    assert select_units(units, values, [1.0], likeness, 72) == [1, 3, 4]
    assert select_units(units, values, [1.0], np.zeros((5, 0)), 61) == [0, 4], "without evidence none is certain"
    assert select_units(units, np.zeros((5, 1)), [1.0], likeness, 1000) == [1], "none of the others adds anything"
    assert select_units([], np.zeros((0, 1)), [1.0], np.zeros((0, 3)), 100) == []


SENTENCE_END = re.compile(r"[.!?]\s|\n")
LINES = st.one_of(
    st.sampled_from([
        "", " ", "user: yes", "Assistant:", "AI : x", "[Session 1]", "=== x ===", "# Title", "Date: 2024", "```",
        "~~~~",
        "  ```py", "````", "~~~", "(x)", "One. Two! Three?", "w" * 90, "word. " * 90, "longer words here, " * 30,
        "user: " + "so it was. " * 50, "\r", "\u2003", "é" * 50,
    ]),
    st.text("ab .:#=`~[]\r\t", max_size=30),
)  # fmt: skip


@st.composite
def compacted(draw: st.DrawFn) -> tuple[str, list[Span], np.ndarray, np.ndarray, int]:
    text = "\n".join(draw(st.lists(LINES, max_size=40)))
    spans = spans_of(text)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cues = draw(st.integers(1, 4))
    # Few values make ties, zeros among them.
    values = rng.choice([0.0, 0.1, 0.25, 0.5, 0.9, 1.0], (len(spans), cues))
    return text, spans, values, rng.choice([0.5, 1.0], cues), draw(st.integers(6, 1500))


@settings(max_examples=400, deadline=None)
@given(compacted())
def test_guarantees_of_an_excerpt(made: tuple[str, list[Span], np.ndarray, np.ndarray, int]) -> None:
    text, spans, values, weights, budget = made
    found = excerpt(text, spans, values, weights, budget)
    assert found == excerpt(text, spans_of(text), values.copy(), weights.copy(), budget)
    if len(text) <= budget:
        assert (found.text, found.order) == (text, None)
        return
    assert len(found.text) <= budget
    assert found.order is not None
    kept = sorted(found.order)
    if not kept:
        assert found.text == MARK or found.text.endswith(f"\n{MARK}")
        return
    assert found.text == assemble(spans, kept)
    for i in kept:
        assert spans[i].text in found.text
    gaps = sum(b > a + 1 for a, b in itertools.pairwise([-1, *kept, len(spans)]))
    assert found.text.split("\n").count(MARK) == gaps
    assert order_by_hand(spans, values, weights, budget) == list(found.order)
    fences = {span.text for span in spans if span.fence}
    assert {span.text for span in spans_of(found.text) if span.fence} <= fences


def order_by_hand(spans: list[Span], values: np.ndarray, weights: np.ndarray, budget: int) -> list[int]:
    """The greedy choice as the rule is written, every text assembled anew."""
    order: list[int] = []
    while True:
        best, gained = None, 0.0
        for j in range(len(spans)):
            if j in order or len(assemble(spans, sorted([*order, j]))) > budget:
                continue
            gain = sum(
                float(w) * float(values[j, k]) * float(np.prod([1 - values[i, k] for i in order]))
                for k, w in enumerate(weights)
            )
            if round(gain, 9) > gained:
                best, gained = j, round(gain, 9)
        if best is None:
            return order
        order.append(best)


@settings(max_examples=200, deadline=None)
@given(compacted(), st.randoms(use_true_random=False))
def test_lengths_are_those_of_the_assembled_text(
    made: tuple[str, list[Span], np.ndarray, np.ndarray, int], rng: Any
) -> None:
    spans = made[1]
    assembly, chosen = Assembly(spans), list[int]()
    order = list(range(len(spans)))
    rng.shuffle(order)
    for position in order:
        assert assembly.length_with(position) == len(assemble(spans, sorted([*chosen, position])))
        if rng.random() < 0.5:
            assembly.add(position)
            chosen.append(position)


@settings(max_examples=200, deadline=None)
@given(st.lists(LINES, max_size=40))
def test_all_spans_together_are_the_text(lines: list[str]) -> None:
    # Headers are shown once for all that stands under them, and not at all where nothing does.
    lines = [line for line in lines if spans_of(line) or not line.strip()]
    spans = spans_of("\n".join(lines))
    whole = assemble(spans, range(len(spans)))
    assert MARK not in whole
    assert "".join(whole.split()) == "".join("".join(lines).split())
    assert [span.record for span in spans] == sorted(span.record for span in spans)
    assert all(len(span.text) <= 400 or span.fence or not SENTENCE_END.search(span.text) for span in spans)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "bb" * 20, "c" * 100, "d" * 31, "e" * 7]), max_size=9),
    st.integers(0, 3),
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
)
def test_guarantees_of_units(units: list[str], snippets: int, budget: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    by_text = {unit: (rng.choice([0.0, 0.3, 0.9], 2), rng.choice([-0.5, 0.0, 0.5], snippets)) for unit in units}
    values = np.array([by_text[unit][0] for unit in units]).reshape(len(units), 2)
    likeness = np.array([by_text[unit][1] for unit in units]).reshape(len(units), snippets)
    kept = select_units(units, values, [1.0, 0.5], likeness, budget)
    assert kept == sorted({units.index(units[i]) for i in kept}), "in order, first spellings, no repeats"
    best = {int(np.argmax(likeness[:, k])) for k in range(snippets)} if units else set()
    assert best <= set(kept)
    size = sum(len(units[i]) for i in kept) + len(kept) - 1
    assert size <= budget or set(kept) == best
    for i in {units.index(unit) for unit in units} - set(kept):
        missing = np.prod([1 - values[j] for j in kept], axis=0) if kept else np.ones(2)
        assert size + 1 + len(units[i]) > budget or round(float((values[i] * [1, 0.5] * missing).sum()), 9) <= 0
