"""What chat and embedder share: one connection, its slots, its tries, and what its answers come to."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.clients.openai_compatible.attempts import Attempts
from prismem_core.clients.openai_compatible.batches import Slots
from prismem_core.clients.openai_compatible.completion import usage_of
from prismem_core.clients.openai_compatible.endpoint import Endpoint, libraries
from prismem_core.clients.openai_compatible.event_loop import EventLoop
from prismem_core.clients.openai_compatible.failures import (
    PassingFailure,
    UnknownHere,
    connection_failure,
    status_failure,
    timed_out,
)
from prismem_core.clients.openai_compatible.server_text import quoted
from prismem_core.clients.openai_compatible.stream import looks_like_events
from prismem_core.errors import RoleError
from prismem_core.roles.account import Account
from prismem_core.roles.meter import Meter

if TYPE_CHECKING:
    import openai

LOGGER = logging.getLogger("prismem_core")
_SHOWN_MODELS = 8
T = TypeVar("T")


class OpenAIClient:
    """A connection to one model of one server, for calls from any thread.

    `account` is asked before each try and told what each answer used; `meter` counts the calls under way. Nothing is
    opened before the first call; `close` ends what was.
    """

    def __init__(self, spec: ModelSpec, settings: ModelSettings, role: str) -> None:
        libraries()
        self.identity = settings.identity_of(spec)
        self.account = Account(role)
        self.meter = Meter(settings.concurrency)
        self.settings = settings
        self.endpoint = Endpoint(spec, settings)
        self._loop = EventLoop(f"prismem {role} model")
        self._make_anew()
        self._sdk: openai.AsyncOpenAI | None = None
        self._key: str | None = None
        self._answered = False
        self._said: set[str] = set()

    def stop(self, *, at_once: bool = False) -> None:
        """Begin no further call of those that were asked for; the ones under way are handed over, or given up."""
        self._loop.tell(self._slots.fail_all if at_once else self._slots.stop_all)

    def close(self) -> None:
        """End calls, connections and the thread; a later call opens them anew."""
        slots = self._slots
        self._make_anew()

        async def farewell() -> None:
            sdk, self._sdk = self._sdk, None
            if sdk is not None:
                await sdk.close()

        self._loop.close(slots.fail_all, farewell)

    def _make_anew(self) -> None:
        """What belongs to one event loop."""
        self._attempts = Attempts(self.settings)
        self._slots = Slots(self._loop, self.settings.concurrency)

    def say_once(self, level: int, text: str, *values: object) -> None:
        """Log a fact about this server the first time it is met."""
        if text not in self._said:
            self._said.add(text)
            LOGGER.log(level, text, *values)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        private: Sequence[str],
        stopped: asyncio.Event,
        read: Callable[[Any], Awaitable[T]],
    ) -> T:
        """What `read` makes of the answer to a request, with all its tries.

        `private` are the texts of the body, which no error may show. Raises RoleError, BudgetError, Stopped, or
        Refusal where asking otherwise may help. `read` takes a decoded answer, or the bytes of a stream as they come.
        """

        async def once(seconds: float) -> T:
            sdk = self._open()
            self.account.admit()
            self.meter.enter()
            try:
                async with asyncio.timeout(seconds):
                    return await self._exchange(sdk, path, body, private, read, seconds)
            except TimeoutError:
                raise timed_out(self.endpoint, seconds) from None
            finally:
                self.meter.leave()

        try:
            return await self._attempts.run(once, stopped)
        except UnknownHere as unknown:
            raise RoleError(await self._unknown(unknown)) from None

    def _open(self) -> openai.AsyncOpenAI:
        if self._sdk is None:
            self._key = self.endpoint.key()
            self._sdk = self.endpoint.open(self._key, self.settings)
        return self._sdk

    async def _exchange(
        self,
        sdk: openai.AsyncOpenAI,
        path: str,
        body: Mapping[str, Any],
        private: Sequence[str],
        read: Callable[[Any], Awaitable[T]],
        seconds: float,
    ) -> T:
        errors, httpx = libraries()
        try:
            if body.get("stream"):
                stream = await sdk.post(
                    path, cast_to=object, body=body, stream=True, stream_cls=errors.AsyncStream[object]
                )
                answer = stream.response
                self._answered = True
                try:
                    return await self._streamed(answer, private, read)
                finally:
                    await answer.aclose()
            response: Any = await sdk.post(path, cast_to=httpx.Response, body=body)
        except errors.APIStatusError as error:
            self._answered = True
            answer = error.response
            raise status_failure(
                answer.status_code, answer.headers, answer.text, self.endpoint, private, self._key
            ) from None
        except errors.APIConnectionError as error:
            raise connection_failure(error, self.endpoint, self._answered, seconds) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise connection_failure(error, self.endpoint, self._answered, seconds) from None
        return await read(self._decode(response, private))

    async def _streamed(self, answer: Any, private: Sequence[str], read: Callable[[Any], Awaitable[T]]) -> T:
        """What `read` makes of an answer to a call that asked for a stream."""
        kind = answer.headers.get("content-type", "")
        if "event-stream" in kind:
            return await read(answer.aiter_bytes())
        await answer.aread()
        if "json" not in kind and looks_like_events(answer.content):
            return await read(_at_once(answer.content))
        # A server that knows no streams answers as a whole.
        return await read(self._decode(answer, private))

    def _decode(self, response: Any, private: Sequence[str]) -> Any:
        """The JSON object of an answer of status 200."""
        self._answered = True
        try:
            value = _json(response)
        except (ValueError, RecursionError):
            text = response.text
            if "html" in response.headers.get("content-type", "") or text.lstrip()[:1] == "<":
                raise RoleError(
                    f"{self.endpoint.url} answered with a web page instead of JSON; look at the URL (most end in /v1)"
                ) from None
            raise PassingFailure(
                f"{self.endpoint.url} answered with {len(text)} characters that are no JSON",
                few=True,
                advice="look at the URL and the server",
            ) from None
        if isinstance(value, dict) and value.get("error"):
            given, written = usage_of(value)
            if given is not None or written is not None:
                self.account.overhead("unusable", given or 0, written or 0)
            raise self._error_inside(value, response, private)
        return value

    def _error_inside(self, value: Mapping[str, Any], response: Any, private: Sequence[str]) -> Exception:
        """Gateways answer 200 and put the error of the server behind them into the body."""
        inner = value["error"]
        code = inner.get("code") if isinstance(inner, dict) else None
        status = int(code) if isinstance(code, int | str) and str(code).isdigit() else 400
        status = status if 400 <= status < 600 else 400
        return status_failure(status, response.headers, json.dumps(value), self.endpoint, private, self._key)

    async def _unknown(self, unknown: UnknownHere) -> str:
        url, model = self.endpoint.url, self.endpoint.model
        offered = await self._offered()
        if offered:
            shown = ", ".join(offered[:_SHOWN_MODELS]) + (" and others" if len(offered) > _SHOWN_MODELS else "")
            if model not in offered:
                return f"the server {url} has no model {model!r}; it offers: {shown}"
        if unknown.about_model:
            return f"the server {url} has no model {model!r}{f': {unknown.said}' if unknown.said else ''}"
        return (
            f"{url} is no address of an OpenAI-compatible server ({unknown.status}); most URLs end in /v1, such as "
            f"{_better(url)}"
        )

    async def _offered(self) -> list[str]:
        """Models that the server lists; none if it cannot be had."""
        errors, httpx = libraries()
        try:
            async with asyncio.timeout(10):
                response: Any = await self._open().get("/models", cast_to=httpx.Response)
            names = [entry["id"] for entry in json.loads(response.text)["data"]]
        except (errors.OpenAIError, httpx.HTTPError, TimeoutError, ValueError, KeyError, TypeError, RecursionError):
            return []
        return [quoted(name, (), self._key) for name in names if isinstance(name, str)]


def _json(response: Any) -> Any:
    """The JSON value of a body, which is UTF-8 whatever its type says; another encoding only if it is none."""
    try:
        return json.loads(response.content)
    except UnicodeDecodeError:
        return json.loads(response.text)


async def _at_once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _better(url: str) -> str:
    return url if url.endswith("/v1") else f"{url}/v1"
