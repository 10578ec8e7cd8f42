"""Embedders and the cross-encoder: shapes, lengths, determinism, memory of pairs; the pinned models where installed."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from prismem_core.clients.offline import model_files
from prismem_core.clients.offline.cross_encoder import CrossEncoder
from prismem_core.clients.offline.embedders import BgeSmallEmbedder, HashingEmbedder
from prismem_core.clients.offline.roles import offline_roles
from prismem_core.errors import RoleError, SettingsError
from prismem_core.roles.protocols import Embedder

needs_models = pytest.mark.skipif(
    model_files.why_missing() is not None, reason=f"extra `offline`: {model_files.why_missing()}"
)
TEXTS = ["I adopted a kitten from the shelter", "She plays the cello", "", "!!", "kittens adopted", "the of and"]


def test_hashing_rows_have_length_one_or_zero() -> None:
    embedder = HashingEmbedder()
    assert isinstance(embedder, Embedder)
    rows = embedder.embed(TEXTS)
    assert rows.shape == (6, 1024) and rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1, 0, 0, 1, 1], abs=1e-6)
    assert rows[0] @ rows[4] > rows[0] @ rows[1] + 0.3
    assert embedder.embed([]).shape == (0, 1024)


def test_hashing_is_the_same_in_every_process() -> None:
    script = (
        "import hashlib; from prismem_core.clients.offline.embedders import HashingEmbedder;"
        "print(hashlib.sha256(HashingEmbedder().embed(['adopted a kitten', 'cello']).tobytes()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=_environment(seed)
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout != ""


def _environment(seed: str) -> dict[str, str]:
    import os

    return os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_a_hashing_row_does_not_depend_on_its_company() -> None:
    embedder = HashingEmbedder()
    together = embedder.embed(TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        assert np.array_equal(embedder.embed([text])[0], row)


@needs_models
def test_bge_rows() -> None:
    embedder = BgeSmallEmbedder(workers=2)
    rows = embedder.embed(TEXTS)
    assert rows.shape == (6, 384) and rows.dtype == np.float32
    assert np.linalg.norm(rows[[0, 1, 4]], axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    assert not rows[2].any()
    assert rows[0] @ rows[4] > rows[0] @ rows[1]
    one_by_one = [BgeSmallEmbedder(workers=1).embed([text])[0] for text in TEXTS]
    assert np.array_equal(np.stack(one_by_one), rows)


@needs_models
def test_bge_reads_the_end_of_long_texts() -> None:
    embedder = BgeSmallEmbedder(workers=1)
    start = "the weather report said nothing new today " * 80
    rows = embedder.embed([start, start + "a kitten was adopted from the shelter " * 60, "kitten adoption"])
    assert rows[1] @ rows[2] > rows[0] @ rows[2] + 0.02
    assert np.linalg.norm(rows[1]) == pytest.approx(1.0, abs=1e-5)


@needs_models
def test_cross_encoder_orders_and_remembers() -> None:
    class Store:
        def __init__(self) -> None:
            self.held: dict[tuple[str, str], Any] = {}

        def get_json(self, stage: str, key: str) -> Any:
            return self.held.get((stage, key))

        def put_json(self, stage: str, key: str, value: Any, *, cost: float = 0.0) -> None:
            self.held[stage, key] = value

    store = Store()
    question, texts = "What did she adopt?", ["She adopted a grey kitten.", "The train was late again."]
    first = CrossEncoder(store)
    scores = first.score(question, texts)
    assert scores[0] > scores[1] + 2
    assert {stage for stage, _ in store.held} == {"rerank"}
    assert first.score(question, texts[::-1]) == scores[::-1]
    assert first.pairs_run == 2
    second = CrossEncoder(store)
    assert second.score(question, texts) == scores
    assert second.pairs_run == 0
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: tuple(CrossEncoder().score(question, texts)), range(4))) == {tuple(scores)}


@needs_models
def test_a_changed_model_file_is_refused() -> None:
    changed = model_files.ModelFiles("bge_small_en", "0" * 64, "0" * 64)
    with pytest.raises(RoleError, match="SHA-256"):
        model_files.load(changed)


def test_without_the_extra_a_hashing_embedder_stands_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("prismem_core.clients.offline.roles.why_missing", lambda: "package 'x' is not installed")
    with caplog.at_level("WARNING", logger="prismem_core"):
        roles = offline_roles()
    assert roles.embedder.identity == HashingEmbedder().identity
    assert roles.chat.identity.endswith("none")
    assert len(caplog.records) == 1 and "not installed" in caplog.text
    with pytest.raises(SettingsError, match="bge-small"):
        offline_roles(embedder="bge-small")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "PACKAGE", "no-such-package-here")
    reason = model_files.why_missing()
    assert reason is not None and "no-such-package-here" in reason and "prismem-core[offline]" in reason


def test_nothing_optional_is_imported_with_the_client() -> None:
    script = (
        "import sys, prismem_core.clients.offline;"
        "print([m for m in ('onnxruntime', 'tokenizers', 'nltk') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=_environment("0")
    )
    assert run.stdout.strip() == "[]"
