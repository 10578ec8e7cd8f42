"""What a model gives without the engine: the calls that a client sent, sent again by the shortest way there is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from prismem_core.clients.openai_compatible.client import OpenAIClient
from prismem_core.clients.vllm_engine import VLLMChat, VLLMEmbedder
from prismem_core.roles.ledger import Usage
from prismem_core.roles.protocols import ChatRequest

from .raw import RawServer, Shot, counters


class Limit:
    """The same calls without the engine: `listen` around a pass of the engine notes them, `fire` sends them again."""

    name = ""

    def listen(self, run: Callable[[], Any]) -> Any:
        """What `run` returns; the calls it makes are noted."""
        raise NotImplementedError

    def fire(self) -> Shot:
        """The calls that were noted, once more."""
        raise NotImplementedError

    def counters(self) -> dict[str, float] | None:
        """The model's own counts so far, if it shows them."""
        return None


class ServerLimit(Limit):
    """A server's: the bodies of the client's requests over plain sockets, whole replies, as many at a time."""

    name = "raw HTTP"

    def __init__(self, client: OpenAIClient, url: str, slots: int) -> None:
        self._client, self._url = client, url
        self._server = RawServer(url, client.endpoint.key(), slots)
        self._path = ""
        self._bodies: dict[str, dict[str, Any]] = {}

    def listen(self, run: Callable[[], Any]) -> Any:
        original = self._client.post
        self._bodies = {}

        async def noted(path: str, body: Any, *others: Any) -> Any:
            whole = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
            self._path = path
            self._bodies[json.dumps(whole, sort_keys=True)] = whole
            return await original(path, body, *others)

        # On this one object, for the time of one pass: the requests are then those of the client to the last byte.
        vars(self._client)["post"] = noted
        try:
            return run()
        finally:
            del vars(self._client)["post"]

    def fire(self) -> Shot:
        return self._server.fire(self._path, list(self._bodies.values()))

    def counters(self) -> dict[str, float] | None:
        return counters(self._url)


class ChatEngineLimit(Limit):
    """That of a chat engine in this process: `vllm.LLM.generate` over all calls as one batch."""

    name = "LLM.generate"

    def __init__(self, client: VLLMChat, requests: Sequence[ChatRequest]) -> None:
        self._client, self._requests = client, requests

    def listen(self, run: Callable[[], Any]) -> Any:
        return run()

    def fire(self) -> Shot:
        generate, prompts, parameters = self._client.as_batch(self._requests)
        started = time.monotonic()
        outputs = generate(prompts, parameters, use_tqdm=False)
        seconds = time.monotonic() - started
        usage = Usage()
        for output in outputs:
            usage.add(Usage(1, len(output.prompt_token_ids), len(output.outputs[0].token_ids)))
        return Shot(seconds, usage, tuple(output.outputs[0].text for output in outputs))


class EmbedderEngineLimit(Limit):
    """That of an embedder in this process: `vllm.LLM.encode` over all texts as one batch."""

    name = "LLM.encode"

    def __init__(self, client: VLLMEmbedder, texts: Sequence[str]) -> None:
        self._client, self._texts = client, texts

    def listen(self, run: Callable[[], Any]) -> Any:
        return run()

    def fire(self) -> Shot:
        encode, prompts, parameters = self._client.as_batch(self._texts)
        started = time.monotonic()
        outputs = encode(prompts, pooling_params=parameters, pooling_task="embed", use_tqdm=False)
        seconds = time.monotonic() - started
        usage = Usage()
        for output in outputs:
            usage.add(Usage(1, len(output.prompt_token_ids), 0))
        return Shot(seconds, usage, ("",) * len(outputs))
