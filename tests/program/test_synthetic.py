"""What a candidate is tried with: sizes as the specification says, words that are each program's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from prismem_core.program import library
from prismem_core.program.interface import FieldSpec
from prismem_core.program.sandbox import MemoryWorker, Sandbox
from prismem_core.program.validation import validate
from prismem_core.program.validation.stub_backend import StubBackend
from prismem_core.program.validation.synthetic import SyntheticSessions

SOURCES = [f"program {number}\n" for number in range(60)]


def spec(name: str, kind: str) -> FieldSpec:
    return FieldSpec(
        name=name, type=kind, optional=True, has_default=False, default=None, description="", opaque_default=False
    )


KINDS = ("str", "int", "float", "bool", "list[str]", "str")
FIELDS = [spec(f"field_{place}", kind) for place, kind in enumerate(KINDS)]


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]{4,}|\d{3,}", text))


def seen_of(source: str) -> str:
    sessions = SyntheticSessions(source)
    units = [str(sessions.object(FIELDS, number)) for number in range(40)]
    return "\n".join([*units, *(sessions.raw_text(s, range(20 * s, 20 * s + 20)) for s in range(5))])


def test_the_same_source_meets_the_same_texts() -> None:
    assert seen_of("x = 1\n") == seen_of("x = 1\n")
    assert seen_of("x = 1\n") != seen_of("x = 2\n"), "the next version of a program meets others"
    assert seen_of("'\ud800'\n")


def test_no_word_tells_a_program_that_it_is_tried() -> None:
    """Whatever a program looks for, other versions of it do not meet."""
    found = [words(re.sub(r"field_\d|True|False", "", seen_of(source))) for source in SOURCES]
    assert set.intersection(*found) == set()
    frequent = {word for word in set.union(*found) if sum(word in own for own in found) > 0.8 * len(found)}
    assert frequent == set()
    sizes = [(s.smoke_dimension, s.smoke_turns) for s in map(SyntheticSessions, SOURCES)]
    assert len(set(sizes)) > 40
    assert 4096 not in {dimension for dimension, _ in sizes}


@pytest.mark.parametrize("source", SOURCES[:10])
def test_values_are_long_enough_and_differ(source: str) -> None:
    sessions = SyntheticSessions(source)
    assert len(set(sessions.queries)) == len(sessions.queries)
    texts: list[str] = []
    for number in range(2000):
        values = sessions.object(FIELDS, number)
        assert [type(value) for value in values.values()] == [str, int, float, bool, list, str]
        assert values["field_1"] < 2100, "a program may count up to a number it is given"
        texts += [values["field_0"], values["field_5"], *values["field_4"]]
    assert min(map(len, texts)) >= 20
    assert len(set(texts)) == len(texts)
    assert len({sessions.raw_text(session, range(20)) for session in range(100)}) == 100


def test_sizes_are_those_of_the_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    indexed: list[tuple[int, int]] = []
    retrieved: list[Mapping[str, Any]] = []
    real_index, real_retrieve, real_stub = MemoryWorker.index, MemoryWorker.retrieve, StubBackend.__init__
    dimensions: list[int] = []

    def index(self: MemoryWorker, units: Sequence[Mapping[str, Any]], raw_text: str) -> Any:
        indexed.append((len(units), raw_text.count("\n")))
        return real_index(self, units, raw_text)

    def retrieve(self: MemoryWorker, query: Mapping[str, Any], *a: Any, **k: Any) -> Any:
        retrieved.append(query)
        return real_retrieve(self, query, *a, **k)

    def stub(self: StubBackend, dimension: int, seconds: float) -> None:
        dimensions.append(dimension)
        real_stub(self, dimension, seconds)

    monkeypatch.setattr(MemoryWorker, "index", index)
    monkeypatch.setattr(MemoryWorker, "retrieve", retrieve)
    monkeypatch.setattr(StubBackend, "__init__", stub)
    source = library.source("seed")
    with Sandbox() as sandbox:
        assert validate(source, sandbox=sandbox).ok
    turns = SyntheticSessions(source).smoke_turns
    assert indexed == [(2, turns), (0, turns), *[(20, 20)] * 100]
    assert len(retrieved) == 5 and retrieved[0] == retrieved[2] != retrieved[1]
    assert dimensions == [SyntheticSessions(source).smoke_dimension, 4096]
