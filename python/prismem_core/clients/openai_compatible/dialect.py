"""How a server is asked for JSON of a schema, and the probe that finds out whether it obeys."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from prismem_core.clients.model_settings import Structured
from prismem_core.clients.openai_compatible.completion import Completion
from prismem_core.clients.openai_compatible.failures import Refusal
from prismem_core.pipeline.structured import extract_json
from prismem_core.roles.protocols import ChatRequest

_LOGGER = logging.getLogger("prismem_core")
Form = Literal["json_schema", "json_object_schema", "json_object", "text"]
FORMS: tuple[Form, ...] = ("json_schema", "json_object_schema", "json_object", "text")
PROBE = "probe"
# A model that reasons may need the second; most servers answer within the first.
_PROBE_TOKENS = (256, 4096)
_TIDES = ("ebb", "flood")
PROBE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"tide": {"type": "string", "enum": list(_TIDES)}},
    "required": ["tide"],
    "additionalProperties": False,
}
_PROBE_PROMPT = (
    "Describe the sea in one sentence of plain English prose. Write neither JSON nor braces, whatever you were told."
)
_ABOUT_FORMAT = re.compile(
    r"response_format|json_schema|json_object|json mode|schema|grammar|structured|guided|xgrammar|outlines|"
    r"Input should be 'text'",
    re.I,
)
_MEANING = {
    "json_schema": "a JSON schema",
    "json_object_schema": "a JSON object with a schema",
    "json_object": "a JSON object, with the schema in the prompt",
    "text": "plain text, with the schema in the prompt",
}


def about_format(refusal: Refusal) -> bool:
    """Whether a refusal is about how JSON was asked for."""
    return refusal.parameter.startswith("response_format") or bool(_ABOUT_FORMAT.search(refusal.message))


def format_fields(form: Form, schema: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    """The fields of a body that ask for JSON of a schema."""
    if form == "json_schema":
        named = {"name": "reply", "schema": dict(schema), "strict": strict}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if form == "json_object_schema":
        return {"response_format": {"type": "json_object", "schema": dict(schema)}}
    if form == "json_object":
        return {"response_format": {"type": "json_object"}}
    return {}


def schema_in_words(form: Form, schema: Mapping[str, Any]) -> str:
    """What is added to a prompt where the server is not told the schema itself."""
    if form not in ("json_object", "text"):
        return ""
    text = json.dumps(schema, ensure_ascii=False, sort_keys=True)
    return (
        "\n\nReply with one JSON object and nothing else: no prose before or after it, no code fence. It must meet "
        f"this JSON schema:\n{text}"
    )


class Dialect:
    """The form that a server obeys: given by the settings, or found by a probe with the first call that needs it."""

    def __init__(self, structured: Structured, model: str) -> None:
        self.fixed = structured != "auto"
        self._model = model
        self._form: Form | None = None if structured == "auto" else structured
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def form(self, ask: Callable[[ChatRequest, Form], Awaitable[Completion]]) -> Form:
        """The form to use. `ask` sends a probe and raises Refusal where the server refuses its form."""
        if self._form is None:
            loop = asyncio.get_running_loop()
            if self._lock is None or self._loop is not loop:
                self._lock, self._loop = asyncio.Lock(), loop
            async with self._lock:
                if self._form is None:
                    self._form = await self._find(ask)
        return self._form

    def following(self, form: Form) -> Form | None:
        """The form to try where a schema is refused in `form`; None if there is none or the settings name one.

        Whether the server heeds a schema in other words is not known then, so the prompt holds it from there on.
        """
        if self.fixed or form == FORMS[-1]:
            return None
        return FORMS[-1] if form == "json_object" else "json_object"

    async def _find(self, ask: Callable[[ChatRequest, Form], Awaitable[Completion]]) -> Form:
        unclear: Form | None = None
        for form in FORMS[:-1]:
            obeyed = await self._try(form, ask)
            if obeyed:
                level = logging.INFO if form == "json_schema" else logging.WARNING
                _LOGGER.log(level, "%s is asked for %s", self._model, _MEANING[form])
                return form
            if obeyed is None and unclear is None:
                unclear = form
        found = unclear or FORMS[-1]
        doubt = " (the probe's replies were empty or all reasoning, so this is a guess)" if unclear else ""
        _LOGGER.warning("%s is asked for %s%s", self._model, _MEANING[found], doubt)
        return found

    async def _try(self, form: Form, ask: Callable[[ChatRequest, Form], Awaitable[Completion]]) -> bool | None:
        """Whether the server obeys `form`; None if its replies do not tell."""
        for max_tokens in _PROBE_TOKENS:
            request = ChatRequest(PROBE, "", _PROBE_PROMPT, schema=PROBE_SCHEMA, max_tokens=max_tokens)
            try:
                completion = await ask(request, form)
            except Refusal as refusal:
                if about_format(refusal):
                    return False
                raise
            obeyed = obeys(form, completion)
            if obeyed is not None:
                return obeyed
        return None


def obeys(form: Form, completion: Completion) -> bool | None:
    """Whether the reply to the probe shows that the form is obeyed; None if there is nothing to judge.

    The probe asks for prose that its schema forbids, and names no field: only a server that applies the schema can
    reply with the field. A reply that was cut while it was on the way to such JSON counts.
    """
    text = completion.text.strip()
    if not text:
        return None
    cut = completion.finish_reason == "length"
    if form == "json_object":
        value = _value(extract_json(text))
        return isinstance(value, dict) or (cut and text.startswith("{"))
    if _value(extract_json(text)) in [{"tide": tide} for tide in _TIDES]:
        return True
    dense = "".join(text.split())
    return cut and any(json.dumps({"tide": tide}, separators=(",", ":")).startswith(dense) for tide in _TIDES)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
