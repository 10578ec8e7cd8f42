"""Roles behind the execution cache: a call that completed once is never made again, whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.cache import ExecutionCache
from prismem_core.digests import digest
from prismem_core.errors import RoleError
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import Chat, ChatReply, ChatRequest, Embedder

EMBEDDING_CHUNK = 32
EMBEDDING_STAGE = "embed"


class _Flights:
    """One computation a key at a time: the first to claim a key computes it, the others wait for its value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, Future[Any]] = {}

    def claim(self, keys: Sequence[str]) -> tuple[list[str], dict[str, Future[Any]]]:
        """The keys that are now the caller's to settle, and futures for those another thread is computing."""
        mine: list[str] = []
        others: dict[str, Future[Any]] = {}
        with self._lock:
            for key in keys:
                if key in self._pending:
                    others[key] = self._pending[key]
                else:
                    self._pending[key] = Future()
                    mine.append(key)
        return mine, others

    def settle(self, key: str, value: Any = None, error: BaseException | None = None) -> None:
        """Give every waiter the value or the error."""
        with self._lock:
            future = self._pending.pop(key, None)
        if future is None:
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)


class CachedChat:
    """A Chat that stores every complete reply under the digest of its request and the model's identity.

    Misses go to the model in sub-batches of its `batch` attribute (default: all at once) on up to `workers` threads;
    each reply is stored and entered in the ledger as soon as its sub-batch returns. A reply cut by the output limit is
    not stored.
    """

    def __init__(self, chat: Chat, cache: ExecutionCache, ledger: Ledger, *, workers: int = 1) -> None:
        self.identity = chat.identity
        self._chat = chat
        self._cache = cache
        self._ledger = ledger
        self._workers = max(1, workers)
        self._flights = _Flights()

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        """Replies in the order of `requests`; equal requests are sent once. `salt` keeps runs of equal requests
        apart.
        """
        keys = [digest("reply", self.identity, salt, request.digest) for request in requests]
        by_key = dict(zip(keys, requests, strict=True))
        replies: dict[str, ChatReply] = {}
        missing = []
        for key, request in by_key.items():
            found = self._cache.get_json(request.purpose, key)
            if found is None:
                missing.append(key)
            else:
                replies[key] = ChatReply(found["text"], found["input_tokens"], found["output_tokens"])
        if missing:
            replies.update(self._send(missing, by_key))
        return [replies[key] for key in keys]

    def _send(self, missing: list[str], by_key: dict[str, ChatRequest]) -> dict[str, ChatReply]:
        mine, others = self._flights.claim(missing)
        size = getattr(self._chat, "batch", None) or max(1, len(mine))
        chunks = [mine[i : i + size] for i in range(0, len(mine), size)]
        replies: dict[str, ChatReply] = {}
        settled: set[str] = set()
        try:
            for chunk, chunk_replies in _in_order(self._workers, lambda c: self._call(c, by_key), chunks):
                for key, reply in zip(chunk, chunk_replies, strict=True):
                    replies[key] = reply
                    self._flights.settle(key, reply)
                    settled.add(key)
        except BaseException as error:
            for key in mine:
                if key not in settled:
                    self._flights.settle(key, error=error)
            raise
        for key, future in others.items():
            replies[key] = future.result()
        return replies

    def _call(self, chunk: list[str], by_key: dict[str, ChatRequest]) -> list[ChatReply]:
        # Another thread may have stored some since they were missed; what is read here may be evicted at any time.
        stored = {key: self._cache.get_json(by_key[key].purpose, key) for key in chunk}
        fresh = [key for key in chunk if stored[key] is None]
        replies = dict(zip(fresh, self._chat.complete([by_key[key] for key in fresh]), strict=True)) if fresh else {}
        result = []
        for key in chunk:
            request, found = by_key[key], stored[key]
            if found is not None:
                result.append(ChatReply(found["text"], found["input_tokens"], found["output_tokens"]))
                continue
            reply = replies[key]
            if reply.finish_reason == "stop":
                record = {"text": reply.text, "input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
                self._cache.put_json(request.purpose, key, record)
            self._ledger.record("chat", request.purpose, key, reply.input_tokens, reply.output_tokens)
            result.append(reply)
        return result


def _in_order(
    workers: int, function: Callable[[list[str]], list[ChatReply]], chunks: list[list[str]]
) -> list[tuple[list[str], list[ChatReply]]]:
    if workers == 1 or len(chunks) == 1:
        return [(chunk, function(chunk)) for chunk in chunks]
    with ThreadPoolExecutor(min(workers, len(chunks))) as pool:
        futures = [pool.submit(function, chunk) for chunk in chunks]
        try:
            return [(chunk, future.result()) for chunk, future in zip(chunks, futures, strict=True)]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


class CachedEmbedder:
    """An Embedder that stores the row of every text under its digest and the embedder's identity."""

    def __init__(self, embedder: Embedder, cache: ExecutionCache, ledger: Ledger) -> None:
        self.identity = embedder.identity
        self.dimension = embedder.dimension
        self._embedder = embedder
        self._cache = cache
        self._ledger = ledger
        self._flights = _Flights()

    def embed(self, texts: Sequence[str], salt: str = "") -> NDArray[np.float32]:
        """Rows (n, d) float32 in the order of `texts`; (0, d) for no text. Raises RoleError for a malformed result.

        `salt` keeps runs of equal texts apart, as that of a chat does.
        """
        salts = (salt,) if salt else ()
        keys = [digest("embedding", self.identity, *salts, text) for text in texts]
        unique = dict(zip(keys, texts, strict=True))
        rows: dict[str, NDArray[np.float32]] = {}
        for key, row in zip(unique, self._cache.get_arrays(EMBEDDING_STAGE, list(unique)), strict=True):
            if row is not None:
                rows[key] = row
        missing = [key for key in unique if key not in rows]
        if missing:
            rows.update(self._compute(missing, unique))
        if not keys:
            return np.zeros((0, self.dimension), np.float32)
        return np.stack([rows[key] for key in keys]).astype(np.float32, copy=False)

    def _compute(self, missing: list[str], unique: dict[str, str]) -> dict[str, NDArray[np.float32]]:
        mine, others = self._flights.claim(missing)
        rows: dict[str, NDArray[np.float32]] = {}
        try:
            for start in range(0, len(mine), EMBEDDING_CHUNK):
                chunk = mine[start : start + EMBEDDING_CHUNK]
                for key, row in zip(chunk, self._cache.get_arrays(EMBEDDING_STAGE, chunk), strict=True):
                    if row is not None:
                        rows[key] = row
                fresh = [key for key in chunk if key not in rows]
                if fresh:
                    rows.update(self._call(fresh, unique))
                for key in chunk:
                    self._flights.settle(key, rows[key])
        except BaseException as error:
            for key in mine:
                self._flights.settle(key, error=error)
            raise
        for key, future in others.items():
            rows[key] = future.result()
        return rows

    def _call(self, keys: list[str], unique: dict[str, str]) -> dict[str, NDArray[np.float32]]:
        result = np.asarray(self._embedder.embed([unique[key] for key in keys]), np.float32)
        expected = (len(keys), self.dimension)
        if result.shape != expected or not np.isfinite(result).all():
            raise RoleError(
                f"embedder {self.identity!r} returned shape {result.shape} or non-finite values; "
                f"expected finite rows of shape {expected}"
            )
        rows = {}
        for key, row in zip(keys, result, strict=True):
            self._cache.put_array(EMBEDDING_STAGE, key, row)
            self._ledger.record("embedder", EMBEDDING_STAGE, key, -(-len(unique[key]) // 4), 0)
            rows[key] = row
        return rows
