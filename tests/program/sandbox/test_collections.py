"""Collections as a program sees them: what the calls give, what is refused, and that no other collection is reached."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prismem_core.errors import ArgumentError, CandidateError, LimitError
from prismem_core.program.sandbox import CollectionLimits, Limits, MemoryWorker, Sandbox
from prismem_core.program.validation.stub_backend import StubBackend

Build = Callable[..., str]
Open = Callable[..., MemoryWorker]

INDEX = "self.texts.extend(u.memory_text for u in units)\nself.c.add([u.memory_text for u in units])"
UNITS = [{"memory_text": f"number {number}"} for number in range(12)]


@pytest.fixture
def build(program: Build) -> Build:
    def make(retrieve: str = "return ''", index: str = INDEX) -> str:
        start = "self.texts = []\n        self.c = backend.collection()"
        source = program(index=index, retrieve=retrieve, imports="import json\nimport numpy as np")
        return source.replace("self.texts = []", start)

    return make


@pytest.fixture
def opened(sandbox: Sandbox, build: Build) -> Iterator[Open]:
    workers: list[MemoryWorker] = []

    def start(
        retrieve: str = "return ''", index: str = INDEX, limits: CollectionLimits | None = None, box: Sandbox = sandbox
    ) -> MemoryWorker:
        workers.append(box.open(build(retrieve, index), StubBackend(16, 60.0), None, limits or CollectionLimits()))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def told(worker: MemoryWorker, query: str = "number 3") -> Any:
    return json.loads(worker.retrieve({"query_text": query})[0])


def test_results_are_plain_pairs_best_first(opened: Open) -> None:
    worker = opened(
        "hits = self.c.search(query.query_text, 3)\n"
        "assert type(hits) is list and type(hits[0]) is tuple\n"
        "assert (type(hits[0][0]), type(hits[0][1])) == (int, float)\n"
        "return json.dumps([len(self.c), hits])"
    )
    worker.index(UNITS[:5], "")
    worker.index(UNITS[5:], "")
    size, hits = told(worker)
    assert size == 12
    assert hits[0] == [3, pytest.approx(1.0)]
    assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)


def test_positions_come_from_add_and_a_list_of_texts_gives_a_list_of_lists(opened: Open) -> None:
    worker = opened(
        "a, b = self.c.search(['number 1', 'number 7'], np.int64(2))\n"
        "return json.dumps([self.where, a == self.c.search('number 1', 2), b[0][0], self.c.search([], 2)])",
        index="self.where = self.c.add([u.memory_text for u in units])",
    )
    worker.index(UNITS[:5], "")
    worker.index(UNITS[5:], "")
    assert told(worker) == [[5, 6, 7, 8, 9, 10, 11], True, 7, []]


def test_k_of_zero_beyond_the_size_and_an_empty_collection(opened: Open) -> None:
    methods = "[f('number', k) for k in (0, 5, 100) for f in (c.search, c.mmr, c.lexical, c.hybrid)]"
    worker = opened(f"c = self.c\nreturn json.dumps([len(hits) for hits in {methods}])")
    assert told(worker) == [0] * 12
    worker.index([], "")
    assert told(worker) == [0] * 12
    worker.index(UNITS, "")
    assert told(worker) == [0] * 4 + [5] * 4 + [12] * 4


def test_filters_and_thresholds(opened: Open) -> None:
    worker = opened(
        "c, q = self.c, query.query_text\n"
        "whole = c.search(q, 12)\n"
        "least = whole[4][1]\n"
        "return json.dumps([whole, c.search(q, 3, allowed=[11, 0, 11]), c.search(q, 3, allowed=np.array([2])),\n"
        "    c.search(q, 12, min_score=least), c.search(q, 5, allowed=[]), c.mmr(q, 12, min_relevance=least)])"
    )
    worker.index(UNITS, "")
    whole, allowed, single, above, none, apart = told(worker)
    assert [position for position, _ in allowed] == [p for p, _ in whole if p in (0, 11)]
    assert [position for position, _ in single] == [2]
    assert above == whole[:5], "the threshold is inclusive"
    assert none == []
    assert {p for p, _ in apart} == {p for p, _ in whole[:5]}


def test_words_and_both_rankings_together(opened: Open) -> None:
    worker = opened(
        "c, q = self.c, query.query_text\n"
        "return json.dumps([c.lexical(q, 2), c.lexical([q, 'unheard'], 2), c.hybrid(q, 1, dense_weight=0.2, pool=5),\n"
        "    c.hybrid(q, 12, allowed=[1, 2]), c.hybrid(q, 12, min_score=1.0), c.lexical(q, 12, allowed=[3])])"
    )
    worker.index(UNITS, "")
    words, lists, both, allowed, above, single = told(worker)
    assert words[0][0] == 3
    assert lists == [words, []]
    assert both == [[3, pytest.approx(1 / 61)]]
    assert sorted(position for position, _ in allowed) == [1, 2]
    assert above == []
    assert [position for position, _ in single] == [3]


def test_each_copy_finds_what_the_worker_held_when_it_was_asked(opened: Open) -> None:
    worker = opened(
        "return json.dumps([[len(c), c.search('number 2', 1)] for c in (self.c, self.other)])",
        index="if not self.texts:\n    self.other = self.backend.collection()\n"
        + INDEX
        + "\nself.other.add(self.texts[::-1])",
    )
    worker.index(UNITS[:3], "")
    assert told(worker) == [[3, [[2, pytest.approx(1.0)]]], [3, [[0, pytest.approx(1.0)]]]]
    worker.index(UNITS[3:], "")
    assert told(worker) == [[12, [[2, pytest.approx(1.0)]]], [15, [[0, pytest.approx(1.0)]]]]


@pytest.mark.parametrize(
    ("call", "told_as"),
    [
        ("self.c.search(5, 1)", "TypeError: collection.search: text must be a str or a list of str"),
        ("self.c.search(['a', b'b'], 1)", "TypeError: collection.search: text must be a str or a list of str"),
        ("self.c.search(None, 1)", "TypeError: collection.search: text must be a str or a list of str"),
        ("self.c.search('a', -1)", "ValueError: collection.search: k must be from 0 to 100000, got -1"),
        ("self.c.search('a', 10**9)", "ValueError: collection.search: k must be from 0 to 100000, got 1000000000"),
        ("self.c.search('a', 10**99)", "k must be from 0 to 100000, got a number of more than 64 bits"),
        ("self.c.search('a', 2.0)", "TypeError: collection.search: k must be a whole number, not float"),
        ("self.c.search('a', True)", "TypeError: collection.search: k must be a whole number, not a bool"),
        ("self.c.search('a', 1, allowed=[12])", "position 12 in allowed is outside the 12 texts of the collection"),
        ("self.c.search('a', 1, allowed=[-1])", "position -1 in allowed is outside the 12 texts"),
        (
            "self.c.search('a', 1, allowed=np.ones(12, bool))",
            "position in allowed must be a whole number, not a bool",
        ),
        ("self.c.search('a', 1, allowed=['0'])", "a position in allowed must be a whole number, not str"),
        ("self.c.search('a', 1, min_score=float('nan'))", "ValueError: collection.search: min_score must be finite"),
        ("self.c.search('a', 1, min_score='x')", "TypeError: collection.search: min_score must be a number, not str"),
        ("self.c.mmr('a', 1, relevance_weight=1.5)", "relevance_weight must be from 0 to 1, got 1.5"),
        ("self.c.mmr('a', 1, relevance_weight=None)", "relevance_weight must be from 0 to 1, got None"),
        ("self.c.mmr('a', 5, pool=4)", "5 hits from a pool of 4; the pool must hold as many, at most 2000"),
        ("self.c.mmr('a', 5, pool=-1)", "5 hits from a pool of -1"),
        ("self.c.mmr('a', 5, pool=2001)", "5 hits from a pool of 2001"),
        ("self.c.lexical(5, 1)", "TypeError: collection.lexical: text must be a str or a list of str"),
        ("self.c.lexical('a', -1)", "collection.lexical: k must be from 0 to 100000, got -1"),
        ("self.c.hybrid('a', 5, pool=4)", "collection.hybrid: 5 hits from a pool of 4"),
        ("self.c.hybrid('a', 5, dense_weight=-0.1)", "dense_weight must be from 0 to 1, got -0.1"),
        ("self.c.nearest('a', 5)", "AttributeError: 'Collection' object has no attribute 'nearest'"),
        (
            "self.c.add(['a'])",
            "collection.add: a collection is read-only in retrieve(); add texts in index()",
        ),
        ("self.c.add('a')", "TypeError: collection.add: texts must be a list of str"),
        ("self.backend.collection().add(['a'])", "a collection is read-only in retrieve()"),
        ("self.c.extra = 1", "AttributeError"),
    ],
)
def test_bad_arguments_fail_at_the_programs_own_line(opened: Open, build: Build, call: str, told_as: str) -> None:
    retrieve = f"{call}\nreturn ''"
    worker = opened(retrieve)
    worker.index(UNITS, "")
    with pytest.raises(CandidateError) as caught:
        worker.retrieve({"query_text": "x"})
    assert caught.value.kind == "error"
    assert told_as in str(caught.value)
    assert caught.value.line == build(retrieve).splitlines().index(f"        {call}") + 1
    worker.index(UNITS, "")


def test_what_is_refused_can_be_caught_and_changes_nothing(opened: Open) -> None:
    worker = opened(
        "try:\n    self.c.add(['new'])\nexcept ValueError:\n    pass\n"
        "return json.dumps([len(self.c), len(self.c.search('new', 50))])"
    )
    worker.index(UNITS, "")
    assert told(worker) == [12, 12]
    assert told(worker) == [12, 12]


def forged(**fields: Any) -> str:
    """A call that the program makes up itself, past the checks of its own process."""
    return f"return json.dumps(self.c._request({fields!r}))"


def handle_of(box: Sandbox, opened: Open, texts: list[str]) -> str:
    worker = opened("return self.c._handle", box=box)
    worker.index([{"memory_text": text} for text in texts], "")
    handle, _ = worker.retrieve({"query_text": ""})
    assert len(handle) == 64
    return handle


SEARCH = {"call": "search", "texts": ["a"], "k": 3, "line": None}


def test_a_handle_that_another_memory_made_is_refused(bare_sandbox: Sandbox, opened: Open) -> None:
    foreign = handle_of(bare_sandbox, opened, ["a label", "an answer"])
    for handle in (foreign, "0" * 64, "x", foreign.upper()):
        worker = opened(forged(**SEARCH, handle=handle), box=bare_sandbox)
        worker.index(UNITS, "")
        assert told(worker) == {"refused": "this memory has no such collection"}
        worker.index(UNITS, "")
    adding = opened(
        "return json.dumps([self.c._size, self.c.search('a label', 5)])",
        index=f"self.c._request({{'call': 'add', 'texts': ['x'], 'line': None, 'handle': {foreign!r}}})",
        box=bare_sandbox,
    )
    adding.index(UNITS, "")
    assert told(adding) == [0, []]


def test_a_handle_of_its_own_that_a_program_keeps_as_text_still_works(bare_sandbox: Sandbox, opened: Open) -> None:
    worker = opened(
        f"return json.dumps(self.c._request({{**{SEARCH!r}, 'texts': ['number 1'], 'handle': self.early}}))",
        index=INDEX + "\nif len(self.texts) == 5: self.early = self.c._handle",
        box=bare_sandbox,
    )
    worker.index(UNITS[:5], "")
    worker.index(UNITS[5:], "")
    assert told(worker)["hits"][0][0][0] == 1


def test_a_forged_add_in_retrieve_is_refused(bare_sandbox: Sandbox, opened: Open) -> None:
    worker = opened(forged(call="add", texts=["x"], line=None, handle=""), box=bare_sandbox)
    assert "read-only in retrieve()" in told(worker)["refused"]


@pytest.mark.parametrize(
    "change",
    [
        {"handle": 5},
        {"handle": None},
        {"texts": "abc"},
        {"texts": [1]},
        {"texts": None},
        {"k": True},
        {"k": 2.0},
        {"k": None},
        {"line": "3"},
        {"least": "0"},
        {"least": True},
        {"allowed": [True]},
        {"allowed": "01"},
        {"allowed": {"0": 1}},
        {"weight": 0.5},
        {"pool": 1.5},
        {"call": "mmr"},
        {"call": "mmr", "weight": -0.1},
        {"call": "mmr", "weight": "x"},
        {"call": "hybrid"},
        {"call": "lexical", "weight": 0.5},
        {"call": "close"},
    ],
    ids=str,
)
def test_a_frame_of_another_form_ends_the_copy(bare_sandbox: Sandbox, opened: Open, change: dict[str, Any]) -> None:
    worker = opened(forged(**{**SEARCH, "handle": "", **change}), box=bare_sandbox)
    with pytest.raises(CandidateError) as caught:
        worker.retrieve({"query_text": ""})
    assert caught.value.kind == "protocol"


def test_without_collections_a_forged_call_ends_the_copy(bare_sandbox: Sandbox, program: Build) -> None:
    call = "return str(self.backend._request({'call': 'search', 'texts': ['a'], 'k': 1, 'handle': ''}))"
    with bare_sandbox.open(program(retrieve=call), StubBackend(16, 60.0)) as worker:
        with pytest.raises(CandidateError, match="a call to the backend that does not exist") as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "protocol"


@pytest.mark.parametrize(
    ("limits", "body", "kind", "message"),
    [
        ({"retrieve_calls": 3}, "for _ in range(9): self.c.search('a', 1)", "limit:calls", "3 calls of collections"),
        ({"retrieve_queries": 3}, "self.c.search(['a'] * 4, 1)", "limit:calls", "3 texts looked for in collections"),
        ({}, "self.c.search(['a'] * 65, 1)", "limit:calls", "64 texts for embeddings and collections"),
    ],
)
def test_limits_of_retrieve_end_the_copy_and_name_the_line(
    opened: Open, build: Build, limits: dict[str, int], body: str, kind: str, message: str
) -> None:
    retrieve = f"{body}\nreturn ''"
    worker = opened(retrieve, limits=dataclasses.replace(CollectionLimits(), **limits))
    worker.index(UNITS, "")
    with pytest.raises(LimitError, match=message) as caught:
        worker.retrieve({"query_text": ""})
    assert caught.value.kind == kind
    lines = build(retrieve).splitlines()
    assert caught.value.line is not None and body in lines[caught.value.line - 1]
    worker.index(UNITS, "")


@pytest.mark.parametrize(
    ("limits", "body", "kind", "message"),
    [
        ({"index_calls": 2}, "for _ in range(3): self.c.add(['a'])", "limit:calls", "2 calls of collections"),
        ({"index_queries": 3}, "self.c.search(['a'] * 4, 1)", "limit:calls", "3 texts looked for"),
        ({"texts": 10}, "self.c.add(['a'] * 11)", "limit:memory", "more than 10 texts into its collections"),
        ({"chars": 10}, "self.c.add(['a' * 11])", "limit:memory", "more than 10 characters into its collections"),
        ({"row_bytes": 640}, "self.c.add(['a'] * 11)", "limit:memory", "more than 640 bytes of embeddings"),
        ({}, "self.c.add(['a'] * 20_001)", "limit:calls", "20000 texts for embeddings and collections"),
    ],
)
def test_limits_of_index_end_the_worker(
    opened: Open, limits: dict[str, int], body: str, kind: str, message: str
) -> None:
    worker = opened(index=body, limits=dataclasses.replace(CollectionLimits(), **limits))
    with pytest.raises(LimitError, match=message) as caught:
        worker.index(UNITS, "")
    assert caught.value.kind == kind
    assert caught.value.line is not None
    with pytest.raises(CandidateError, match="ended earlier"):
        worker.index(UNITS, "")


def test_hits_of_one_call_are_bounded_together(opened: Open) -> None:
    limits = dataclasses.replace(CollectionLimits(), hits=20)
    worker = opened("return json.dumps(self.c.search(['a', 'b'], 11))", limits=limits)
    worker.index(UNITS[:10], "")
    assert [len(hits) for hits in told(worker)] == [10, 10]
    worker.index(UNITS[10:], "")
    with pytest.raises(CandidateError, match="2 texts with 11 hits each; one call gives at most 20 hits"):
        told(worker)


def test_lone_surrogates_are_texts_like_others(opened: Open) -> None:
    worker = opened("return json.dumps(self.c.search('\\ud800', 1))", index="self.c.add(['a', '\\udfff b', '\\udfff'])")
    worker.index([], "")
    assert told(worker)[0][0] == 2


def test_the_paper_interface_has_none_and_says_so(sandbox: Sandbox, build: Build, program: Build) -> None:
    with pytest.raises(CandidateError, match=r'backend\.collection needs interface="engine"') as caught:
        sandbox.open(build(), StubBackend(16, 60.0))
    assert caught.value.line == build().splitlines().index("        self.c = backend.collection()") + 1
    ask = "return str([hasattr(self.backend, 'collection'), hasattr(self.backend, 'ask')])"
    with sandbox.open(program(retrieve=ask), StubBackend(16, 60.0)) as worker:
        assert worker.retrieve({"query_text": ""})[0] == "[False, True]"


def test_a_handler_that_serves_no_collections_is_refused(sandbox: Sandbox, build: Build, backend: Any) -> None:
    with pytest.raises(ArgumentError, match="expected a CollectionBackend where collections are allowed"):
        sandbox.open(build(), backend, Limits(), CollectionLimits())
