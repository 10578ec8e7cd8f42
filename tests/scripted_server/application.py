"""The ASGI application: the model endpoints, the metrics and the control endpoints through which a test plays."""

from __future__ import annotations

import asyncio
import json
import random
import time
from email.utils import formatdate
from typing import Any

from tests.scripted_server import replies
from tests.scripted_server.answers import purpose_of, text_of
from tests.scripted_server.behaviour import Behaviour, Script, plain
from tests.scripted_server.record import Record
from tests.scripted_server.replies import Reply

ENDPOINTS = {"/v1/chat/completions": "chat", "/v1/embeddings": "embeddings", "/v1/models": "models"}


class Dropped(Exception):
    """The connection was closed by the script."""


class Application:
    """Callable as ASGI; `transports` gives the connection of a client address, to be dropped where the script says."""

    def __init__(self, record: Record, transports: dict[tuple[str, int], asyncio.Transport]) -> None:
        self.record = record
        self.script = Script()
        self.released = asyncio.Event()
        self._transports = transports
        self._random = random.Random(7)
        self._tokens, self._filled = 0.0, time.monotonic()
        self._outage_ends: float | None = None
        self._before_outage = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = await _body(receive)
        if scope["path"].startswith("/control/"):
            await self._control(scope["path"], body, send)
        elif scope["path"] == "/metrics":
            await _send(send, 200, self._metrics().encode(), {"content-type": "text/plain"})
        else:
            await self._serve(scope, body, receive, send)

    async def _serve(self, scope: Any, raw: bytes, receive: Any, send: Any) -> None:
        endpoint = ENDPOINTS.get(scope["path"], "")
        if not endpoint:
            await _send(send, 404, b'{"detail":"Not Found"}')
            return
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            await _send(send, 400, replies.error_body("the body is no JSON", None))
            return
        texts = [text_of(m) for m in body["messages"]] if endpoint == "chat" else replies.texts_of(body)
        purpose = purpose_of(texts[-1], replies.wanted_schema(body)) if endpoint == "chat" and texts else ""
        model = str(body.get("model", ""))
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
        entry = {"endpoint": endpoint, "model": model, "purpose": purpose, "at": time.time()}
        entry |= {"headers": headers, "query": scope["query_string"].decode("latin-1"), "body": body}
        behaviour = self.script.choose(endpoint, purpose, model, "\n".join(texts))
        entry["behaviour"] = plain(behaviour)
        self.record.arrive(entry)
        try:
            if behaviour.hang == "head":
                await _until_gone(receive)
                raise Dropped
            await self._play(scope, entry, behaviour, send)
        except Dropped:
            pass
        finally:
            self.record.leave(entry)

    async def _play(self, scope: Any, entry: dict[str, Any], behaviour: Behaviour, send: Any) -> None:
        limited = self._limited()
        if limited is not None:
            await self._error(entry, Behaviour(**limited), scope, send)
            return
        if behaviour.close == "before":
            await self._drop(scope, behaviour)
        if behaviour.latency or behaviour.jitter:
            await asyncio.sleep(behaviour.latency + behaviour.jitter * self._random.random())
        if behaviour.hold:
            await self.released.wait()
        if behaviour.status != 200 or behaviour.html or behaviour.body is not None:
            await self._error(entry, behaviour, scope, send)
            return
        reply = replies.reply_to(entry, behaviour)
        if reply.status == 200:
            self.record.generate(entry, reply.prompt_tokens, reply.completion_tokens)
        await self._deliver(scope, entry, behaviour, reply, send)

    async def _deliver(self, scope: Any, entry: dict[str, Any], behaviour: Behaviour, reply: Reply, send: Any) -> None:
        entry["status"] = reply.status
        headers = {"content-type": reply.content_type, **behaviour.headers}
        if len(reply.pieces) == 1:
            headers["content-length"] = str(len(reply.pieces[0]))
        await send(_start(reply.status, headers))
        if behaviour.close == "head":
            await self._drop(scope, behaviour)
        pieces = reply.pieces
        if behaviour.close == "body" or behaviour.hang == "body":
            pieces = pieces[: len(pieces) // 2] if len(pieces) > 1 else [pieces[0][: len(pieces[0]) // 2]]
            for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if behaviour.hang == "body":
                await asyncio.Event().wait()
            await self._drop(scope, behaviour)
        for piece in pieces[:-1]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if entry["prompt_tokens"]:
            # Counted before the last byte leaves: who has the reply finds it in the counters.
            self.record.deliver(entry)
        await send({"type": "http.response.body", "body": pieces[-1], "more_body": False})

    async def _error(self, entry: dict[str, Any], behaviour: Behaviour, scope: Any, send: Any) -> None:
        headers = dict(behaviour.headers)
        if behaviour.retry_after_date is not None:
            headers["retry-after"] = formatdate(time.time() + behaviour.retry_after_date, usegmt=True)
        if behaviour.html:
            content, kind = b"<!DOCTYPE html><html><body><h1>Welcome</h1></body></html>", "text/html"
        elif behaviour.body is not None:
            content, kind = behaviour.body.encode(), "application/json"
        else:
            content, kind = replies.error_body(behaviour.error, behaviour.code), "application/json"
        reply = Reply(behaviour.status, [content], content_type=kind)
        await self._deliver(scope, entry, Behaviour(headers=headers, close=behaviour.close), reply, send)

    def _limited(self) -> dict[str, Any] | None:
        """The behaviour of an error where an outage lasts or the bucket of the rate limit is empty."""
        now = time.monotonic()
        outage, rate = self.script.outage, self.script.rate
        if outage is not None:
            if self._outage_ends is None:
                self._before_outage += 1
                if self._before_outage <= outage.get("after", 0):
                    return None
                self._outage_ends = now + outage["seconds"]
            if now < self._outage_ends:
                return {"status": 503, "error": "the model is loading", **outage.get("do", {})}
        if rate is not None:
            self._tokens = min(rate["burst"], self._tokens + (now - self._filled) * rate["per_second"])
            self._filled = now
            if self._tokens < 1:
                wait = (1 - self._tokens) / rate["per_second"]
                return {"status": 429, "error": "too many requests", "headers": {"retry-after": f"{wait:.3f}"}}
            self._tokens -= 1
        return None

    async def _drop(self, scope: Any, behaviour: Behaviour) -> None:
        transport = self._transports[tuple(scope["client"])]
        if behaviour.reset:
            transport.abort()
        else:
            transport.close()
        raise Dropped

    async def _control(self, path: str, raw: bytes, send: Any) -> None:
        given = json.loads(raw) if raw else {}
        if path == "/control/script":
            try:
                self.script = Script(**given)
            except (TypeError, ValueError) as error:
                await _send(send, 400, json.dumps({"error": str(error)}).encode())
                return
            self.released = asyncio.Event()
            self._outage_ends, self._before_outage = None, 0
            self._tokens, self._filled = (self.script.rate or {}).get("burst", 0.0), time.monotonic()
        elif path == "/control/release":
            self.released.set()
        elif path == "/control/clear":
            self.record.clear()
        elif path == "/control/wait":
            await self.record.wait(given.get("arrived", 0), given.get("under_way", 0))
        elif path == "/control/keep":
            self.record.keep_bodies = given["bodies"]
        answer = self.record.entries if path == "/control/log" else self.record.state()
        await _send(send, 200, json.dumps(answer).encode())

    def _metrics(self) -> str:
        lines = []
        for key, counts in sorted(self.record.counters.items()):
            model = key.split(" ", 1)[1]
            label = f'{{model_name="{model}",engine="0"}}'
            lines += [
                f"vllm:prompt_tokens_total{label} {counts['prompt_tokens']}.0",
                f"vllm:generation_tokens_total{label} {counts['completion_tokens']}.0",
                f"vllm:request_success_total{label} {counts['replies']}.0",
            ]
        lines.append(f"vllm:num_requests_running {self.record.under_way}.0")
        lines += ["vllm:prefix_cache_queries_total 0.0", "vllm:prefix_cache_hits_total 0.0"]
        return "\n".join(lines) + "\n"


async def _until_gone(receive: Any) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _start(status: int, headers: dict[str, str]) -> dict[str, Any]:
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": encoded}


async def _send(send: Any, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    given = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
    await send(_start(status, given))
    await send({"type": "http.response.body", "body": body, "more_body": False})
