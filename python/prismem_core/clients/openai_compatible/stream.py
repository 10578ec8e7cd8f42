"""A chat completion that comes as server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from prismem_core.clients.openai_compatible.completion import (
    NO_USAGE,
    Completion,
    cached_in,
    completed,
    content_of,
    error_in,
    fingerprint_in,
    reasoning_of,
    usage_of,
)

# Lines end with these alone: other characters that end a line elsewhere may stand in a text as they are. A carriage
# return at the end of what has come may be the first half of one.
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
_MARK = b"\xef\xbb\xbf"
_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


def looks_like_events(content: bytes) -> bool:
    """Whether a body holds events, whatever its type says."""
    return content.removeprefix(_MARK).lstrip().startswith(_EVENT_FIELDS)


class Stream:
    """Reads one stream; `usage` is what it has told so far, also when reading ends with an error."""

    def __init__(self) -> None:
        self.usage = NO_USAGE
        self._texts: list[str] = []
        self._reasoning_chars = 0
        self._finish: Any = None
        self._cached = 0
        self._fingerprint = ""

    async def read(self, chunks: AsyncIterator[bytes]) -> Completion:
        """The completion in a body; one that ends early has a `problem`."""
        done = False
        async for data in _events(chunks):
            if data.strip() == b"[DONE]":
                done = True
                break
            problem, lasting = self._take(data)
            if problem:
                return self._broken(problem, lasting)
        if self._finish is None:
            # That the server ended it in order makes it no whole reply: some do so after a failure.
            problem = "a stream that ended without saying why" if done else "a stream that broke off"
            return self._broken(f"{problem}, so the reply may be incomplete", done)
        found = completed("".join(self._texts), self._reasoning_chars, self._finish, self.usage)
        return replace(found, cached_tokens=self._cached, fingerprint=self._fingerprint)

    def _take(self, data: bytes) -> tuple[str, bool]:
        """Take an event in: what is wrong with it, "" if nothing, and whether that will last."""
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            return "a stream that holds an event that is no JSON", True
        if not isinstance(chunk, dict):
            return "", False
        if isinstance(chunk.get("usage"), dict):
            self.usage, self._cached = usage_of(chunk), cached_in(chunk)
        self._fingerprint = fingerprint_in(chunk) or self._fingerprint
        found = error_in(chunk)
        if found:
            return f"a stream that {found[0]}", found[1]
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if not isinstance(choice, dict) or choice.get("index") not in (0, None):
                continue
            found = error_in(choice)
            if found:
                return f"a stream that {found[0]}", found[1]
            # Some servers send the whole message in place of its pieces.
            delta = choice.get("delta") or choice.get("message")
            if isinstance(delta, dict):
                self._texts.append(content_of(delta.get("content")))
                self._reasoning_chars += len(reasoning_of(delta))
            self._finish = choice.get("finish_reason") or self._finish
        return "", False

    def _broken(self, problem: str, lasting: bool) -> Completion:
        return Completion(problem=problem, lasting=lasting, input_tokens=self.usage[0], output_tokens=self.usage[1])


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each event."""
    lines: list[bytes] = []
    async for line in _lines(chunks):
        if not line:
            if lines:
                yield b"\n".join(lines)
            lines = []
        elif line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
    if lines:
        yield b"\n".join(lines)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest, mark = b"", _MARK
    async for chunk in chunks:
        *lines, rest = _LINE_END.split(rest + chunk)
        for line in lines:
            yield line.removeprefix(mark)
            mark = b""
    if rest:
        yield rest.removeprefix(mark).removesuffix(b"\r")
