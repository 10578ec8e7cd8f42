"""Collections by content: shared, never changed, and searched alike whatever they are searched together with."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from prismem_core import ops
from prismem_core.index import LexicalIndex, SearchResult, fuse_reciprocal_rank
from prismem_core.program.collections.query import EMPTY, CollectionQuery, Hits
from prismem_core.program.collections.store import CollectionStore, Scope

from .conftest import HashEmbedder, rows_of

WORDS = [f"text number {number}" for number in range(40)]


def made(store: CollectionStore, texts: Sequence[str], scope: Scope | None = None) -> tuple[str, Scope]:
    scope = scope or Scope()
    return store.add(scope, EMPTY, texts), scope


def one(store: CollectionStore, handle: str, size: int, text: str, k: int, **options: object) -> Hits:
    method = str(options.pop("method", "search"))
    query = CollectionQuery(method, handle, size, (text,), k, **options)  # type: ignore[arg-type]
    return store.find([query])[0][0][0]


def test_equal_texts_in_equal_order_are_one_collection(embedder: HashEmbedder) -> None:
    store = CollectionStore(embedder)
    whole, first = made(store, WORDS)
    second = Scope()
    handle = EMPTY
    for start in range(0, 40, 7):
        handle = store.add(second, handle, WORDS[start : start + 7])
    assert handle == whole
    assert second.trunks[whole] is first.trunks[whole]
    assert made(store, WORDS[::-1])[0] != whole
    assert made(store, ["".join(WORDS)])[0] != whole
    assert store.add(Scope(), EMPTY, []) == EMPTY


def test_the_embedder_is_part_of_the_handle(embedder: HashEmbedder) -> None:
    other = HashEmbedder()
    other.identity = "other"
    assert made(CollectionStore(embedder), WORDS)[0] != made(CollectionStore(other), WORDS)[0]
    assert made(CollectionStore(embedder), WORDS)[0] == made(CollectionStore(HashEmbedder()), WORDS)[0]


def test_a_collection_never_changes(embedder: HashEmbedder) -> None:
    store, scope = CollectionStore(embedder), Scope()
    ten = store.add(scope, EMPTY, WORDS[:10])
    before = one(store, ten, 10, "query", 40)
    longer = store.add(scope, ten, WORDS[10:])
    fork = store.add(scope, ten, ["another", "ending"])
    assert one(store, ten, 10, "query", 40) == before
    assert len(one(store, longer, 40, "query", 40)[0]) == 40
    assert one(store, fork, 12, "ending", 1) == ([11], [pytest.approx(1.0)])
    assert made(CollectionStore(embedder), [*WORDS[:10], "another", "ending"])[0] == fork


def test_hits_are_those_of_the_op(embedder: HashEmbedder) -> None:
    store, scope = CollectionStore(embedder), Scope()
    made(store, ["something", "before"], scope)
    texts = [*WORDS, *WORDS[:5]]
    handle, _ = made(store, texts, scope)
    keys, query = rows_of(texts), rows_of(["text number 3"])
    for k in (1, 7, 45, 100):
        found = ops.top_k(query, keys, k)
        expected = found.indices[0].tolist(), found.scores[0].tolist()
        assert one(store, handle, 45, "text number 3", k) == expected
    assert expected[0][:2] == [3, 43], "equal scores keep the order of addition"
    picks = ops.mmr_select(query, keys, 6, relevance_weight=0.3)
    found_apart = one(store, handle, 45, "text number 3", 6, method="mmr", weight=0.3, pool=45)
    assert found_apart == (picks.indices[0].tolist(), picks.scores[0].tolist())


def test_filters_and_thresholds(embedder: HashEmbedder) -> None:
    store = CollectionStore(embedder)
    handle, _scope = made(store, WORDS)
    keys, query = rows_of(WORDS), rows_of(["query"])
    mask = np.zeros(40, np.bool_)
    mask[[39, 2, 17]] = True
    found = ops.top_k(query, keys, 2, mask=mask)
    assert one(store, handle, 40, "query", 2, allowed=mask) == (found.indices[0].tolist(), found.scores[0].tolist())
    nothing = np.zeros(40, np.bool_)
    assert one(store, handle, 40, "query", 2, allowed=nothing) == ([], [])
    assert one(store, handle, 40, "query", 2, method="mmr", pool=20, allowed=nothing) == ([], [])
    positions, scores = one(store, handle, 40, "query", 40)
    third = scores[2]
    assert one(store, handle, 40, "query", 40, least=third) == (positions[:3], scores[:3]), "the threshold is inclusive"
    assert one(store, handle, 40, "query", 40, least=1e300) == ([], [])
    picks = ops.mmr_select(query, keys, 9, relevance_weight=0.5, min_relevance=third)
    found_apart = one(store, handle, 40, "query", 9, method="mmr", pool=40, least=third)
    assert found_apart == (picks.indices[0].tolist(), picks.scores[0].tolist())
    among = one(store, handle, 40, "query", 3, method="mmr", pool=5)[0]
    assert set(among) <= set(positions[:5]), "picks come from the pool"


def batch_of_queries(handles: dict[str, int], methods: Sequence[str]) -> list[CollectionQuery]:
    rng = np.random.default_rng(1)
    queries = []
    for number in range(30):
        handle, size = list(handles.items())[number % len(handles)]
        queries.append(
            CollectionQuery(
                methods[number % len(methods)],
                handle,
                size,
                tuple(f"query number {number + i}" for i in range(number % 3 + 1)),
                min(3 + number % 2, size),
                allowed=rng.random(size) < 0.5 if number % 5 == 0 else None,
                least=0.0 if number % 7 == 0 else None,
                weight=(0.25, 0.5, 0.0, 1.0)[number % 4],
                pool=min(10, size),
            )
        )
    return queries


def test_a_batch_gives_what_its_queries_give_one_by_one(embedder: HashEmbedder) -> None:
    store, scope = CollectionStore(embedder), Scope()
    handles = {EMPTY: 0}
    for size in (1, 5, 40):
        handles[made(store, WORDS[:size], scope)[0]] = size
    queries = batch_of_queries(handles, ["search", "mmr", "lexical", "hybrid", "hybrid"])
    alone = [store.find([query])[0][0] for query in queries]
    together, launched = store.find(queries)
    assert together == alone
    assert launched["embed"] == 1
    assert launched["top_k"] < len(queries) / 2
    assert store.find([]) == ([], {})


SAID = ["the cat sat", "a cat and a dog", "dogs bark", "", "cat cat cat", "the sea", "a cat and a dog"]


def test_words_are_ranked_by_the_texts_of_the_collection_alone(embedder: HashEmbedder) -> None:
    store, scope = CollectionStore(embedder), Scope()
    handles, handle = [], EMPTY
    for text in SAID:
        handle = store.add(scope, handle, [text])
        handles.append(handle)
    for size in (7, 2, 5, 3, 4, 1, 6, 2, 7):
        words = LexicalIndex()
        words.add(SAID[:size])
        found = words.search(["a cat at sea"], 4)
        expected = found.ids[0, : found.counts[0]].tolist(), found.scores[0, : found.counts[0]].tolist()
        assert one(store, handles[size - 1], size, "a cat at sea", 4, method="lexical") == expected
    positions, scores = one(store, handle, 7, "dog", 4, method="lexical")
    assert positions == [1, 6], "equal scores keep the order of addition; texts without the word are no hits"
    assert scores[0] == scores[1]
    mask = np.arange(7) != 1
    assert one(store, handle, 7, "dog", 4, method="lexical", allowed=mask) == ([6], scores[1:])
    assert one(store, handle, 7, "dog", 4, method="lexical", least=scores[0] + 1) == ([], [])
    assert embedder.asked == [[text] for text in SAID], "words need no row"


def test_the_hybrid_ranking_is_the_fusion_of_both(embedder: HashEmbedder) -> None:
    store = CollectionStore(embedder)
    handle, _scope = made(store, SAID)

    def result(method: str) -> SearchResult:
        positions, scores = one(store, handle, 7, "a cat", 4, method=method)
        return SearchResult(
            np.array([scores], np.float32), np.array([positions], np.int64), np.array([len(positions)], np.int64)
        )

    for weight in (0.5, 0.9):
        both = fuse_reciprocal_rank([result("search"), result("lexical")], 3, weights=[weight, 1 - weight])
        found = one(store, handle, 7, "a cat", 3, method="hybrid", weight=weight, pool=4)
        assert found == (both.ids[0].tolist(), both.scores[0].tolist())
    for weight, method in ((1.0, "search"), (0.0, "lexical")):
        alone = one(store, handle, 7, "a cat", 3, method="hybrid", weight=weight, pool=4)[0]
        assert alone == one(store, handle, 7, "a cat", 3, method=method)[0]
    asked = len(embedder.asked)
    one(store, handle, 7, "a dog", 3, method="hybrid", weight=0.0, pool=4)
    assert len(embedder.asked) == asked, "a ranking of weight 0 is not made"
    least = both.scores[0, 1]
    assert len(one(store, handle, 7, "a cat", 3, method="hybrid", weight=0.9, pool=4, least=float(least))[0]) == 2


def test_searches_of_several_collections_are_one_launch(embedder: HashEmbedder) -> None:
    store, scope = CollectionStore(embedder), Scope()
    handles = [made(store, WORDS[start : start + 9], scope)[0] for start in range(4)]
    queries = [CollectionQuery("search", handle, 9, ("a", "b"), 3) for handle in handles]
    _, launched = store.find(queries)
    assert launched == {"embed": 1, "top_k": 1}


def test_a_scope_that_ends_leaves_its_collections_to_the_next_while_they_fit(embedder: HashEmbedder) -> None:
    store = CollectionStore(embedder)
    handle, scope = made(store, WORDS)
    store.close(scope)
    assert made(store, WORDS)[0] == handle
    assert len(embedder.asked) == 1
    small = CollectionStore(embedder, kept_bytes=4 * 17 * 40)
    for start in (0, 1):
        small.close(made(small, [f"{start} {word}" for word in WORDS])[1])
    asked = len(embedder.asked)
    made(small, [f"1 {word}" for word in WORDS])
    assert len(embedder.asked) == asked, "the last one is kept"
    made(small, [f"0 {word}" for word in WORDS])
    assert len(embedder.asked) == asked + 1, "the one before made room for it"


def test_threads_that_add_and_search_at_once(embedder: HashEmbedder) -> None:
    store = CollectionStore(embedder)
    wrong: list[object] = []

    def work(number: int) -> None:
        scope, handle = Scope(), EMPTY
        own = [f"{number % 3} {word}" for word in WORDS]
        for place, text in enumerate(own):
            handle = store.add(scope, handle, [text])
            if one(store, handle, place + 1, text, 1)[0] != [place]:
                wrong.append((number, place))
        found = ops.top_k(rows_of(["query"]), rows_of(own), 5)
        if one(store, handle, 40, "query", 5)[0] != found.indices[0].tolist():
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
