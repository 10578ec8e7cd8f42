"""What runs inside a worker: loads one program, answers the engine's orders, forks a copy of itself on order.

The engine takes everything this process says as a claim, because the program shares the process. Each failure is
told with the program's own lines and without host paths.
"""

from __future__ import annotations

import gc
import io
import linecache
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ProgramError
from prismem_core.program.interface import OUT_CHAR_BUDGET
from prismem_core.program.sandbox import confinement, frames, graft
from prismem_core.program.sandbox.blocking_channel import BlockingChannel
from prismem_core.program.sandbox.collection import Collection
from prismem_core.program.sandbox.kernel import resource_limits, seccomp
from prismem_core.program.sandbox.namespace import PROGRAM_FILE, load
from prismem_core.program.sandbox.sealed_memory import map_rows

_MESSAGE_CHARS = 500
_TOLD_LINES = 3


class Backend:
    """The `backend` a program gets: each call is a frame to the engine and its answer.

    It holds the two functions that it needs, so that no plain attribute leads from it to the worker.
    """

    __slots__ = ("_request", "_request_rows")

    def __init__(
        self,
        request: Callable[[dict[str, Any]], dict[str, Any]],
        request_rows: Callable[[dict[str, Any]], NDArray[np.float32]],
    ) -> None:
        self._request = request
        self._request_rows = request_rows

    def ask(self, prompt: str, system_prompt: str | None = None, json_object: bool = False) -> str:
        if not isinstance(prompt, str):
            raise TypeError(f"backend.ask: prompt must be a str, not {type(prompt).__name__}")
        if not (system_prompt is None or isinstance(system_prompt, str)):
            raise TypeError(f"backend.ask: system_prompt must be a str or None, not {type(system_prompt).__name__}")
        answer = self._request(
            {"call": "ask", "prompt": prompt, "system_prompt": system_prompt, "json_object": bool(json_object)}
        )
        return str(answer["text"])

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise TypeError("backend.embed: texts must be a list of str")
        return self._request_rows({"call": "embed", "texts": texts})

    def __getattr__(self, name: str) -> Any:
        if name == "collection":
            raise AttributeError('backend.collection needs interface="engine"; this run has interface="paper"')
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class CollectionBackend(Backend):
    """The `backend` of interface "engine"."""

    __slots__ = ()

    def collection(self) -> Collection:
        """A new collection without texts."""
        return Collection(self._request)


class _Discard(io.TextIOBase):
    """Where `print` goes: nowhere."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


class Worker:
    def __init__(self, channel: BlockingChannel, host_paths: tuple[str, ...]) -> None:
        self.channel = channel
        self._host_paths = host_paths
        self._module: types.ModuleType | None = None
        self._memory: Any = None

    def request(self, message: dict[str, Any]) -> dict[str, Any]:
        """One call to the engine; ValueError if it does not fit into a frame."""
        return self._exchange(message)[0]

    def request_rows(self, message: dict[str, Any]) -> NDArray[np.float32]:
        """One call to the engine that is answered by an array (n, d), the program's own to write into."""
        answer, sealed = self._exchange(message)
        rows, columns = answer["shape"]
        if not answer["sealed"]:
            return self.channel.receive_array(rows, columns)
        if sealed is None:
            raise OSError("the program left no room for the descriptor of its embeddings")
        return map_rows(sealed, rows, columns)

    def _exchange(self, message: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        self.channel.send(message)
        received = self.channel.receive()
        if received is None:
            os._exit(0)
        return received

    def serve(self, listener: int | None) -> None:
        """Answer orders until the engine closes the channel; a copy of this process goes on here on its own channel.

        `listener` is handed to the engine, which answers forks on it, before any program code runs.
        """
        sys.stdout = sys.stderr = _Discard()
        np.random.seed(0)
        if listener is not None:
            self.channel.send({"listener": True}, listener)
            os.close(listener)
            resource_limits.bound_descriptors()
            seccomp.install(seccomp.build_seal(), listener=False)
        self.channel.send({"ready": True})
        while (received := self.channel.receive()) is not None:
            order, descriptor = received
            if order["op"] == "copy" and descriptor is not None:
                self._copy(descriptor)
            else:
                self._answer(order)

    def _copy(self, descriptor: int) -> None:
        parent = os.getpid()
        try:
            child = os.fork()
        except OSError:
            refusal = BlockingChannel(descriptor)
            refusal.send({"unforked": True})
            refusal.close()
            return
        if child:
            os.close(descriptor)
            return
        confinement.die_with_parent(parent)
        # The collector would touch, and so copy, every page that holds an object.
        gc.freeze()
        # A process can hear on this descriptor alone: from here on the copy no longer hears its parent's orders.
        os.dup2(descriptor, seccomp.CHANNEL)
        os.close(descriptor)
        self.channel.send({"ready": True})

    def _answer(self, order: dict[str, Any]) -> None:
        try:
            answer = self._carry_out(order)
        except MemoryError as error:
            answer = self._failure("memory", error)
        except BaseException as error:
            answer = self._failure("error", error)
        serial = order["serial"]
        try:
            self.channel.send({**answer, "serial": serial})
        except frames.FrameError as error:
            self.channel.send({"failed": "error", "message": str(error), "line": None, "serial": serial})

    def _carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        operation = order["op"]
        if operation == "describe":
            return self._describe(order)
        if operation == "open":
            self._module = load(order["source"], restrict_names=order["restrict_names"])
            kind = CollectionBackend if order["collections"] else Backend
            self._memory = self._module.Memory(kind(self.request, self.request_rows))
            return {"done": None}
        if operation == "index":
            return self._index(order["units"], order["raw_text"])
        if operation == "attach":
            graft.attach(self._program(), self._memory, order)
            return {"done": None}
        return self._retrieve(order["query"])

    def _describe(self, order: dict[str, Any]) -> dict[str, Any]:
        from prismem_core.program.validation.inspect_module import inspect_module

        module = load(order["source"], restrict_names=order["restrict_names"])
        try:
            return {"interface": inspect_module(module.__dict__).to_dict()}
        except ProgramError as error:
            return {"refused": error.code, "message": str(error), "line": error.line}

    def _index(self, units: list[dict[str, Any]], raw_text: str) -> dict[str, Any]:
        build = self._program().MemoryUnit
        value = self._memory.index([build(**unit) for unit in units], raw_text)
        if value is not None:
            return _invalid("index_return", f"index() returned {_kind(value)}; it must return None")
        return {"done": None}

    def _retrieve(self, query: dict[str, Any]) -> dict[str, Any]:
        value = self._memory.retrieve(self._program().Query(**query))
        if not isinstance(value, str):
            return _invalid("retrieve_type", f"retrieve() returned {_kind(value)}; it must return a str")
        # A subclass may lie about its length; the plain value cannot.
        text = str.__str__(value)
        if len(text) > OUT_CHAR_BUDGET:
            return _invalid(
                "retrieve_length",
                f"retrieve() returned {len(text)} characters; at most OUT_CHAR_BUDGET = {OUT_CHAR_BUDGET} are allowed",
            )
        return {"done": text}

    def _program(self) -> Any:
        if self._module is None:
            raise RuntimeError("an order came before the program was loaded")
        return self._module

    def _failure(self, kind: str, error: BaseException) -> dict[str, Any]:
        told, line = _program_lines(error)
        try:
            text = str.__str__(str(error))[:_MESSAGE_CHARS]
        except BaseException:
            text = "(its message could not be read)"
        for path in self._host_paths:
            text = text.replace(path, "<host>")
        name = type(error).__name__
        message = f"{name}: {text}" if text else name
        return {"failed": kind, "message": "; ".join([message, *told]), "line": line}


def _program_lines(error: BaseException) -> tuple[list[str], int | None]:
    """The innermost lines of the program that the error passed through, outermost first, and the last one's number."""
    if isinstance(error, SyntaxError) and error.filename == PROGRAM_FILE and error.lineno is not None:
        return [f"line {error.lineno}: {_source_line(error.lineno)}"], error.lineno
    places = graft.places(error.__traceback__)
    told = [f"line {line}, in {name}: {_source_line(line)}" for line, name in places[-_TOLD_LINES:]]
    return told, places[-1][0] if places else None


def _source_line(number: int) -> str:
    return linecache.getline(PROGRAM_FILE, number).strip()[:200]


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _invalid(code: str, message: str) -> dict[str, Any]:
    return {"invalid": code, "message": message}
