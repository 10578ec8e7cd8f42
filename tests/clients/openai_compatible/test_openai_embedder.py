"""The embedder against the scripted server: order, sizes, tokens, and texts that the model would cut."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest
from tests.scripted_server.answers import count_tokens, vector

from prismem_core.clients.openai_compatible.embedding_rows import read_rows, shares
from prismem_core.errors import BudgetError, RoleError
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Allowance, Budget
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import CountsTokens, Embedder

TEXTS = [f"{'note ' * (i % 5)}number {i} of the conversation" for i in range(30)]


def bind(client: Any, budget: Budget | None = None) -> tuple[Ledger, Budget]:
    ledger, budget = Ledger(), budget or Budget()
    client.account = Account("embedding", ledger, budget)
    return ledger, budget


def spent(budget: Budget) -> int:
    return budget.spent()["embedding"].input_tokens


def words(count: int, name: str = "word") -> str:
    return " ".join(f"{name}{i}" for i in range(count))


def expected(text: str, size: int = 32) -> np.ndarray[Any, Any]:
    row = np.asarray(vector(text, size), np.float64)
    return row / np.linalg.norm(row)


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_are_in_the_order_of_the_texts_and_of_length_one(make: Any, scripted_server: Any, shuffle: bool) -> None:
    scripted_server.play(default={"shuffle": shuffle})
    embedder = make.embedder(scripted_server, batch=7)
    assert isinstance(embedder, Embedder)
    assert isinstance(embedder, CountsTokens)
    rows = embedder.embed(TEXTS)
    assert rows.dtype == np.float32
    assert rows.shape == (30, 32)
    np.testing.assert_allclose(rows, [expected(text) for text in TEXTS], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    bodies = [e["body"] for e in scripted_server.requests("embeddings")]
    assert all(body["encoding_format"] == "float" and len(body["input"]) <= 7 for body in bodies)
    assert "dimensions" not in bodies[0]


def test_tokens_are_the_server_s_own_to_the_last(make: Any, scripted_server: Any) -> None:
    embedder = make.embedder(scripted_server, batch=7)
    ledger, budget = bind(embedder)
    _, tokens = embedder.embed_counted(TEXTS)
    overhead = sum(usage.input_tokens for usage in ledger.totals().values())
    assert sum(tokens) == sum(count_tokens(text) for text in TEXTS)
    assert sum(tokens) + overhead == scripted_server.totals["prompt_tokens"] == spent(budget)


def test_a_text_without_content_is_not_sent(make: Any, scripted_server: Any) -> None:
    embedder = make.embedder(scripted_server)
    rows, tokens = embedder.embed_counted(["", "some words", " \n\t"])
    assert not rows[[0, 2]].any()
    assert tokens[0] == tokens[2] == 0
    assert all("" not in e["body"]["input"] for e in scripted_server.requests("embeddings"))
    assert embedder.embed([]).shape == (0, 32)


def test_the_size_is_learnt_from_the_first_call_or_set(make: Any, scripted_server: Any) -> None:
    embedder = make.embedder(scripted_server)
    ledger, _ = bind(embedder)
    assert embedder.dimension == 32
    assert embedder.dimension == 32
    assert ledger.totals()[("embedding", "probe")].calls == 1
    chosen = make.embedder(scripted_server, dimension=8)
    assert chosen.dimension == 8
    assert chosen.embed(["a few words"]).shape == (1, 8)
    assert scripted_server.requests("embeddings")[-1]["body"]["dimensions"] == 8


def test_another_size_than_before_is_one_clear_line(make: Any, scripted_server: Any) -> None:
    embedder = make.embedder(scripted_server)
    embedder.embed(["a few words"])
    scripted_server.play(default={"dimension": 16})
    with pytest.raises(RoleError, match="size 16 where earlier embeddings have 32"):
        embedder.embed(["some other words"])


def test_a_server_that_takes_no_dimensions_is_checked_all_the_same(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"refuse": ["dimensions"]})
    assert make.embedder(scripted_server, dimension=32).embed(["a few words"]).shape == (1, 32)
    with pytest.raises(RoleError, match="size 32 where dimension asks for 8"):
        make.embedder(scripted_server, dimension=8).embed(["a few words"])


@pytest.mark.parametrize(
    ("values", "match"), [("nan", "no finite"), ("null", "no finite|no list"), ("text", "no list")]
)
def test_values_that_are_no_numbers_are_refused(make: Any, scripted_server: Any, values: str, match: str) -> None:
    embedder = make.embedder(scripted_server)
    ledger, _ = bind(embedder)
    scripted_server.play(default={"values": values})
    with pytest.raises(RoleError, match=match):
        embedder.embed(["a few words"])
    paid = ledger.totals()[("embedding", "unusable")].input_tokens
    assert paid == scripted_server.totals["prompt_tokens"]


def test_a_zero_row_stays_zero(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"values": "zero"})
    assert not make.embedder(scripted_server).embed(["a few words"]).any()


@pytest.mark.parametrize("rows", [-1, 1])
def test_another_number_of_rows_is_refused(make: Any, scripted_server: Any, rows: int) -> None:
    embedder = make.embedder(scripted_server)
    embedder.embed(TEXTS)
    scripted_server.play(default={"rows": rows})
    with pytest.raises(RoleError, match=rf"gave {30 + rows} embeddings for 30 texts"):
        embedder.embed(TEXTS)


def test_an_instruction_is_put_before_every_text(make: Any, scripted_server: Any) -> None:
    make.embedder(scripted_server, instruction="Find the answer").embed(["who?"])
    assert scripted_server.requests("embeddings")[0]["body"]["input"] == ["Instruct: Find the answer\nQuery:who?"]


PHYSICAL = (
    "input ({given} tokens) is too large to process. increase the physical batch size (current batch size: {limit})"
)
REFUSALS = [
    {"refuse_text": 50},
    {"refuse_text": 50, "refuse_status": 500, "error": PHYSICAL},
    {"refuse_text": 50, "refuse_status": 500, "error": "the input length exceeds the context length"},
]


@pytest.mark.parametrize("behaviour", [{"cut_text": 50}, *REFUSALS], ids=str)
def test_a_text_that_is_too_long_is_embedded_in_pieces(
    make: Any, scripted_server: Any, behaviour: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    scripted_server.play(default=behaviour)
    embedder = make.embedder(scripted_server)
    _, budget = bind(embedder)
    long, short = words(400), words(3)
    rows, tokens = embedder.embed_counted([long, short, words(2, "other")])
    assert embedder.split_texts == 1
    assert len([r for r in caplog.records if "in pieces" in r.message]) == 1
    assert spent(budget) == scripted_server.totals["prompt_tokens"]
    assert sum(tokens) < spent(budget) or "refuse_text" in behaviour
    # Its end has its part in the row: a cut text would be that of its first words.
    pieces = [text for e in scripted_server.requests("embeddings") for text in e["body"]["input"]]
    assert any("word399" in piece and count_tokens(piece) <= 50 for piece in pieces)
    assert abs(float(rows[0] @ expected(long))) > 0.9
    np.testing.assert_allclose(rows[1], expected(short), atol=1e-6)
    # Whatever was met before, the row of a text is the same.
    again = make.embedder(scripted_server).embed([long])
    np.testing.assert_array_equal(again[0], embedder.embed([words(60, "x"), long])[1])
    np.testing.assert_array_equal(again[0], rows[0])


def test_checks_become_rare_as_longer_texts_are_known_to_be_whole(make: Any, scripted_server: Any) -> None:
    embedder = make.embedder(scripted_server)
    ledger, _ = bind(embedder)
    for count in range(20, 220, 10):
        embedder.embed([words(count), words(5)])
    assert ledger.totals()[("embedding", "check")].calls <= 6
    assert embedder.split_texts == 0


def test_a_limit_in_the_settings_needs_no_checks(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"cut_text": 50})
    embedder = make.embedder(scripted_server, max_input_tokens=50)
    ledger, budget = bind(embedder)
    _, tokens = embedder.embed_counted([words(200), words(3)])
    assert ("embedding", "check") not in ledger.totals()
    assert embedder.split_texts == 1
    assert spent(budget) == scripted_server.totals["prompt_tokens"]
    assert all(count_tokens(t) <= 50 for e in scripted_server.requests("embeddings")[-3:] for t in e["body"]["input"])
    assert tokens[0] > 50


def test_counts_that_cannot_be_right_end_with_an_error(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"usage": {"prompt_tokens": 1, "total_tokens": 1}})
    with pytest.raises(RoleError, match="set max_input_tokens"):
        make.embedder(scripted_server).embed([words(40)])


def test_no_usage_is_estimated_and_said_once(make: Any, scripted_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    scripted_server.play(default={"usage": "none"})
    embedder = make.embedder(scripted_server)
    _, tokens = embedder.embed_counted(["eight ch", "four"])
    assert tokens == [2, 1]
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1


def test_a_server_that_takes_small_batches_gets_small_ones(make: Any, scripted_server: Any) -> None:
    embedder = make.embedder(scripted_server, batch=16)
    embedder.embed(TEXTS)
    scripted_server.play(
        {"endpoint": "embeddings", "times": 1, "do": {"status": 422, "error": "batch size 16 > maximum allowed batch"}}
    )
    rows = embedder.embed(TEXTS)
    np.testing.assert_allclose(rows, [expected(text) for text in TEXTS], atol=1e-6)


def test_a_budget_ends_the_calls(make: Any, scripted_server: Any) -> None:
    embedder = make.embedder(scripted_server, batch=1, concurrency=2)
    bind(embedder, Budget(Allowance(calls=5)))
    with pytest.raises(BudgetError):
        embedder.embed(TEXTS)
    assert 5 <= len(scripted_server.requests("embeddings")) <= 6


def test_threads_learn_together(make: Any, scripted_server: Any) -> None:
    embedder = make.embedder(scripted_server)
    ledger, budget = bind(embedder)
    results: dict[int, Any] = {}

    def run(number: int) -> None:
        results[number] = embedder.embed(TEXTS)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        np.testing.assert_array_equal(results[number], results[0])
    assert ledger.totals()[("embedding", "check")].calls <= 2
    assert spent(budget) == scripted_server.totals["prompt_tokens"]


@pytest.mark.parametrize("status", [401, 404])
def test_failures_are_those_of_the_chat(make: Any, scripted_server: Any, status: int) -> None:
    scripted_server.play({"endpoint": "embeddings", "do": {"status": status}})
    with pytest.raises(RoleError):
        make.embedder(scripted_server).embed(["a few words"])


def answer(*entries: Any) -> dict[str, Any]:
    return {"data": list(entries), "usage": {"prompt_tokens": 3}}


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ([{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}], "0 to 1, each once"),
        ([{"index": 0, "embedding": [1.0]}, {"index": 2, "embedding": [1.0]}], "0 to 1, each once"),
        ([{"index": 0, "embedding": [1.0]}, {"index": "x", "embedding": [1.0]}], "0 to 1, each once"),
        ([{"index": 0, "embedding": [10**400]}, {"index": 1, "embedding": [1.0]}], "no list of numbers"),
        ([{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}], r"sizes \[1, 2\]"),
        ([{"index": 0, "embedding": []}, {"index": 1, "embedding": []}], r"sizes \[0\]"),
        ([{"index": 0, "embedding": [[1.0]]}, {"index": 1, "embedding": [[1.0]]}], "no list of numbers"),
        ([{"index": 0, "embedding": "no base64!"}, {"index": 1}], "holds no numbers"),
    ],
)
def test_rows_that_cannot_be_right_are_refused(entries: list[Any], match: str) -> None:
    with pytest.raises(RoleError, match=match):
        read_rows(answer(*entries), 2, "m")


def test_numbers_of_any_spelling_are_read() -> None:
    value = answer({"index": "1", "embedding": [0, 2]}, {"index": 0.0, "embedding": [3, 0]})
    found = read_rows({**value, "usage": {"prompt_tokens": 17.0}}, 2, "m")
    np.testing.assert_array_equal(found.rows, [[1, 0], [0, 1]])
    assert found.tokens == 17
    unnumbered = read_rows(answer({"index": None, "embedding": [0, 2]}, {"embedding": [3, 0]}), 2, "m")
    np.testing.assert_array_equal(unnumbered.rows, [[0, 1], [1, 0]])


def test_base64_is_read_where_a_server_insists() -> None:
    import base64

    text = base64.b64encode(np.asarray([3.0, 4.0], "<f4").tobytes()).decode()
    found = read_rows(answer({"index": 0, "embedding": text}), 1, "m")
    np.testing.assert_allclose(found.rows, [[0.6, 0.8]], rtol=1e-6)
    assert found.tokens == 3


def test_shares_add_up() -> None:
    for total in (0, 1, 7, 1000):
        assert sum(shares(["a", "bb" * 40, "", "ccc"], total)) == total
    assert shares(["aaaa", "aaaa"], 10) == [5, 5]
