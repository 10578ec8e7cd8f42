"""A designing model in process: it reads what the prompt shows and replies by a script of purposes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from prismem_core.errors import RoleError
from prismem_core.program.patch import make_patch
from prismem_core.roles.protocols import ChatReply, ChatRequest

Reply = Callable[[str], str | ChatReply]


def block(prompt: str, name: str) -> str:
    """The first text that the prompt shows under a name."""
    found = re.search(rf"<({name}-[0-9a-f]+)>\n(.*?)\n</\1>", prompt, re.DOTALL)
    assert found is not None, f"no {name} in the prompt"
    return found[2]


def says(**fields: str) -> Reply:
    """A reply with these fields, whatever the prompt."""
    return lambda prompt: json.dumps(fields)


def plans(text: str) -> Reply:
    return lambda prompt: json.dumps({"Step-by-step plan": text})


def turns_into(source: str, summary: str) -> Reply:
    """A reply whose diff makes `source` of the first program that the prompt shows."""
    return lambda prompt: json.dumps({"summary": summary, "code": make_patch(block(prompt, "program"), source)})


def literally(text: str, finish_reason: str = "stop") -> Reply:
    return lambda prompt: ChatReply(text, 10, 5, finish_reason)


class ScriptedModel:
    """Answers the requests of each purpose in the order of `script`; with `fails_at`, that call (from 0) fails."""

    identity = "scripted-model"

    def __init__(self, script: Mapping[str, Sequence[Reply]], fails_at: int | None = None) -> None:
        self._script = {purpose: list(replies) for purpose, replies in script.items()}
        self.fails_at = fails_at
        self.requests: list[ChatRequest] = []

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        return [self._reply(request) for request in requests]

    def _reply(self, request: ChatRequest) -> ChatReply:
        if len(self.requests) == self.fails_at:
            self.fails_at = None
            raise RoleError("the server is away")
        self.requests.append(request)
        replied = self._script[request.purpose].pop(0)(request.prompt)
        return replied if isinstance(replied, ChatReply) else ChatReply(replied, 100, 10)

    def insert(self, purpose: str, reply: Reply) -> None:
        """The next reply of a purpose."""
        self._script[purpose].insert(0, reply)

    def asked(self, purpose: str) -> list[str]:
        """The prompts of a purpose."""
        return [request.prompt for request in self.requests if request.purpose == purpose]

    @property
    def left(self) -> int:
        """Replies nobody asked for."""
        return sum(map(len, self._script.values()))
