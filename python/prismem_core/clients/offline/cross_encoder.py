"""A small cross-encoder that scores how well a text answers a question."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from prismem_core.clients.offline.model_files import MS_MARCO_MINILM, load
from prismem_core.digests import digest

_MEMO_PAIRS = 1 << 18


class PairStore(Protocol):
    """The part of an execution cache that holds scores of pairs."""

    def get_json(self, stage: str, key: str) -> Any: ...

    def put_json(self, stage: str, key: str, value: Any, *, cost: float = 0.0) -> None: ...


class CrossEncoder:
    """ms-marco-MiniLM-L-12-v2, int8: a logit a pair, higher is better.

    Each pair is run alone (dynamic quantisation makes a score depend on its batch) and remembered, in the process and
    in `store` under the stage `rerank`, at the cost of its tokens. A pair of more than 512 tokens loses the end of its
    longer text. Safe to call from several threads. Raises RoleError where the extra `offline` is not installed or its
    files are not the pinned ones.
    """

    def __init__(self, store: PairStore | None = None) -> None:
        self.identity = f"ms-marco-minilm-l12-int8/{MS_MARCO_MINILM.model_sha256[:12]}"
        self._store = store
        self._model = load(MS_MARCO_MINILM)
        self._memo: dict[str, float] = {}
        self._lock = threading.Lock()
        self.pairs_run = 0

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """The logit of each text, in order."""
        return [self._pair(question, text) for text in texts]

    def _pair(self, question: str, text: str) -> float:
        key = digest("rerank", self.identity, question, text)
        with self._lock:
            known = self._memo.get(key)
        if known is not None:
            return known
        stored = self._store.get_json("rerank", key) if self._store is not None else None
        value = float(stored) if stored is not None else self._run(question, text)
        with self._lock:
            while len(self._memo) >= _MEMO_PAIRS:
                del self._memo[next(iter(self._memo))]
            self._memo[key] = value
            self.pairs_run += stored is None
        if stored is None and self._store is not None:
            self._store.put_json("rerank", key, value, cost=-(-(len(question) + len(text)) // 4))
        return value

    def _run(self, question: str, text: str) -> float:
        encoded = self._model.tokenizer.encode(question, text)
        feed = {
            "input_ids": np.array([encoded.ids], np.int64),
            "attention_mask": np.array([encoded.attention_mask], np.int64),
            "token_type_ids": np.array([encoded.type_ids], np.int64),
        }
        output = self._model.session.run(None, {name: feed[name] for name in self._model.input_names})[0]
        # Six decimals: what differs beyond them is noise of the arithmetic, and ties then fall to the earlier text.
        return round(float(output.ravel()[0]), 6)
