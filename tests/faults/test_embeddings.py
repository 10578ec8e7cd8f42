"""Embedding servers: rows are checked and put in order, long texts never cut in silence, all tokens counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prismem_core.errors import RoleError
from prismem_core.roles.account import Account
from tests.faults.conftest import Chats, one_clear_line, unit_rows
from tests.scripted_server.answers import count_tokens, vector

TEXTS = [f"Ines wrote letter {number} to the harbour office" for number in range(10)]


def expected(text: str, size: int = 32) -> Any:
    row = np.array(vector(text, size), np.float32)
    return row / np.linalg.norm(row)


def refused(chats: Chats, *words: str, texts: list[str] = TEXTS, **settings: Any) -> str:
    with pytest.raises(RoleError) as caught:
        chats.embedder(retries=1, **settings).embed(texts)
    text = str(caught.value)
    one_clear_line(text)
    assert "harbour" not in text
    for word in words:
        assert word in text
    return text


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_rows_stand_where_their_texts_do(chats: Chats, shuffle: bool, batch: int) -> None:
    chats.server.play({"endpoint": "embeddings", "do": {"shuffle": shuffle}})
    rows = chats.embedder(batch=batch).embed(TEXTS)
    assert rows.dtype == np.float32 and rows.shape == (10, 32)
    np.testing.assert_allclose(rows, [expected(text) for text in TEXTS], atol=1e-6)
    sent = [e["body"]["input"] for e in chats.server.requests("embeddings")]
    assert max(len(texts) for texts in sent) <= batch
    assert all(e["body"]["encoding_format"] == "float" for e in chats.server.requests("embeddings"))


def test_tokens_are_those_of_the_server(chats: Chats) -> None:
    embedder = chats.embedder(batch=4)
    embedder.account = Account("embedder", chats.ledger)
    rows, tokens = embedder.embed_counted(TEXTS)
    unit_rows(rows)
    assert len(tokens) == len(TEXTS)
    assert sum(tokens) == sum(count_tokens(text) for text in TEXTS)
    # Beside the texts the client may check how long a text the model reads.
    assert sum(tokens) + chats.usage().input_tokens == chats.server.totals["prompt_tokens"]


@pytest.mark.parametrize("values", ["nan", "null", "text"])
def test_a_row_that_is_no_row_is_refused(chats: Chats, values: str) -> None:
    chats.server.play({"endpoint": "embeddings", "do": {"values": values}})
    refused(chats)


@pytest.mark.parametrize("rows", [-1, 1])
def test_a_count_that_does_not_fit_is_refused(chats: Chats, rows: int) -> None:
    chats.server.play({"endpoint": "embeddings", "do": {"rows": rows}})
    refused(chats, f"{1 + rows} embeddings for 1 text", texts=TEXTS[:1])


def test_rows_of_another_size_name_both(chats: Chats) -> None:
    chats.server.play({"endpoint": "embeddings", "skip": 2, "do": {"dimension": 48}}, default={"dimension": 32})
    with pytest.raises(RoleError) as caught:
        embedder = chats.embedder(batch=1, concurrency=1)
        embedder.embed(TEXTS)
    one_clear_line(str(caught.value))
    assert "48" in str(caught.value) and "32" in str(caught.value)


def test_the_size_of_the_settings_is_asked_for_and_checked(chats: Chats) -> None:
    assert chats.embedder(dimension=16).embed(TEXTS).shape == (10, 16)
    assert {e["body"].get("dimensions") for e in chats.server.requests("embeddings")} == {16}


def test_a_zero_row_stays_zero(chats: Chats) -> None:
    chats.server.play({"endpoint": "embeddings", "do": {"values": "zero"}})
    rows = chats.embedder(dimension=32).embed(TEXTS)
    assert not rows.any()


def test_an_empty_text_is_harmless(chats: Chats) -> None:
    rows = chats.embedder(dimension=32).embed(["", TEXTS[0], "   "])
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows[1], expected(TEXTS[0]), atol=1e-6)


LONG = " ".join(f"word{number}" for number in range(400))


def cut_row(limit: int) -> Any:
    return expected(LONG.encode()[: 4 * limit].decode())


@pytest.mark.parametrize("limit", [{"cut_text": 100}, {"refuse_text": 100}], ids=["cut in silence", "refused"])
def test_a_text_beyond_the_limit_is_split_never_cut(
    chats: Chats, limit: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    chats.server.play({"endpoint": "embeddings", "do": limit})
    rows = chats.embedder().embed([*TEXTS, LONG])
    unit_rows(rows)
    np.testing.assert_allclose(rows[:10], [expected(text) for text in TEXTS], atol=1e-6)
    # The end of the text has had its say: the row is close to that of the whole, not to that of its beginning.
    assert rows[10] @ expected(LONG) > 0.95 > rows[10] @ cut_row(100)


def test_a_limit_of_the_settings_is_kept(chats: Chats) -> None:
    rows = chats.embedder(max_input_tokens=150).embed([LONG])
    unit_rows(rows)
    longest = max(count_tokens(text) for e in chats.server.requests("embeddings") for text in e["body"]["input"])
    assert longest <= 160


def test_every_token_is_accounted_for_when_texts_are_split(chats: Chats) -> None:
    chats.server.play({"endpoint": "embeddings", "do": {"cut_text": 100}})
    embedder = chats.embedder(dimension=None)
    embedder.account = Account("embedder", chats.ledger)
    _, tokens = embedder.embed_counted([*TEXTS, LONG])
    assert sum(tokens) + chats.usage().input_tokens == chats.server.totals["prompt_tokens"]


def test_a_long_text_that_is_read_whole_is_not_split(chats: Chats) -> None:
    rows = chats.embedder().embed([LONG])
    np.testing.assert_allclose(rows[0], expected(LONG), atol=1e-6)


@pytest.mark.parametrize("failure", [{"status": 503}, {"close": "body"}, {"status": 429}], ids=str)
def test_a_passing_failure_is_tried_again(chats: Chats, failure: dict[str, Any]) -> None:
    chats.server.play({"endpoint": "embeddings", "times": 1, "do": failure})
    unit_rows(chats.embedder().embed(TEXTS))


@pytest.mark.parametrize(
    "failure", [{"html": True}, {"status": 401}, {"status": 413}, {"body": '{"data": 7}'}], ids=str
)
def test_what_will_not_pass_is_one_line(chats: Chats, failure: dict[str, Any]) -> None:
    chats.server.play({"endpoint": "embeddings", "do": failure})
    refused(chats)


def test_an_instruction_is_put_before_every_text(chats: Chats) -> None:
    chats.embedder(dimension=32, instruction="Find what answers the question").embed(["Where is Pixel?"])
    sent = [text for e in chats.server.requests("embeddings") for text in e["body"]["input"]]
    assert sent[0] == "Instruct: Find what answers the question\nQuery:Where is Pixel?"
    assert all(text.startswith("Instruct: Find what answers the question\nQuery:") for text in sent)


def test_no_text_is_no_call(chats: Chats) -> None:
    assert chats.embedder(dimension=32).embed([]).shape == (0, 32)
    assert chats.server.state["arrived"] == 0
