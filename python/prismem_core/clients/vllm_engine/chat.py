"""A chat model in this process, with JSON schemas held by vLLM's structured outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.clients.vllm_engine.engine import Call
from prismem_core.clients.vllm_engine.engines import Engines
from prismem_core.clients.vllm_engine.starting import told
from prismem_core.errors import RoleError, SettingsError
from prismem_core.pipeline.structured import without_reasoning
from prismem_core.roles.account import Account
from prismem_core.roles.meter import Meter
from prismem_core.roles.protocols import ChatReply, ChatRequest

_OPENS_REASONING = "<think>"


class VLLMChat:
    """A Chat over `vllm.LLM`; replies are handed over as they are finished.

    Requests are sent with equal beginnings side by side, for the prefix cache, as many at a time as the engine works
    on; `account.admit()` is asked before each. `max_tokens` bounds the output tokens of every call. Roles that are
    given one `engines` share what they can. RoleError for a prompt longer than the model's context and for an engine
    that does not start or ends, SettingsError without vLLM and for a field of `extra_body` that vLLM does not know.
    """

    concurrent = True
    """Calls of several threads go out side by side."""

    def __init__(
        self,
        spec: ModelSpec,
        settings: ModelSettings,
        *,
        max_tokens: int | None = None,
        engines: Engines | None = None,
    ) -> None:
        self.identity = settings.identity_of(spec)
        self.account = Account("task")
        self._settings = settings
        self._max_tokens = max_tokens
        self._engines = engines or Engines()
        self._engine = self._engines.take(spec, settings, "generate")
        self.meter = Meter(self._engine.window)
        self._defaults: dict[str, Any] | None = None
        self._closed = False

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Replies in the order of `requests`."""
        replies = dict(self.complete_each(requests))
        return [replies[i] for i in range(len(requests))]

    def complete_each(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatReply]]:
        """(position, reply) in the order of completion; after a failure those under way, then RoleError."""
        if not requests:
            return
        order = sorted(
            range(len(requests)), key=lambda i: (requests[i].purpose, requests[i].system, requests[i].prompt)
        )
        beginnings: dict[int, str] = {}
        calls = (self._call(i, requests[i], beginnings) for i in order)
        run = self._engine.run(calls, self._admit, self.meter.enter, self._ended, self, self._computed)
        for position, output in run:
            yield position, self._reply(output, beginnings.pop(position))

    def as_batch(self, requests: Sequence[ChatRequest]) -> tuple[Any, list[dict[str, list[int]]], list[Any]]:
        """`LLM.generate` and what it takes for the same calls as one batch, for a comparison while nothing is asked."""
        calls = [self._call(i, request, {}) for i, request in enumerate(requests)]
        prompts = [{"prompt_token_ids": call.token_ids} for call in calls]
        return self._engine.started().generate, prompts, [call.parameters for call in calls]

    def stop(self, *, at_once: bool = False) -> None:
        """Begin no further call of those that were asked for; the ones under way are handed over, or broken off."""
        self._engine.stop(self, at_once=at_once)

    def close(self) -> None:
        """Give the engine back; the last role that holds it ends its processes."""
        if not self._closed:
            self._closed = True
            self._engines.give_back(self._engine)

    def _admit(self) -> None:
        self.account.admit()

    def _computed(self, gpu_seconds: float) -> None:
        self.account.compute(gpu_seconds)

    def _ended(self, output: Any) -> None:
        self.meter.leave()
        if output is not None:
            self.account.settle(*_tokens(output))

    def _call(self, position: int, request: ChatRequest, beginnings: dict[int, str]) -> Call:
        text_mode = request.schema is not None and self._settings.structured in ("text", "json_object")
        prompt = _with_schema(request) if text_mode else request.prompt
        messages = [{"role": "system", "content": request.system}] if request.system else []
        messages.append({"role": "user", "content": prompt})
        token_ids, rendered = self._engine.with_tokenizer(lambda tokenizer: self._render(tokenizer, messages))
        room = self._engine.max_model_len
        if len(token_ids) >= room:
            raise RoleError(
                f"a prompt of the stage {request.purpose!r} has {len(token_ids):,} tokens, and {self._engine.name} "
                f"reads {room:,} with its reply; lower segment_chars or, if the model allows it, raise "
                "engine.max_model_len"
            )
        # A template may open the reasoning itself: the reply then begins inside it.
        constrained = request.schema is not None and self._settings.structured != "text"
        opened = rendered.rstrip().endswith(_OPENS_REASONING) and not (constrained and not self._parses_reasoning())
        beginnings[position] = _OPENS_REASONING if opened else ""
        return Call(position, token_ids, self._parameters(request))

    def _render(self, tokenizer: Any, messages: list[dict[str, str]]) -> tuple[list[int], str]:
        more = dict(self._settings.extra_body.get("chat_template_kwargs", {}))
        effort = self._settings.reasoning_effort
        if effort is not None:
            more = {"reasoning_effort": effort, "enable_thinking": effort != "none", **more}
        if "chat_template" in self._settings.engine:
            more["chat_template"] = self._settings.engine["chat_template"]
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more)
            if isinstance(text, str):
                return list(tokenizer.encode(text, add_special_tokens=False)), text
            return list(text), ""
        except Exception as error:
            raise RoleError(
                f"the chat template of {self._engine.name} cannot be used ({told(error)}); name a chat model, or give "
                "engine.chat_template"
            ) from None

    def _parameters(self, request: ChatRequest) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        settings = self._settings
        if self._defaults is None:
            self._defaults = _model_defaults(self._engine.started())
        chosen: dict[str, Any] = {
            **self._defaults,
            "temperature": request.temperature if settings.temperature is None else settings.temperature,
            "max_tokens": request.max_tokens if self._max_tokens is None else min(request.max_tokens, self._max_tokens),
        }
        if settings.seed is not None:
            chosen["seed"] = settings.seed + request.sample
        chosen |= {
            k: v for k, v in settings.extra_body.items() if k not in ("chat_template_kwargs", "structured_outputs")
        }
        try:
            if request.schema is not None and settings.structured != "text":
                held = (
                    StructuredOutputsParams(json_object=True)
                    if settings.structured == "json_object"
                    else StructuredOutputsParams(json=_plain(request.schema))
                )
                chosen["structured_outputs"] = held
            # Only whole replies are read: intermediate ones would cost a message for every token.
            parameters = SamplingParams(**chosen)
            parameters.output_kind = _final_only()
            return parameters
        except (TypeError, ValueError) as error:
            raise SettingsError(
                f"vLLM does not take the settings of {self._engine.name} ({told(error)}); look at temperature, seed, "
                "max_tokens and extra_body"
            ) from None

    def _parses_reasoning(self) -> bool:
        engine = self._settings.engine
        return bool(
            engine.get("reasoning_parser") or (engine.get("structured_outputs_config") or {}).get("reasoning_parser")
        )

    def _reply(self, output: Any, beginning: str) -> ChatReply:
        completion = output.outputs[0]
        read, written = _tokens(output)
        reason = completion.finish_reason
        if reason not in ("stop", "length", "repetition"):
            raise RoleError(f"the vLLM engine of {self._engine.name} ended a call without a reply ({reason}); resume")
        text = without_reasoning(beginning + completion.text)
        return ChatReply(text, read, written, "length" if reason == "length" else "stop")


def _tokens(output: Any) -> tuple[int, int]:
    """Tokens that a call read and wrote."""
    return len(output.prompt_token_ids or ()), len(output.outputs[0].token_ids)


def _model_defaults(llm: Any) -> dict[str, Any]:
    """Sampling that the model's own generation_config.json asks for, as vLLM's server applies it."""
    defaults = llm.get_default_sampling_params()
    names = ("top_p", "top_k", "min_p", "repetition_penalty")
    return {name: getattr(defaults, name) for name in names}


def _final_only() -> Any:
    from vllm.sampling_params import RequestOutputKind

    return RequestOutputKind.FINAL_ONLY


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as plain JSON data."""
    return dict(json.loads(json.dumps(schema)))


def _with_schema(request: ChatRequest) -> str:
    schema = json.dumps(request.schema, ensure_ascii=False)
    return f"{request.prompt}\n\nReply with JSON that meets this JSON schema and with nothing else:\n{schema}"
