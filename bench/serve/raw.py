"""A server's own limit: the same requests over plain sockets, with nothing of the engine between."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from prismem_core.errors import RoleError
from prismem_core.roles.ledger import Usage

_PATIENCE_SECONDS = 3600.0


@dataclass(frozen=True)
class Shot:
    """One pass: wall seconds, the tokens that the server counted and the texts of its replies ("" for embeddings)."""

    seconds: float
    usage: Usage
    texts: tuple[str, ...] = ()


class RawServer:
    """Posts bodies over `slots` connections that stay open; RoleError where an answer is not of status 200."""

    def __init__(self, url: str, key: str | None, slots: int) -> None:
        self._parts = urlsplit(url)
        self._slots = slots
        secure = self._parts.scheme == "https"
        self._port = self._parts.port or (443 if secure else 80)
        self._context = ssl.create_default_context() if secure else None
        self._headers = f"Authorization: Bearer {key}\r\n" if key else ""

    def fire(self, path: str, bodies: Sequence[Mapping[str, Any]]) -> Shot:
        """All bodies, as fast as the server takes them."""
        sent = [json.dumps(body, separators=(",", ":")).encode() for body in bodies]
        started = time.monotonic()
        answers = asyncio.run(self._all(path, sent))
        seconds = time.monotonic() - started
        usage, texts = Usage(), []
        for data in answers:
            value = json.loads(data)
            counts = value.get("usage") or {}
            usage.add(Usage(1, int(counts.get("prompt_tokens") or 0), int(counts.get("completion_tokens") or 0)))
            choices = value.get("choices")
            texts.append(str(choices[0]["message"].get("content") or "") if choices else "")
        return Shot(seconds, usage, tuple(texts))

    async def _all(self, path: str, bodies: Sequence[bytes]) -> list[bytes]:
        answers: list[bytes] = [b""] * len(bodies)
        coming = iter(range(len(bodies)))

        async def slot() -> None:
            reader, writer = await asyncio.open_connection(
                self._parts.hostname, self._port, ssl=self._context, limit=1 << 20
            )
            try:
                for i in coming:
                    answers[i] = await asyncio.wait_for(
                        self._exchange(reader, writer, path, bodies[i]), _PATIENCE_SECONDS
                    )
            finally:
                writer.close()

        await asyncio.gather(*(slot() for _ in range(min(self._slots, len(bodies)))))
        return answers

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
    ) -> bytes:
        head = (
            f"POST {self._parts.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {self._parts.netloc}\r\n{self._headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: keep-alive\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        length, chunked = 0, False
        while (line := (await reader.readline()).strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"transfer-encoding":
                chunked = b"chunked" in value.lower()
        data = await _chunks(reader) if chunked else await reader.readexactly(length)
        if status != 200:
            raise RoleError(
                f"the server answers {status} to a request that it took from the engine; it is too busy, or limits "
                "rates: lower concurrency and measure again"
            )
        return data


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


def counters(url: str) -> dict[str, float] | None:
    """vLLM's counters of tokens and of its prefix cache, summed over engines; None where the server shows none."""
    parts = urlsplit(url)
    try:
        with urlopen(f"{parts.scheme}://{parts.netloc}/metrics", timeout=10) as answer:
            text = answer.read().decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        if name in _COUNTERS:
            found[_COUNTERS[name]] = found.get(_COUNTERS[name], 0.0) + float(rest.rsplit(" ", 1)[-1])
    return found if {"input", "output"} <= set(found) else None


_COUNTERS = {
    "vllm:prompt_tokens_total": "input",
    "vllm:generation_tokens_total": "output",
    "vllm:prefix_cache_queries_total": "prefix_asked",
    "vllm:prefix_cache_hits_total": "prefix_found",
}
