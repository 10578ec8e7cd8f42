"""One order to a worker: send it, serve the program's backend calls within the budget, take the answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError, CandidateError, LimitError, SandboxError
from prismem_core.program.interface import COLLECTION_CALLS, OUT_CHAR_BUDGET
from prismem_core.program.sandbox.collection_calls import Collections, read
from prismem_core.program.sandbox.engine_channel import EngineChannel, Meter
from prismem_core.program.sandbox.failures import InvalidResult
from prismem_core.program.sandbox.frames import FrameError, plain_text, printable
from prismem_core.program.sandbox.limits import BackendHandler, Budget, CallReport, CollectionBackend
from prismem_core.program.sandbox.sealed_rows import SealedRows

_INVALID_CODES = ("index_return", "retrieve_type", "retrieve_length")
_MESSAGE_CHARS = 2000


class Call:
    """Counts and serves what one order causes; the counts are the engine's own.

    Embeddings that come again go out of `sealed`. `collections` are those of the worker, None where its program may
    have none; they grow only while `building`.
    """

    def __init__(
        self,
        what: str,
        serial: int,
        channel: EngineChannel,
        meter: Meter,
        budget: Budget,
        sealed: SealedRows,
        collections: Collections | None = None,
        *,
        building: bool = False,
    ) -> None:
        self._what = what
        self._serial = serial
        self._channel = channel
        self._meter = meter
        self._budget = budget
        self._sealed = sealed
        self._collections = collections
        self._building = building
        self._sent_before, self._received_before = channel.sent_bytes, channel.received_bytes
        self._ask_chars = self._embed_chars = 0
        self._ask_calls = self._embed_calls = self._embed_texts = self._collection_calls = self._queries = 0

    def order(self, message: Mapping[str, Any]) -> None:
        """Send the order; ArgumentError, with nothing sent, if its parts are too large or not for JSON."""
        order = {**message, "serial": self._serial}
        try:
            self._channel.send(order, self._meter)
        except FrameError as error:
            raise ArgumentError(f"{self._what}: {error}; pass finite JSON values below 64 MiB a call") from None

    def answer(self, backend: BackendHandler | None) -> dict[str, Any]:
        """Serve backend calls until the worker's answer comes.

        Raises what the handler raises, LimitError at a limit, FrameError for a message that is not legal here.
        """
        while True:
            frame = self._channel.receive(self._meter)
            call = frame.pop("call", None)
            if call is None:
                # An answer that was sent twice must not stand for the next order's.
                if frame.pop("serial", None) != self._serial:
                    raise FrameError("an answer that belongs to no order")
                self._meter.check()
                return frame
            if backend is None:
                raise FrameError("a call to the backend where none is allowed")
            if call == "ask":
                self._ask(frame, backend)
            elif call == "embed":
                self._embed(frame, backend)
            elif self._collections is not None and call in COLLECTION_CALLS:
                self._collection(call, frame, backend, self._collections)
            else:
                raise FrameError("a call to the backend that does not exist")

    def report(self) -> CallReport:
        """What the order has used so far."""
        return CallReport(
            self._ask_calls,
            self._embed_calls,
            self._embed_texts,
            self._collection_calls,
            self._meter.cpu_seconds,
            self._meter.wall_seconds,
            self._meter.memory_bytes,
            self._channel.sent_bytes - self._sent_before,
            self._channel.received_bytes - self._received_before,
        )

    def _ask(self, frame: dict[str, Any], backend: BackendHandler) -> None:
        prompt, system_prompt, json_object = (frame.get(name) for name in ("prompt", "system_prompt", "json_object"))
        if not (isinstance(prompt, str) and isinstance(system_prompt, str | None) and isinstance(json_object, bool)):
            raise FrameError("ask came with arguments of the wrong kind")
        self._ask_calls += 1
        self._ask_chars += len(prompt) + len(system_prompt or "")
        self._refuse_above(self._ask_calls, self._budget.ask_calls, "calls of backend.ask")
        self._refuse_above(self._ask_chars, self._budget.ask_chars, "characters of prompts for backend.ask")
        with self._meter.engine_time():
            text = backend.ask(
                plain_text(prompt), None if system_prompt is None else plain_text(system_prompt), json_object
            )
        if type(text) is not str:
            raise SandboxError(f"the backend handler's ask must return a str, it returned {type(text).__name__}")
        try:
            self._channel.send({"text": text}, self._meter)
        except FrameError as error:
            raise SandboxError(f"the backend handler's answer is too long: {error}") from None

    def _embed(self, frame: dict[str, Any], backend: BackendHandler) -> None:
        texts = frame.get("texts")
        if not isinstance(texts, list) or not set(map(type, texts)) <= {str}:
            raise FrameError("embed came with something else than a list of texts")
        self._embed_calls += 1
        self._embed_texts += len(texts)
        self._embed_chars += sum(map(len, texts))
        most = self._budget.embed_texts
        self._refuse_above(self._embed_texts, most, "texts for backend.embed")
        self._refuse_above(self._embed_calls, most, "calls of backend.embed")
        self._refuse_above(self._embed_chars, self._budget.embed_chars, "characters for backend.embed")
        with self._meter.engine_time():
            vectors = _checked(backend.embed([plain_text(text) for text in texts]), len(texts))
        self._send_rows(vectors)

    def _send_rows(self, rows: NDArray[np.float32]) -> None:
        sealed = self._sealed.descriptor(rows)
        message = {"shape": list(rows.shape), "sealed": sealed is not None}
        if sealed is None:
            self._channel.send(message, self._meter, rows=rows)
            return
        try:
            self._channel.send(message, self._meter, sealed)
        finally:
            os.close(sealed)

    def _collection(self, name: str, frame: dict[str, Any], backend: BackendHandler, collections: Collections) -> None:
        if not isinstance(backend, CollectionBackend):
            raise SandboxError(f"the backend handler {type(backend).__name__} serves no collections")
        call, budget = read(name, frame), self._budget
        self._collection_calls += 1
        self._refuse_above(self._collection_calls, budget.collection_calls, "calls of collections", call.line)
        self._embed_texts += len(call.texts)
        self._embed_chars += sum(map(len, call.texts))
        self._refuse_above(self._embed_texts, budget.embed_texts, "texts for embeddings and collections", call.line)
        of = "characters for embeddings and collections"
        self._refuse_above(self._embed_chars, budget.embed_chars, of, call.line)
        if not call.adds:
            self._queries += len(call.texts)
            most = budget.collection_queries
            self._refuse_above(self._queries, most, "texts looked for in collections", call.line)
        with self._meter.engine_time():
            reply = collections.serve(call, backend, building=self._building)
        self._channel.send(reply, self._meter)

    def _refuse_above(self, count: int, most: int, of: str, line: int | None = None) -> None:
        if count > most:
            raise LimitError("limit:calls", f"{self._what} made more than {most} {of}", line)


def _checked(vectors: Any, rows: int) -> NDArray[np.float32]:
    array = np.asarray(vectors)
    if array.ndim != 2 or array.shape[0] != rows or array.dtype.kind != "f":
        raise SandboxError(
            f"the backend handler's embed must return a float array of shape ({rows}, d), "
            f"it returned {array.dtype} {array.shape}"
        )
    return np.ascontiguousarray(array, dtype="<f4")


def none_result(answer: Mapping[str, Any]) -> None:
    """Check the answer to an order that returns nothing; raises the failure it tells, FrameError if it is no answer."""
    raise_failure(answer)
    if dict(answer) != {"done": None}:
        raise FrameError("an answer that is none")


def text_result(answer: Mapping[str, Any]) -> str:
    """The text that `retrieve` returned, checked here whatever the worker says of it."""
    raise_failure(answer)
    text = answer.get("done")
    if type(text) is not str:
        raise FrameError("an answer that is none")
    if len(text) > OUT_CHAR_BUDGET:
        raise InvalidResult(
            "retrieve_length", f"retrieve() returned {len(text)} characters; at most {OUT_CHAR_BUDGET} are allowed"
        )
    return plain_text(text)


def raise_failure(answer: Mapping[str, Any]) -> None:
    """Raise CandidateError, LimitError or InvalidResult if the worker reports a failure of the program."""
    if not answer.keys() & {"failed", "invalid"}:
        return
    message, line = answer.get("message"), answer.get("line")
    if not isinstance(message, str) or not (line is None or type(line) is int):
        raise FrameError("a failure told in the wrong form")
    message = printable(message[:_MESSAGE_CHARS])
    if answer.get("invalid") in _INVALID_CODES:
        raise InvalidResult(answer["invalid"], message)
    if answer.get("failed") == "memory":
        raise LimitError("limit:memory", f"the program needs more memory than its limit: {message}", line)
    if answer.get("failed") == "error":
        raise CandidateError("error", message, line)
    raise FrameError("a failure of an unknown kind")
