"""The programs that come with the package keep the contract, and their parts do what they claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError
from prismem_core.program import library
from prismem_core.program.collections.query import CollectionQuery, Hits
from prismem_core.program.collections.store import CollectionStore, Scope
from prismem_core.program.components import code_digest
from prismem_core.program.interface import OUT_CHAR_BUDGET
from prismem_core.program.sandbox import CollectionBackend, CollectionLimits, MemoryWorker, Sandbox
from prismem_core.program.validation import gate, validate
from prismem_core.program.validation.stub_backend import StubBackend


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.mark.parametrize("name", library.names())
def test_every_program_passes_both_checks(name: str, sandbox: Sandbox) -> None:
    offered = library.interface(name)
    report = gate(library.source(name), offered)
    assert (report.outcome, report.warnings) == ("pass", ())
    assert validate(library.source(name), sandbox=sandbox, interface=offered).code == "ok"


def test_the_seed_is_that_of_the_specification(golden: Callable[[str], Any]) -> None:
    seeds = [vector["source"] for vector in golden("validation") if vector["name"] == "seed"]
    if not seeds:
        pytest.skip("these vectors have no program named seed")
    assert seeds == [library.source("seed")]


def test_names() -> None:
    assert library.source("bm25-rag") == library.source("bm25_rag")
    with pytest.raises(ArgumentError, match="it has seed, naive_rag"):
        library.source("../seed")


def opened(sandbox: Sandbox, name: str, backend: CollectionBackend) -> MemoryWorker:
    collections = CollectionLimits() if library.interface(name) == "engine" else None
    return sandbox.open(library.source(name), backend, None, collections)


def turns(count: int) -> list[dict[str, str]]:
    return [{"memory_text": f"Anna: number {number} " + "word " * (number % 40)} for number in range(count)]


@pytest.mark.parametrize("name", library.names())
def test_whole_lines_fill_the_budget(name: str, sandbox: Sandbox) -> None:
    raw = "\n".join(unit["memory_text"].strip() for unit in turns(600))
    with opened(sandbox, name, StubBackend(32, 60.0)) as worker:
        worker.index(turns(600), raw)
        text, _ = worker.retrieve({"query_text": "Which number did Anna name?"})
    assert OUT_CHAR_BUDGET - 300 < len(text) <= OUT_CHAR_BUDGET
    known = set(raw.split("\n"))
    cut = {"seed"}
    assert name in cut or {line.strip() for line in text.split("\n")} <= known


@pytest.mark.parametrize("name", [name for name in library.names() if name != "seed"])
def test_nothing_indexed_gives_nothing(name: str, sandbox: Sandbox) -> None:
    with opened(sandbox, name, StubBackend(32, 60.0)) as worker:
        worker.index([], "")
        assert worker.retrieve({"query_text": "Who?"})[0] == ""


class Topics:
    """Embeds a text by the topics it names."""

    def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
        raise AssertionError("no library program asks a model")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.array([[text.count(topic) for topic in ("cat", "sea", "bread")] for text in texts], dtype=np.float32)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(lengths == 0, 1, lengths)


class HeldTopics(Topics):
    """The same, with collections."""

    identity, dimension = "topics", 3

    def __init__(self) -> None:
        self.store, self.scope = CollectionStore(self), Scope()

    def add_texts(self, handle: str, texts: list[str]) -> str:
        return self.store.add(self.scope, handle, texts)

    def find(self, query: CollectionQuery) -> list[Hits]:
        return self.store.find([query])[0][0]


@pytest.mark.parametrize("name", ["naive_rag", "bm25_rag", "collection_rag"])
def test_the_line_that_fits_comes_first(name: str, sandbox: Sandbox) -> None:
    units = [{"memory_text": text} for text in ("Bo: the sea is cold", "Bo: a cat\nsleeps", "Bo: bread is baked")]
    with opened(sandbox, name, HeldTopics()) as worker:
        worker.index(units[:2], "")
        worker.index(units[2:], "")
        assert worker.retrieve({"query_text": "Where is the cat?"})[0].split("\n")[0] == "Bo: a cat sleeps"
        assert worker.retrieve({"query_text": "Who baked the bread?"})[0].split("\n")[0] == "Bo: bread is baked"


@pytest.mark.parametrize("name", ["naive_rag_dates", "bm25_rag_dates"])
def test_dates_stand_before_the_line(name: str, sandbox: Sandbox) -> None:
    units = [
        {"memory_text": "Bo: a cat sleeps", "session_date": "8 May 2023"},
        {"memory_text": "Bo: a cat eats", "session_date": ""},
    ]
    with sandbox.open(library.source(name), Topics()) as worker:
        worker.index(units, "")
        text, _ = worker.retrieve({"query_text": "When does the cat sleep?"})
    assert text.split("\n") == ["[8 May 2023] Bo: a cat sleeps", "Bo: a cat eats"]


def module_of(source: str) -> ModuleType:
    """The program's own functions, to compare its stemmer with the one it copies; the sources are the package's own."""
    module = ModuleType("library_program")
    module.__dict__["OUT_CHAR_BUDGET"] = OUT_CHAR_BUDGET
    exec(compile(source.replace("@dataclass\n", ""), "<library>", "exec"), module.__dict__)
    return module


def test_the_stemmer_is_nltks(golden: Callable[[str], Any]) -> None:
    stemmer = pytest.importorskip("nltk.stem.porter").PorterStemmer()
    stem = module_of(library.source("bm25_rag")).stem
    words = set(golden("compression")["stems"])
    bases = ("hop", "fl", "agr", "relat", "geo", "control", "yy", "sk", "hors", "7", "")
    endings = ("s", "es", "ies", "ied", "ed", "eed", "ing", "y", "ly", "ally", "fully", "logy", "ation", "ational")
    endings += ("izer", "ness", "fulness", "ement", "ion", "ive", "e", "le", "ll", "ting", "")
    words |= {base + ending for base in bases for ending in endings}
    assert {word: stem(word) for word in words} == {word: stemmer.stem(word) for word in words}


def test_bm25_ranks_by_the_formula(sandbox: Sandbox) -> None:
    texts = ["apples apples pears", "apples", "plums and pears and figs", "nothing here at all"]
    with sandbox.open(library.source("bm25_rag"), Topics()) as worker:
        worker.index([{"memory_text": text} for text in texts], "")
        found, _ = worker.retrieve({"query_text": "apples or pears"})
    assert found.split("\n") == ranked(texts, ["apples", "pears"])


def ranked(texts: list[str], terms: list[str]) -> list[str]:
    stop = {"and", "here", "at", "all"}
    bags = [[word for word in text.split() if word not in stop] for text in texts]
    mean = sum(map(len, bags)) / len(bags)
    scores: Mapping[int, float] = {
        row: sum(
            np.log(1 + (len(bags) - n + 0.5) / (n + 0.5))
            * bag.count(term)
            * 2.2
            / (bag.count(term) + 1.2 * (0.25 + 0.75 * len(bag) / mean))
            for term in terms
            if (n := sum(term in other for other in bags))
        )
        for row, bag in enumerate(bags)
    }
    return [texts[row] for row in sorted(scores, key=lambda row: (-scores[row], row)) if scores[row] > 0]


def test_a_change_to_how_lines_are_chosen_keeps_the_index() -> None:
    for name, old, new in (("bm25_rag", "K1 = 1.2", "K1 = 1.5"), ("naive_rag", "room < 20", "room < 30")):
        before = library.source(name)
        after = before.replace(old, new)
        assert after != before
        index, retrieve = ["Memory.__init__", "Memory.index", "MemoryUnit"], ["Memory.retrieve", "Query"]
        assert code_digest(after, index) == code_digest(before, index)
        assert code_digest(after, retrieve) != code_digest(before, retrieve)
