"""The embedded task model: it answers requests from their parts by rules, without a language model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from prismem_core.clients.offline.extraction import extract
from prismem_core.clients.offline.planning import plan
from prismem_core.clients.offline.reader import Scorer, read, respond
from prismem_core.clients.offline.routing import capability_of
from prismem_core.errors import RoleError
from prismem_core.roles.protocols import ChatReply, ChatRequest

VERSION = "offline-1"


class OfflineChat:
    """A `Chat` that needs no weights; a cross-encoder, where given, ranks lines and sentences for its reader.

    The reply to a request depends on that request alone. Safe to call from several threads; `batch` is the number of
    requests worth sending at once, so that finished replies are stored soon.
    """

    batch = 16

    def __init__(self, scorer: Scorer | None = None) -> None:
        self._scorer = scorer
        self.identity = f"{VERSION}/cross-encoder:{scorer.identity if scorer is not None else 'none'}"

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply a request, in order; raises RoleError for a purpose it has no rules for."""
        return [self._reply(request) for request in requests]

    def _reply(self, request: ChatRequest) -> ChatReply:
        text = self._text(request)
        return ChatReply(text, _tokens(request.system + request.prompt), _tokens(text))

    def _text(self, request: ChatRequest) -> str:
        inputs = request.inputs
        match request.purpose:
            case "extract":
                return _json({"memory_units": extract(inputs)})
            case "plan":
                return _json(plan(inputs))
            case "answer":
                return read(str(inputs["instruction"]), str(inputs["retrieved"]), str(inputs["question"]), self._scorer)
            case "route":
                return _json({"capability": str(capability_of(str(inputs["question"])))})
            case "ask":
                return respond(str(inputs.get("prompt", request.prompt)), request.schema is not None)
        raise RoleError(
            f"the embedded task model has no rules for {request.purpose!r} requests; "
            "it knows extract, plan, answer, ask and route: give this role a language model"
        )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _tokens(text: str) -> int:
    return -(-len(text) // 4)
