"""A real vLLM embeds, behind a server and in this process: both meet the same tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core.roles.account import Account
from prismem_core.roles.budget import Budget
from tests.vllm.conftest import Place, make_embedder
from tests.vllm.models import EMBEDDER_POSITIONS, HIDDEN

TEXTS = ["Ana rows on the lake.", "Ben stays at home.", "", "Ana rows on the lake.", "The gate sticks again."]


@pytest.fixture(scope="module")
def embedder(embedder_place: Place) -> Iterator[Any]:
    client = make_embedder(embedder_place)
    yield client
    client.close()


def tokens(directory: Path, text: str) -> int:
    from tokenizers import Tokenizer

    return len(Tokenizer.from_file(str(directory / "tokenizer.json")).encode(text).ids)


def test_rows_have_length_1_and_keep_their_order(embedder: Any, tiny_embedder: Path) -> None:
    assert embedder.dimension == HIDDEN
    rows, counts = embedder.embed_counted(TEXTS)
    assert rows.dtype == np.float32 and rows.shape == (5, HIDDEN)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, [1, 1, 0, 1, 1], atol=1e-5)
    np.testing.assert_allclose(rows[0], rows[3], atol=1e-4)
    assert float(rows[0] @ rows[1]) < 0.999
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(rows, alone, atol=1e-4)
    assert sum(counts) == sum(tokens(tiny_embedder, text) for text in TEXTS if text)


def test_rows_are_the_last_tokens_of_the_model(embedder: Any, tiny_embedder: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(tiny_embedder), AutoTokenizer.from_pretrained(tiny_embedder)
    with torch.no_grad():
        states = model(**tokenizer(TEXTS[1], return_tensors="pt")).last_hidden_state[0, -1]
    expected = torch.nn.functional.normalize(states, dim=0).numpy()
    np.testing.assert_allclose(embedder.embed([TEXTS[1]])[0], expected, atol=2e-3)


def test_a_text_longer_than_the_model_is_split_and_said_once(
    embedder_place: Place, tiny_embedder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = " ".join(f"On day {i} Ana rowed to the far shore." for i in range(200))
    assert tokens(tiny_embedder, long) > 4 * EMBEDDER_POSITIONS
    embedder = make_embedder(embedder_place)
    budget = Budget()
    embedder.account = Account("embedding", budget=budget)
    try:
        with caplog.at_level(logging.INFO, "prismem_core"):
            rows, counts = embedder.embed_counted([long, TEXTS[0], long])
        np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(rows[0], rows[2], atol=1e-4)
        assert counts[0] >= tokens(tiny_embedder, long) > counts[1]
        assert sum("piece" in record.message or "split" in record.message for record in caplog.records) == 1
        assert budget.spent()["embedding"].input_tokens >= sum(counts)
    finally:
        embedder.close()


def test_an_instruction_stands_before_each_text(embedder_place: Place, embedder: Any, tiny_embedder: Path) -> None:
    told = make_embedder(embedder_place, instruction="Find what was said")
    try:
        rows, counts = told.embed_counted([TEXTS[0]])
        shown = f"Instruct: Find what was said\nQuery:{TEXTS[0]}"
        assert counts[0] == tokens(tiny_embedder, shown)
        np.testing.assert_allclose(rows, embedder.embed([shown]), atol=1e-4)
    finally:
        told.close()
