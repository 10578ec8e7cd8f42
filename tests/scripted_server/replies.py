"""Replies to model requests: refusals as servers word them, chat completions whole and streamed, embeddings."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.scripted_server.answers import (
    count_tokens,
    cut_tokens,
    edited,
    good_text,
    prompt_tokens,
    schema_in,
    text_of,
    vector,
)
from tests.scripted_server.behaviour import Behaviour
from tests.scripted_server.shapes import SHAPES

_DEFAULT_LIMIT = 4096
_CHUNK = 24


@dataclass
class Reply:
    """A status, the pieces of the body as they are sent, and what the model used."""

    status: int
    pieces: list[bytes]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    content_type: str = field(default="application/json")


def error_body(message: str, code: str | None, kind: str = "invalid_request_error") -> bytes:
    """An error as the API words it."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def texts_of(body: Mapping[str, Any]) -> list[str]:
    """The texts to embed."""
    given = body.get("input", [])
    return [given] if isinstance(given, str) else list(given)


def reply_to(entry: Mapping[str, Any], behaviour: Behaviour) -> Reply:
    """The reply to a request that was not failed outright."""
    body, endpoint = entry["body"], entry["endpoint"]
    refused = _refusal(entry, behaviour)
    if refused is not None:
        return refused
    if endpoint == "models":
        names = behaviour.models or ["scripted"]
        return _json({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
    return _chat(body, behaviour) if endpoint == "chat" else _embeddings(body, behaviour)


def _refusal(entry: Mapping[str, Any], behaviour: Behaviour) -> Reply | None:
    body = entry["body"]
    if behaviour.key is not None and ["authorization", f"Bearer {behaviour.key}"] not in entry["headers"]:
        # Servers quote pieces of the wrong key, and some quote all of it.
        sent = next((value for name, value in entry["headers"] if name == "authorization"), "nothing")
        return _refuse(
            401, f"Incorrect API key provided: {sent}. You can find your API key in your account.", "invalid_api_key"
        )
    if entry["endpoint"] == "models":
        return None
    if behaviour.models is not None and body.get("model") not in behaviour.models:
        return _refuse(404, f"The model `{body.get('model')}` does not exist.", "model_not_found")
    for name in behaviour.refuse:
        if name in body:
            hint = "Use 'max_completion_tokens' instead." if name == "max_tokens" else "Only the default is supported."
            return _refuse(
                400,
                f"Unsupported parameter: '{name}' is not supported with this model. {hint}",
                "unsupported_parameter",
            )
    if entry["endpoint"] == "chat":
        return _chat_refusal(body, behaviour)
    longest = max((count_tokens(text) for text in texts_of(body)), default=0)
    if behaviour.refuse_text is not None and longest > behaviour.refuse_text:
        if behaviour.error != Behaviour().error:
            message = behaviour.error.format(given=longest, limit=behaviour.refuse_text)
            return _refuse(behaviour.refuse_status, message, None)
        return _refuse(
            400,
            f"This model's maximum context length is {behaviour.refuse_text} tokens. However, you "
            f"requested {longest} tokens in the input for embedding generation. Please reduce the "
            "length of the input.",
            None,
        )
    return None


def _chat_refusal(body: Mapping[str, Any], behaviour: Behaviour) -> Reply | None:
    name, _ = _format(body)
    if name and behaviour.form(name) == "refuse":
        if name == "json_schema":
            return _refuse(
                500,
                "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': "
                "\"Input should be 'text' or 'json_object'\"}]",
                None,
            )
        return _refuse(400, f"response_format {name} is not supported by this server", None)
    prompt, limit = _prompt_tokens(body, behaviour), _limit(body)
    if behaviour.context is not None and prompt + (limit or 1) > behaviour.context:
        if behaviour.stops_counting:
            prompt = min(prompt, max(1, behaviour.context - (limit or 1) + 1))
        return _refuse(
            400,
            f"This model's maximum context length is {behaviour.context} tokens. However, you "
            f"requested {limit or 1} output tokens and your prompt contains at least {prompt} input "
            f"tokens, for a total of at least {prompt + (limit or 1)} tokens. Please reduce the length "
            "of the input prompt or the number of requested output tokens.",
            None,
        )
    return None


def _prompt_tokens(body: Mapping[str, Any], behaviour: Behaviour) -> int:
    if behaviour.character_tokens:
        return sum(len(text_of(message)) for message in body["messages"])
    return prompt_tokens(body["messages"])


def _refuse(status: int, message: str, code: str | None) -> Reply:
    return Reply(status, [error_body(message, code)])


def _json(value: Any) -> Reply:
    return Reply(200, [json.dumps(value).encode()])


def _limit(body: Mapping[str, Any]) -> int | None:
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return None if limit is None else int(limit)


def _format(body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None]:
    """The name of the response_format and its schema, if any."""
    given = body.get("response_format") or {}
    if given.get("type") == "json_schema":
        return "json_schema", given["json_schema"]["schema"]
    if given.get("type") == "json_object":
        return ("json_object_schema", given["schema"]) if "schema" in given else ("json_object", None)
    return "", None


def wanted_schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema that a request asks for, in its response format or spelled out in its messages."""
    return _format(body)[1] or schema_in("\n".join(text_of(message) for message in body["messages"]))


def _chat(body: Mapping[str, Any], behaviour: Behaviour) -> Reply:
    messages = body["messages"]
    prompt = text_of(messages[-1])
    used = _prompt_tokens(body, behaviour)
    if behaviour.cut_prompt is not None and used > behaviour.cut_prompt:
        used = behaviour.cut_prompt
        prompt = cut_tokens(prompt, used)
    name, schema = _format(body)
    enforced = bool(name) and behaviour.form(name) == "enforce"
    spelled = schema_in("\n".join(text_of(message) for message in messages))
    wanted = (schema if enforced and schema is not None else None) or spelled
    text = good_text(prompt, wanted)
    if enforced and wanted is None:
        text = json.dumps({"reply": text})
    if behaviour.edits:
        text = json.dumps(edited(prompt, behaviour.edits))
    if behaviour.text is not None:
        text = behaviour.text
    message = SHAPES[behaviour.shape](text)
    finish = behaviour.finish or {"half": "length", "whitespace": "length", "tool_call": "tool_calls"}.get(
        behaviour.shape, "stop"
    )
    limit = _limit(body) or _DEFAULT_LIMIT
    written = "".join(str(message.get(part) or "") for part in ("content", "reasoning_content"))
    completion = count_tokens(written)
    if completion > limit and isinstance(message["content"], str):
        message["content"], finish = cut_tokens(message["content"], limit), behaviour.finish or "length"
        completion = limit
    reply = _stream if body.get("stream") else _whole
    return reply(body, behaviour, message, finish, used, completion)


def _usage(behaviour: Behaviour, prompt: int, completion: int) -> dict[str, Any] | None:
    if behaviour.usage == "none":
        return None
    if behaviour.usage != "right":
        return dict(behaviour.usage)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _whole(
    body: Mapping[str, Any], behaviour: Behaviour, message: dict[str, Any], finish: str, prompt: int, completion: int
) -> Reply:
    value: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"]}
    value["choices"] = [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}]
    if behaviour.fingerprint is not None:
        value["system_fingerprint"] = behaviour.fingerprint
    usage = _usage(behaviour, prompt, completion)
    if usage is not None:
        value["usage"] = usage
    return Reply(200, [json.dumps(value).encode()], prompt, completion)


def _stream(
    body: Mapping[str, Any], behaviour: Behaviour, message: dict[str, Any], finish: str, prompt: int, completion: int
) -> Reply:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    if behaviour.fingerprint is not None:
        head["system_fingerprint"] = behaviour.fingerprint

    def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    pieces = [event({"role": "assistant", "content": ""})]
    for part in ("reasoning_content", "content", "refusal"):
        text = message.get(part)
        text = "".join(p["text"] for p in text) if isinstance(text, list) else text or ""
        pieces += [event({part: text[at : at + _CHUNK]}) for at in range(0, len(text), _CHUNK)]
    if message.get("tool_calls"):
        pieces.append(event({"tool_calls": [{"index": 0, **call} for call in message["tool_calls"]]}))
    pieces.append(event({}, finish))
    usage = _usage(behaviour, prompt, completion)
    if usage is not None and (body.get("stream_options") or {}).get("include_usage"):
        pieces.append(_event({**head, "choices": [], "usage": usage}))
    pieces.append(b"data: [DONE]\n\n")
    return Reply(200, pieces, prompt, completion, "text/event-stream")


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _embeddings(body: Mapping[str, Any], behaviour: Behaviour) -> Reply:
    texts = texts_of(body)
    size = behaviour.dimension if body.get("dimensions") is None else int(body["dimensions"])
    if behaviour.cut_text is not None:
        texts = [cut_tokens(text, behaviour.cut_text) for text in texts]
    rows = [vector(text, size) for text in texts]
    special = {"nan": float("nan"), "null": None, "zero": 0.0, "text": "0.5"}
    if behaviour.values:
        rows = [[special[behaviour.values]] * size for _ in rows]  # type: ignore[list-item]
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    if behaviour.rows < 0:
        data = data[: behaviour.rows]
    data += [{**data[-1], "index": len(data) + i} for i in range(max(0, behaviour.rows))]
    if behaviour.shuffle:
        random.Random(len(data)).shuffle(data)
    used = sum(count_tokens(text) for text in texts)
    value: dict[str, Any] = {"object": "list", "model": body["model"], "data": data}
    usage = _usage(behaviour, used, 0)
    if usage is not None:
        value["usage"] = {name: count for name, count in usage.items() if name != "completion_tokens"}
    return Reply(200, [json.dumps(value).encode()], used, 0)
