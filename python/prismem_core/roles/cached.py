"""Roles behind the execution cache: a call that completed once is never made again, whoever asks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prismem_core.cache import ExecutionCache, decode_json, encode_json
from prismem_core.digests import digest
from prismem_core.errors import RoleError
from prismem_core.roles.account import Account
from prismem_core.roles.budget import Budget
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.meter import Meter
from prismem_core.roles.protocols import Chat, ChatReply, ChatRequest, CompletesEach, Embedder, embed_counted
from prismem_core.roles.repeats import Repeats

EMBEDDING_CHUNK = 32
EMBEDDING_STAGE = "embed"
DIMENSION_STAGE = "dimension"


def _bind(client: object, role: str, ledger: Ledger, budget: Budget | None) -> Account | None:
    """The account that the role's calls are admitted by and settled with; None where the client does both itself."""
    account = Account(role, ledger, budget)
    if hasattr(client, "account"):
        client.account = account
        return None
    return account


class _Unstored:
    """Replies that must not be stored, kept for the threads that waited for them and no longer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking: Counter[str] = Counter()
        self._replies: dict[str, ChatReply] = {}

    @contextmanager
    def asking(self, keys: Sequence[str]) -> Iterator[None]:
        """Keeps what is left for these keys, by whichever thread, until every thread that asks has gone."""
        with self._lock:
            self._asking.update(keys)
        try:
            yield
        finally:
            with self._lock:
                self._asking.subtract(keys)
                for key in keys:
                    if self._asking[key] <= 0:
                        del self._asking[key]
                        self._replies.pop(key, None)

    def leave(self, key: str, reply: ChatReply) -> None:
        """Leaves a reply to those who ask for it now."""
        with self._lock:
            self._replies[key] = reply

    def find(self, key: str) -> ChatReply | None:
        """A reply that was left."""
        with self._lock:
            return self._replies.get(key)


class CachedChat:
    """A Chat that stores every complete reply under the digest of its request and the model's identity.

    Misses go to the model in sub-batches of its `batch` attribute (default: all of a purpose) on up to `workers`
    threads. Each sub-batch is leased, looked for once more, sent, stored with its tokens as cost and entered in the
    ledger, so that of all threads and processes on one cache one pays for a call. A model that `CompletesEach` has
    each reply stored and entered as it comes. A reply cut by the output limit is not stored; threads that waited for it
    get it all the same, another process makes the call itself.

    `role` is what the ledger and the budget call the model. A model without an `account` of its own has its sub-batches
    admitted and settled here. With `lasting` the failure of one job ends no other: `stop` stops nothing but what is to
    be given up at once, and later calls are made. `temperature` is that of all calls, None that of each request; at 0
    equal requests should have equal replies, and a model that gives others is told of.
    """

    def __init__(
        self,
        chat: Chat,
        cache: ExecutionCache,
        ledger: Ledger,
        *,
        workers: int = 1,
        role: str = "chat",
        budget: Budget | None = None,
        lasting: bool = False,
        temperature: float | None = None,
    ) -> None:
        self._temperature = temperature
        self._repeats = Repeats(chat.identity)
        self.identity = chat.identity
        self._lasting = lasting
        self._chat = chat
        self._role = role
        self._account = _bind(chat, role, ledger, budget)
        self._cache = cache
        self._ledger = ledger
        self._workers = max(1, workers)
        self._unstored = _Unstored()
        self._stopped = False

    @property
    def concurrent(self) -> bool:
        """Whether calls of several threads go out side by side."""
        return bool(getattr(self._chat, "concurrent", False))

    @property
    def meter(self) -> Meter | None:
        """The meter of the model's slots, where it has one."""
        return getattr(self._chat, "meter", None)

    def stop(self, *, at_once: bool = False) -> None:
        """Start no further call, from whichever thread; those under way are kept, or given up `at_once`, where the
        model can do so. For the end of a job that failed.
        """
        self._stopped = not self._lasting
        stop = getattr(self._chat, "stop", None)
        if stop is not None and (at_once or not self._lasting):
            stop(at_once=at_once)

    def complete(self, requests: Sequence[ChatRequest], salt: str = "") -> list[ChatReply]:
        """Replies in the order of `requests`; equal requests are sent once. `salt` keeps runs of equal requests
        apart.
        """
        keys = [digest("reply", self.identity, salt, request.digest) for request in requests]
        by_purpose: dict[str, dict[str, ChatRequest]] = {}
        for key, request in zip(keys, requests, strict=True):
            by_purpose.setdefault(request.purpose, {})[key] = request
        replies: dict[str, ChatReply] = {}
        chunks: list[_Chunk] = []
        for purpose, own in by_purpose.items():
            found = self._look(purpose, list(own))
            replies.update(found)
            missing = [key for key in own if key not in found]
            size = getattr(self._chat, "batch", None) or max(1, len(missing))
            chunks += [
                _Chunk(purpose, {key: own[key] for key in missing[i : i + size]}) for i in range(0, len(missing), size)
            ]
        for got in _in_order(self._workers, self._answer, chunks):
            replies.update(got)
        return [replies[key] for key in keys]

    def _look(self, purpose: str, keys: list[str]) -> dict[str, ChatReply]:
        """The stored replies among `keys`."""
        found = {}
        for key, data in zip(keys, self._cache.get_many(purpose, keys), strict=True):
            if data is not None:
                reply = decode_json(data)
                found[key] = ChatReply(reply["text"], reply["input_tokens"], reply["output_tokens"], cached=True)
        return found

    def _answer(self, chunk: _Chunk) -> dict[str, ChatReply]:
        keys = list(chunk.requests)
        with self._unstored.asking(keys), self._cache.lease(chunk.purpose, keys):
            # Another thread or process may have the replies by now. What is read here may be evicted at any time.
            replies = self._look(chunk.purpose, keys)
            for key in keys:
                cut = None if key in replies else self._unstored.find(key)
                if cut is not None:
                    replies[key] = cut
            fresh = {key: request for key, request in chunk.requests.items() if key not in replies}
            if fresh:
                names = list(fresh)
                for sent in self._send(list(fresh.values())):
                    got = {names[position]: reply for position, reply in sent.items()}
                    self._keep(chunk.purpose, got)
                    self._compare(fresh, got)
                    replies.update(got)
                _check_complete(names, replies, self.identity)
        return replies

    def _compare(self, requests: Mapping[str, ChatRequest], replies: Mapping[str, ChatReply]) -> None:
        for key, reply in replies.items():
            request = requests[key]
            temperature = request.temperature if self._temperature is None else self._temperature
            if temperature == 0 and reply.finish_reason == "stop":
                self._repeats.note(request.digest, reply.text.encode("utf-8", "surrogatepass"))

    def _send(self, requests: list[ChatRequest]) -> Iterator[dict[int, ChatReply]]:
        """Replies by position, in the portions in which the model hands them over."""
        if self._stopped:
            raise RoleError("the job has been stopped: no further call is made")
        if self._account is not None:
            self._account.admit()
        if isinstance(self._chat, CompletesEach):
            for position, reply in self._chat.complete_each(requests):
                self._settle([reply])
                yield {position: reply}
            return
        replies = self._chat.complete(requests)
        self._settle(replies)
        yield dict(enumerate(replies))

    def _settle(self, replies: Sequence[ChatReply]) -> None:
        if self._account is not None:
            for reply in replies:
                self._account.settle(reply.input_tokens, reply.output_tokens)

    def _keep(self, purpose: str, replies: dict[str, ChatReply]) -> None:
        # The cache first: a process that is killed in between misses a line of the ledger, but pays for nothing again.
        whole = {key: reply for key, reply in replies.items() if reply.finish_reason == "stop"}
        records = [
            {"text": reply.text, "input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
            for reply in whole.values()
        ]
        tokens = [reply.input_tokens + reply.output_tokens for reply in whole.values()]
        self._cache.put_many(purpose, list(whole), [encode_json(record) for record in records], cost=tokens)
        for key, reply in replies.items():
            if key not in whole:
                self._unstored.leave(key, reply)
            self._ledger.record(self._role, purpose, key, reply.input_tokens, reply.output_tokens)


def _check_complete(keys: Sequence[str], replies: Mapping[str, ChatReply], identity: str) -> None:
    missing = sum(key not in replies for key in keys)
    if missing:
        raise RoleError(f"chat {identity!r} left {missing} of {len(keys)} requests without a reply")


@dataclass(frozen=True)
class _Chunk:
    """Requests of one purpose by key that go to the model together."""

    purpose: str
    requests: Mapping[str, ChatRequest]


def _in_order(
    workers: int, function: Callable[[_Chunk], dict[str, ChatReply]], chunks: list[_Chunk]
) -> list[dict[str, ChatReply]]:
    if workers == 1 or len(chunks) <= 1:
        return [function(chunk) for chunk in chunks]
    with ThreadPoolExecutor(min(workers, len(chunks))) as pool:
        futures = [pool.submit(function, chunk) for chunk in chunks]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


class CachedEmbedder:
    """An Embedder that stores the row of every text under its digest and the embedder's identity.

    Misses are embedded in chunks of the embedder's attribute `chunk` (default 32), each leased, looked for once more
    and stored with the texts' tokens as cost, so that of all threads and processes on one cache one pays for a text.
    The tokens are those the model counted, where it does (`CountsTokens`), else a quarter of the characters.
    """

    def __init__(
        self,
        embedder: Embedder,
        cache: ExecutionCache,
        ledger: Ledger,
        *,
        role: str = "embedder",
        budget: Budget | None = None,
    ) -> None:
        self.identity = embedder.identity
        self._repeats = Repeats(embedder.identity)
        self._embedder = embedder
        self._cache = cache
        self._ledger = ledger
        self._role = role
        self._account = _bind(embedder, role, ledger, budget)
        self._chunk: int = getattr(embedder, "chunk", EMBEDDING_CHUNK)
        self._dimension: int | None = None

    @property
    def concurrent(self) -> bool:
        """Whether calls of several threads go out side by side."""
        return bool(getattr(self._embedder, "concurrent", False))

    @property
    def meter(self) -> Meter | None:
        """The meter of the model's slots, where it has one."""
        return getattr(self._embedder, "meter", None)

    @property
    def dimension(self) -> int:
        """Size of a row; a model that has to be called for it is called once for each cache."""
        if self._account is not None:
            return self._embedder.dimension
        if self._dimension is None:
            key = digest("dimension", self.identity)
            known = self._cache.get_json(DIMENSION_STAGE, key)
            if known is None:
                known = self._embedder.dimension
                self._cache.put_json(DIMENSION_STAGE, key, known, cost=1)
            self._dimension = int(known)
        return self._dimension

    def embed(self, texts: Sequence[str], salt: str = "") -> NDArray[np.float32]:
        """Rows (n, d) float32 in the order of `texts`; (0, d) for no text. Raises RoleError for a malformed result.

        `salt` keeps runs of equal texts apart, as that of a chat does.
        """
        salts = (salt,) if salt else ()
        keys = [digest("embedding", self.identity, *salts, text) for text in texts]
        unique = dict(zip(keys, texts, strict=True))
        order = list(unique)
        rows, found = self._cache.get_rows(EMBEDDING_STAGE, order, self.dimension)
        missing = np.flatnonzero(~found)
        for start in range(0, len(missing), self._chunk):
            chunk = missing[start : start + self._chunk]
            rows[chunk] = self._compute([order[i] for i in chunk], unique)
        if len(order) == len(keys):
            return rows
        positions = {key: i for i, key in enumerate(order)}
        return rows[[positions[key] for key in keys]]

    def _compute(self, keys: list[str], unique: Mapping[str, str]) -> NDArray[np.float32]:
        """Rows of a chunk, in its order."""
        with self._cache.lease(EMBEDDING_STAGE, keys):
            rows, found = self._cache.get_rows(EMBEDDING_STAGE, keys, self.dimension)
            fresh = np.flatnonzero(~found)
            if len(fresh):
                rows[fresh] = self._call([keys[i] for i in fresh], unique)
        return rows

    def _call(self, keys: list[str], unique: Mapping[str, str]) -> NDArray[np.float32]:
        texts = [unique[key] for key in keys]
        if self._account is not None:
            self._account.admit()
        embedded, tokens = embed_counted(self._embedder, texts)
        result = np.asarray(embedded, np.float32)
        self._check(result, len(keys))
        self._cache.put_rows(EMBEDDING_STAGE, keys, result, cost=list(tokens))
        for text, row in zip(texts, result, strict=True):
            self._repeats.note(digest("text", text), row.tobytes())
        for key, count in zip(keys, tokens, strict=True):
            self._ledger.record(self._role, EMBEDDING_STAGE, key, count, 0)
            if self._account is not None:
                self._account.settle(count, 0)
        return result

    def _check(self, rows: NDArray[np.float32], count: int) -> None:
        if rows.ndim == 2 and len(rows) == count and rows.shape[1] != self.dimension:
            raise RoleError(
                f"embedder {self.identity!r} returned rows of {rows.shape[1]} values, but its rows here have "
                f"{self.dimension}: another model is served under this name; serve the one before, or start with an "
                "empty cache"
            )
        if rows.shape != (count, self.dimension) or not np.isfinite(rows).all():
            raise RoleError(
                f"embedder {self.identity!r} returned shape {rows.shape} or non-finite values; "
                f"expected finite rows of shape {(count, self.dimension)}"
            )
