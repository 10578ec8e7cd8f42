"""LexicalIndex: scores of the definition, contents that come and go, filters, batches, threads, errors."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prismem_core import ops
from prismem_core.errors import ArgumentError
from prismem_core.index import LexicalIndex, SearchResult, Tokenizer, VectorIndex, tokens
from tests.index.lexical_reference import ranked

TEXTS = [
    "Caroline went to a support group",
    "Melanie paints lakes, and lakes again",
    "",
    "Caroline paints",
    "a a a a support",
    "Caroline paints",
]


def rows(result: SearchResult) -> list[list[tuple[int, float]]]:
    """The hits of each query."""
    return [
        list(zip(result.ids[row, :count].tolist(), result.scores[row, :count].tolist(), strict=True))
        for row, count in enumerate(result.counts.tolist())
    ]


def random_texts(rng: np.random.Generator, count: int, words: int = 200, longest: int = 30) -> list[str]:
    lengths = rng.integers(0, longest, count)
    return [" ".join(f"w{word}" for word in rng.zipf(1.3, length).clip(max=words)) for length in lengths]


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.0, 0.0), (2.0, 1.0), (0.5, 0.0)])
def test_scores_are_those_of_the_definition(k1: float, b: float) -> None:
    index = LexicalIndex(k1=k1, b=b)
    index.add(TEXTS)
    queries = ["caroline paints a lake", "support", "lakes lakes", "nothing of it", "", "CAROLINE, Paints!"]
    found = index.search(queries, 10)
    assert (found.scores.dtype, found.ids.dtype, found.counts.dtype) == (np.float32, np.int64, np.int64)
    assert rows(found) == [ranked(TEXTS, query, 10, tokens, k1, b) for query in queries]
    assert rows(index.search(queries, 2)) == [ranked(TEXTS, query, 2, tokens, k1, b) for query in queries]
    assert (index.k1, index.b) == (k1, b)


def test_more_texts_than_one_window() -> None:
    rng = np.random.default_rng(1)
    texts = random_texts(rng, 5000, longest=12)
    texts[2047] += " rare"
    texts[4999] += " rare"
    index = LexicalIndex()
    index.add(texts)
    for query in ("w1 w2 w3", "w7 rare w150", "rare", "w199", "w1"):
        expected = ranked(texts, query, 5000, tokens)
        for k in (1, 10, 5000):
            assert rows(index.search([query], k)) == [expected[:k]], (query, k)


def test_equal_scores_come_in_the_order_of_adding() -> None:
    index = LexicalIndex()
    index.add(["same words"] * 5, [40, -7, 2**63 - 1, -(2**63), 0])
    assert index.search(["words"], 3).ids.tolist() == [[40, -7, 2**63 - 1]]
    index.update([-7], ["same words"])
    assert index.search(["words"], 3).ids.tolist() == [[40, -7, 2**63 - 1]]
    index.remove([-7])
    index.add(["same words"], [-7])
    assert index.search(["words"], 9).ids.tolist() == [[40, 2**63 - 1, -(2**63), 0, -7]]
    assert index.ids.tolist() == [40, 2**63 - 1, -(2**63), 0, -7]


def test_what_is_added_is_found_at_once_and_what_is_removed_leaves_no_trace() -> None:
    rng = np.random.default_rng(5)
    texts, extra = random_texts(rng, 60), random_texts(rng, 40)
    fresh, used = LexicalIndex(), LexicalIndex()
    fresh.add(texts)
    used.add(extra, range(1000, 1040))
    for text in texts[:30]:
        used.add([text], [len(used) - 40])
    used.add(texts[30:], range(30, 60))
    assert used.search(["w1"], 100).counts[0] > fresh.search(["w1"], 100).counts[0]
    used.remove(range(1000, 1040))
    queries = [*random_texts(rng, 20), "w1 w2", "w3"]
    assert [part.tobytes() for part in used.search(queries, 20)] == [
        part.tobytes() for part in fresh.search(queries, 20)
    ]
    assert used.stats().tokens == fresh.stats().tokens


def test_updates_are_as_if_the_text_had_always_been_that() -> None:
    rng = np.random.default_rng(6)
    before, after = random_texts(rng, 50), random_texts(rng, 50)
    index, fresh = LexicalIndex(), LexicalIndex()
    index.add(before)
    index.update(range(49, 9, -1), after[49:9:-1])
    fresh.add(before[:10] + after[10:])
    queries = random_texts(rng, 20)
    assert [part.tobytes() for part in index.search(queries, 9)] == [
        part.tobytes() for part in fresh.search(queries, 9)
    ]
    assert index.ids.tolist() == list(range(50))


def test_room_of_removed_texts_is_given_back() -> None:
    rng = np.random.default_rng(7)
    texts = random_texts(rng, 4000)
    index, fresh = LexicalIndex(), LexicalIndex()
    index.add(texts)
    index.update([3500], [texts[3500]])
    index.remove(range(1000))
    assert index.stats().removed == 1001
    index.remove(range(1000, 3000))
    assert index.stats().removed == 0
    fresh.add(texts[3000:], range(3000, 4000))
    queries = random_texts(rng, 20)
    assert [part.tobytes() for part in index.search(queries, 9)] == [
        part.tobytes() for part in fresh.search(queries, 9)
    ]
    assert index.ids.tolist() == fresh.ids.tolist()
    assert index.add(["one more"]).tolist() == [4000]


def test_automatic_ids_follow_the_largest_ever_used() -> None:
    index = LexicalIndex()
    assert index.add(["a", "b"]).tolist() == [0, 1]
    assert index.add(["c"], [-5]).tolist() == [-5]
    index.add(["d"], [100])
    index.remove([100])
    assert index.add(["e"]).tolist() == [101]
    index.add(["f"], [2**63 - 1])
    with pytest.raises(ArgumentError, match="no automatic id is left"):
        index.add(["g"])
    assert 101 in index
    assert 100 not in index
    assert "101" not in index
    assert 2**70 not in index


def test_filters_act_before_the_selection() -> None:
    rng = np.random.default_rng(8)
    texts = random_texts(rng, 300)
    index = LexicalIndex()
    ids = index.add(texts, rng.permutation(300))
    index.update(ids[:5], texts[:5])
    everything = rows(index.search(["w1 w2 w3"], 300))[0]
    some = rng.random(300) < 0.3
    allowed = set(ids[some].tolist())
    expected = [hit for hit in everything if hit[0] in allowed][:7]
    assert len(expected) == 7
    for filter in (some, ids[some], ids[some].tolist(), [*ids[some].tolist(), 10**9], some[None]):
        assert rows(index.search(["w1 w2 w3"], 7, filter=filter)) == [expected]
    both = index.search(["w1 w2 w3"] * 2, 7, filter=np.stack([some, ~some]))
    assert rows(both) == [expected, [hit for hit in everything if hit[0] not in allowed][:7]]
    assert index.search(["w1"], 7, filter=[]).counts.tolist() == [0]
    assert index.search(["w1"], 7, filter=np.zeros(300, bool)).counts.tolist() == [0]
    strided = np.zeros((2, 600), bool)
    strided[:, ::2] = some
    assert rows(index.search(["w1 w2 w3"], 7, filter=strided[0, ::2])) == [expected]


def test_min_score_is_inclusive() -> None:
    index = LexicalIndex()
    index.add(TEXTS)
    all_of_them = rows(index.search(["caroline support"], 9))[0]
    for _, score in all_of_them:
        expected = [hit for hit in all_of_them if hit[1] >= score]
        assert rows(index.search(["caroline support"], 9, min_score=score)) == [expected]
        above = float(np.nextafter(np.float32(score), np.float32(np.inf)))
        assert rows(index.search(["caroline support"], 9, min_score=above)) == [[h for h in expected if h[1] > score]]
    assert rows(index.search(["caroline support"], 9, min_score=-5)) == [all_of_them]


def test_a_batch_is_its_queries_one_by_one_for_any_number_of_threads() -> None:
    rng = np.random.default_rng(9)
    index = LexicalIndex()
    index.add(random_texts(rng, 30_000))
    queries = ["w1 w2 w3 w4 w5 w6 w7 w8 w9", *random_texts(rng, 40), "", "unknown"]
    with ops.use(threads=1):
        alone = [rows(index.search([query], 25))[0] for query in queries]
    for threads in (1, 2, 5):
        with ops.use(threads=threads):
            assert rows(index.search(queries, 25)) == alone


def test_nothing_to_search() -> None:
    index = LexicalIndex()
    assert rows(index.search(["a", "b"], 3)) == [[], []]
    assert index.search(["a", "b"], 3).scores.shape == (2, 0)
    index.add([])
    index.add(["", ""])
    assert rows(index.search(["a", ""], 3)) == [[], []]
    index.add(["a b"])
    assert index.search([], 3).ids.shape == (0, 0)
    assert index.search(["a"], 0).ids.shape == (1, 0)
    assert rows(index.search(["a"], 10**30)) == [ranked(["", "", "a b"], "a", 9, tokens)]
    index.remove([0, 1, 2])
    assert (len(index), rows(index.search(["a"], 3))) == (0, [[]])


def test_every_script_is_searched() -> None:
    texts = [
        "昨天我看了一部电影",
        "어제 고양이를 보았다",
        "मुझे हिन्दी पसंद है",
        "ฉันชอบกินข้าว",
        "Я люблю кино",
        "🎂 am 7. Mai",
    ]
    index = LexicalIndex()
    index.add(texts)
    for position, query in enumerate(["电影", "고양이", "हिन्दी", "ข้าว", "КИНО", "🎂"]):
        assert index.search([query], 9).ids.tolist() == [[position]], query


def test_a_tokenizer_of_your_own() -> None:
    index = LexicalIndex(tokenizer=Tokenizer("stems", stop_words=["the"], stem=lambda word: word[:4]))
    index.add(["the painting", "the painter"])
    assert index.search(["paints"], 5).ids.tolist() == [[0, 1]]
    assert index.search(["the"], 5).counts.tolist() == [0]
    assert index.tokenizer.name == "stems"
    assert repr(index) == "<LexicalIndex of 2 texts, k1=1.2, b=0.75, tokenizer='stems'>"


class _Broken(Tokenizer):
    def __init__(self, result: Any) -> None:
        super().__init__("broken")
        self.result = result

    def __call__(self, text: str) -> list[str]:
        if isinstance(self.result, Exception):
            raise self.result
        made: list[str] = self.result if text == "bad" else [text]
        return made


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("a string", "texts: the tokenizer must return lists of str, got str"),
        (["a", 3], "texts: the tokenizer must return lists of str, got int in one"),
        (["\ud800"], "texts: the tokenizer returned a token with lone surrogates"),
    ],
)
def test_a_tokenizer_that_returns_something_else(result: Any, message: str) -> None:
    index = LexicalIndex(tokenizer=_Broken(result))
    index.add(["x"])
    with pytest.raises(ArgumentError, match=message):
        index.add(["fine", "bad"])
    with pytest.raises(ZeroDivisionError):
        LexicalIndex(tokenizer=_Broken(ZeroDivisionError())).add(["fine"])
    assert (len(index), index.stats().tokens) == (1, 1)


def test_a_change_that_fails_changes_nothing() -> None:
    index = LexicalIndex()
    index.add(TEXTS)
    before, stats = rows(index.search(["caroline paints a"], 9)), index.stats()
    for call in (
        lambda: index.add(["new", "new"], [7, 0]),
        lambda: index.add(["new", "new"], [7, 7]),
        lambda: index.add(["new"], [7, 8]),
        lambda: index.update([0, 99], ["x", "y"]),
        lambda: index.update([0, 0], ["x", "y"]),
        lambda: index.update([0], ["x", "y"]),
        lambda: index.remove([0, 99]),
        lambda: index.remove([0, 0]),
    ):
        with pytest.raises(ArgumentError, match="ids: "):
            call()
    assert (rows(index.search(["caroline paints a"], 9)), index.stats()) == (before, stats)


def test_errors_name_the_argument() -> None:
    index = LexicalIndex()
    index.add(TEXTS)
    wrong: list[tuple[Any, str]] = [
        (lambda: LexicalIndex(k1=-1), "k1: expected a finite number of at least 0, got -1"),
        (lambda: LexicalIndex(k1=float("inf")), "k1: expected a finite"),
        (lambda: LexicalIndex(b=1.5), "b: expected a number from 0 to 1, got 1.5"),
        (lambda: LexicalIndex(b=float("nan")), "b: expected a number"),
        (lambda: LexicalIndex(tokenizer=str.split), r"tokenizer: expected an index\.Tokenizer"),  # type: ignore[arg-type]
        (lambda: index.add("one text"), r"texts: expected a list of str, got one text; for one text pass \[text\]"),
        (lambda: index.add(["a", None]), "texts: expected a list of str, got NoneType at position 1"),  # type: ignore[list-item]
        (lambda: index.add(["a"], [0.5]), "ids: expected int64 numbers"),  # type: ignore[list-item]
        (lambda: index.add(["a"], [2**63]), "ids: expected int64 numbers"),
        (lambda: index.add(["a"], [0, 1]), "ids: expected 1, one for each text, got 2"),
        (lambda: index.search("caroline", 3), "queries: expected a list of str"),
        (lambda: index.search(["a"], -1), "k: expected a whole number of at least 0, got -1"),
        (lambda: index.search(["a"], 3, min_score=float("nan")), "min_score: expected a number or None, got NaN"),
        (lambda: index.search(["a"], 3, filter=np.ones(5, bool)), "filter: expected a mask with 6 values a query"),
        (lambda: index.search(["a"], 3, filter=np.ones((2, 6), bool)), "filter: the mask was made for 2 queries"),
        (lambda: index.search(["a"], 3, filter=[0.5]), "filter: expected int64 numbers"),  # type: ignore[list-item]
        (
            lambda: index.search(["a"], 3, filter=VectorIndex(2).prepare([1])),  # type: ignore[arg-type]
            "filter: expected ids or a mask, got a filter that a VectorIndex prepared",
        ),
    ]
    for call, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            call()


def test_searches_and_changes_at_the_same_time() -> None:
    index = LexicalIndex()
    index.add(["steady word"], [-1])
    failures: list[BaseException] = []
    stop = threading.Event()

    def search() -> None:
        try:
            while not stop.is_set():
                hits = rows(index.search(["steady", "coming"], 500))
                assert [hit[0] for hit in hits[0]] == [-1]
                assert [hit[0] for hit in hits[1]] == sorted(hit[0] for hit in hits[1])
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(60):
        index.add(["coming and going"] * 20, range(turn * 20, turn * 20 + 20))
        if turn % 3 == 2:
            index.remove(range((turn - 2) * 20, turn * 20 + 20))
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "猫"]), max_size=6).map(" ".join)


class Contents(RuleBasedStateMachine):
    """An index and a dictionary that are changed alike rank alike."""

    def __init__(self) -> None:
        super().__init__()
        self.index = LexicalIndex()
        self.texts: dict[int, str] = {}

    @rule(texts=st.lists(WORDS, max_size=4), first=st.integers(-50, 50))
    def add(self, texts: list[str], first: int) -> None:
        ids = [first + offset for offset in range(len(texts))]
        if any(id in self.texts for id in ids):
            with pytest.raises(ArgumentError):
                self.index.add(texts, ids)
        else:
            self.index.add(texts, ids)
            self.texts.update(zip(ids, texts, strict=True))

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), text=WORDS)
    def update(self, data: st.DataObject, text: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.texts)))
        self.index.update([id], [text])
        self.texts[id] = text

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.texts)), unique=True))
        self.index.remove(ids)
        for id in ids:
            del self.texts[id]

    @invariant()
    def ranks_alike(self) -> None:
        assert self.index.ids.tolist() == list(self.texts)
        texts, ids = list(self.texts.values()), list(self.texts)
        for query in ("a b", "c", "猫 d a"):
            expected = [(ids[place], score) for place, score in ranked(texts, query, 3, tokens)]
            assert rows(self.index.search([query], 3)) == [expected]


TestContents = Contents.TestCase
TestContents.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, max_size=20), WORDS, st.integers(0, 5), st.floats(0, 3), st.floats(0, 1))
def test_any_texts(texts: list[str], query: str, k: int, k1: float, b: float) -> None:
    index = LexicalIndex(k1=k1, b=b)
    index.add(texts)
    assert rows(index.search([query], k)) == [ranked(texts, query, k, tokens, k1, b)]
