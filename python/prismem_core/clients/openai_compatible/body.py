"""The body of a chat request, in the words that this server takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prismem_core.clients.model_settings import ModelSettings
from prismem_core.clients.openai_compatible.failures import Refusal
from prismem_core.roles.protocols import ChatRequest

LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
_OPTIONAL = ("temperature", "seed", "reasoning_effort", "stream_options", "frequency_penalty", "presence_penalty")
_REFUSED = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|extra|not permitted|not allowed|only the default|"
    r"deprecated|invalid|must be|cannot|can't|does not accept|not available",
    re.I,
)
_NO_SYSTEM = re.compile(r"system.{0,20}(role|message|prompt).{0,30}(not|un)\s?support|only user", re.I)


def sendable(text: str) -> str:
    """`text` with lone surrogates, which no UTF-8 holds, replaced."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


class Adaptations:
    """What a server was found to refuse, learnt once and kept for all later calls."""

    def __init__(self) -> None:
        self.limit_name = LIMIT_NAMES[0]
        self.dropped: set[str] = set()
        self.system_in_prompt = False

    def body(
        self, model: str, request: ChatRequest, settings: ModelSettings, max_tokens: int, added: str = ""
    ) -> dict[str, Any]:
        """The body without a response format; `added` goes to the end of the prompt."""
        prompt = sendable(request.prompt + added)
        system = sendable(request.system)
        if system and self.system_in_prompt:
            prompt, system = f"{system}\n\n{prompt}", ""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        temperature = request.temperature if settings.temperature is None else settings.temperature
        optional: dict[str, Any] = {"temperature": temperature}
        if settings.seed is not None:
            optional["seed"] = settings.seed + request.sample
        if settings.reasoning_effort is not None:
            optional["reasoning_effort"] = settings.reasoning_effort
        if settings.stream:
            optional["stream_options"] = {"include_usage": True}
        body: dict[str, Any] = {"model": model, "messages": messages, self.limit_name: max_tokens}
        body |= {name: value for name, value in optional.items() if name not in self.dropped}
        if settings.stream:
            body["stream"] = True
        return body | settings.extra_body

    def outdated(self, body: Mapping[str, Any]) -> bool:
        """Whether a body was made before the latest of these was learnt."""
        other = LIMIT_NAMES[self.limit_name == LIMIT_NAMES[0]]
        roles = {message["role"] for message in body.get("messages", ())}
        return other in body or bool(self.dropped & set(body)) or (self.system_in_prompt and "system" in roles)

    def learn(self, refusal: Refusal, body: Mapping[str, Any], own: Mapping[str, Any]) -> str:
        """What to say of the adaptation that a refusal leads to; "" if it leads to none.

        Fields of `own` (the user's `extra_body`) are never dropped.
        """
        message, parameter = refusal.message, refusal.parameter
        other = LIMIT_NAMES[self.limit_name == LIMIT_NAMES[0]]
        if self.limit_name in body and self.limit_name not in own:
            wanted = _mentions(message, other) and not _mentions(message, self.limit_name)
            renamed = _mentions(message, other) and re.search(r"use|instead", message, re.I)
            unknown = (parameter == self.limit_name or _mentions(message, self.limit_name)) and re.search(
                r"unsupported|unrecognized|unknown|unexpected|extra|not permitted", message, re.I
            )
            if (wanted or renamed or unknown) and self.limit_name not in self.dropped:
                # Each name is given up once, so that no server can make this go round.
                self.dropped.add(self.limit_name)
                if other not in self.dropped:
                    self.limit_name = other
                    return f"the server takes {other} in place of the other name of that limit"
        for name in _OPTIONAL:
            at_fault = parameter == name or _mentions(message, name)
            if name in body and name not in own and at_fault and _REFUSED.search(message):
                self.dropped.add(name)
                return f"the server refuses {name}; calls go without it"
        if not self.system_in_prompt and _NO_SYSTEM.search(message):
            self.system_in_prompt = True
            return "the server takes no system message; it goes to the beginning of the prompt"
        return ""


def _mentions(message: str, name: str) -> bool:
    return re.search(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])", message) is not None
