"""What `backend.collection()` gives a program: a handle on texts that the engine holds, and the calls on it.

Both handle and results are plain data, so a copy of the worker, which has a copy of the handle, finds the same texts.
Runs inside a worker; every argument is checked again by the engine.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from prismem_core.program.sandbox.namespace import PROGRAM_FILE

Hit = tuple[int, float]
Request = Callable[[dict[str, Any]], dict[str, Any]]


class Collection:
    """Texts held by the engine with their embeddings and words; positions count from 0 in the order of addition.

    A search gives a list of (position, score), best first, for a str, and a list of such lists for a list of str. Equal
    scores keep the order of addition. `allowed` (positions) leaves out all others before anything is selected.
    """

    __slots__ = ("_handle", "_request", "_size")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._handle = ""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Collection of {self._size} texts"

    def add(self, texts: list[str]) -> list[int]:
        """Add texts at the end; their positions. Only while the memory is being built, never in `retrieve`."""
        if not _all_str(texts):
            raise TypeError("collection.add: texts must be a list of str")
        answer = self._call({"call": "add", "texts": texts})
        first, self._handle, self._size = self._size, answer["handle"], self._size + len(texts)
        return list(range(first, self._size))

    def search(
        self, text: str | list[str], k: int, *, allowed: Iterable[int] | None = None, min_score: float | None = None
    ) -> list[Any]:
        """The k texts whose embeddings have the largest inner product with that of `text`, at least `min_score`."""
        return self._find("search", text, k, allowed, _number("search", "min_score", min_score), None, None)

    def mmr(
        self,
        text: str | list[str],
        k: int,
        *,
        relevance_weight: float = 0.5,
        pool: int | None = None,
        allowed: Iterable[int] | None = None,
        min_relevance: float | None = None,
    ) -> list[Any]:
        """k texts near to `text` and unlike each other, in the order they were picked from the `pool` nearest."""
        weight = _weight("mmr", "relevance_weight", relevance_weight)
        return self._find("mmr", text, k, allowed, _number("mmr", "min_relevance", min_relevance), weight, pool)

    def lexical(
        self, text: str | list[str], k: int, *, allowed: Iterable[int] | None = None, min_score: float | None = None
    ) -> list[Any]:
        """The k texts that share words with `text`, by BM25, with a score of at least `min_score`."""
        return self._find("lexical", text, k, allowed, _number("lexical", "min_score", min_score), None, None)

    def hybrid(
        self,
        text: str | list[str],
        k: int,
        *,
        dense_weight: float = 0.5,
        pool: int | None = None,
        allowed: Iterable[int] | None = None,
        min_score: float | None = None,
    ) -> list[Any]:
        """The k best of `search` and `lexical` together, `pool` of each, by weighted reciprocal ranks."""
        weight = _weight("hybrid", "dense_weight", dense_weight)
        return self._find("hybrid", text, k, allowed, _number("hybrid", "min_score", min_score), weight, pool)

    def _find(
        self,
        call: str,
        text: str | list[str],
        k: int,
        allowed: Iterable[int] | None,
        least: float | None,
        weight: float | None,
        pool: int | None,
    ) -> list[Any]:
        one = isinstance(text, str)
        if not one and not _all_str(text):
            raise TypeError(f"collection.{call}: text must be a str or a list of str")
        message = {
            "call": call,
            "texts": [text] if one else text,
            "k": _whole(call, "k", k),
            "allowed": None if allowed is None else [_whole(call, "a position in allowed", item) for item in allowed],
            "least": least,
            "weight": weight,
            "pool": None if pool is None else _whole(call, "pool", pool),
        }
        answer = self._call(message)
        found = [list(zip(positions, scores, strict=True)) for positions, scores in answer["hits"]]
        return found[0] if one else found

    def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = self._request({**message, "handle": self._handle, "line": _program_line()})
        if "refused" in answer:
            raise ValueError(f"collection.{message['call']}: {answer['refused']}")
        return answer


def _all_str(texts: object) -> bool:
    return isinstance(texts, list) and all(isinstance(text, str) for text in texts)


def _whole(call: str, name: str, value: Any) -> int:
    # A mask of bools would pass for the positions 0 and 1.
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        raise TypeError(f"collection.{call}: {name} must be a whole number, not a bool")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"collection.{call}: {name} must be a whole number, not {type(value).__name__}") from None


def _number(call: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"collection.{call}: {name} must be a number, not {type(value).__name__}") from None
    if not math.isfinite(number):
        raise ValueError(f"collection.{call}: {name} must be finite, got {number}")
    return number


def _weight(call: str, name: str, value: Any) -> float:
    number = _number(call, name, value)
    if number is None or not 0.0 <= number <= 1.0:
        raise ValueError(f"collection.{call}: {name} must be from 0 to 1, got {value}")
    return number


def _program_line() -> int | None:
    """The line of the program that runs now, for the message of a limit that ends it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == PROGRAM_FILE:
            return frame.f_lineno
        frame = frame.f_back
    return None
