"""Which model plays a role and how it is called: `offline`, `openai:MODEL@URL` or `vllm:MODEL`, and its settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from prismem_core.digests import digest
from prismem_core.errors import SettingsError
from prismem_core.roles.budget import Allowance, Price

OPENAI_URL = "https://api.openai.com/v1"
_EXPECTED = "expected offline, openai:MODEL@URL (such as openai:Qwen/Qwen3-8B@http://localhost:8000/v1) or vllm:MODEL"
_WITH_URL = re.compile(r"(?P<model>.+)@(?P<url>https?://.+)")
# A server named without its scheme must not pass for a part of a model's name: its texts would go to OpenAI.
_WITH_HOST = re.compile(
    r".*@(localhost|[^@/]+:[0-9]+|[0-9]+(\.[0-9]+){3}|\[[0-9a-fA-F:]+\])(:[0-9]+)?(/.*)?|.*@[^@]+/.*"
)

# What a call is about; further fields must not turn it into another one.
_OWN_FIELDS = {"model", "messages", "input", "n", "stream"}

Structured = Literal["auto", "json_schema", "json_object_schema", "json_object", "text"]


@dataclass(frozen=True)
class ModelSpec:
    """Who serves a model: `offline`, `openai` (any compatible server, at `url`) or `vllm` (in this process)."""

    kind: Literal["offline", "openai", "vllm"]
    model: str = ""
    url: str = ""

    def __str__(self) -> str:
        if self.kind == "offline":
            return self.model or "offline"
        return f"{self.kind}:{self.model}" + (f"@{self.url}" if self.url else "")


def parse_model(text: str, offline: tuple[str, ...] = ("offline",)) -> ModelSpec:
    """The model that `text` names; `offline` lists the names of the embedded default that the role takes.

    SettingsError for anything else, and for a URL with a password or a query, where secrets would be kept.
    """
    if text in offline:
        return ModelSpec("offline", text)
    kind, found, rest = text.partition(":")
    if not found or kind not in ("openai", "vllm") or not rest.strip():
        names = "" if offline == ("offline",) else f" or one of: {', '.join(offline)}"
        raise SettingsError(f"unknown model {text!r}; {_EXPECTED}{names}")
    if kind == "vllm":
        return ModelSpec("vllm", rest)
    match = _WITH_URL.fullmatch(rest)
    if match is None:
        if "://" in rest or rest.endswith("@") or _WITH_HOST.fullmatch(rest):
            raise SettingsError(f"model {text!r} names a server without http:// or https://, or no model; {_EXPECTED}")
        return ModelSpec("openai", rest, OPENAI_URL)
    url = match["url"].rstrip("/")
    try:
        parts = urlsplit(url)
        bad = not parts.hostname or (parts.port is not None and not 0 < parts.port < 65536)
    except ValueError:
        raise SettingsError(f"the URL of model {match['model']!r} cannot be read; {_EXPECTED}") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingsError(
            f"the URL of model {match['model']!r} holds a user, a password or a query, which would be written into the "
            "run; leave them out: keys come from the environment (docs/models.md)"
        )
    if bad:
        raise SettingsError(f"the URL {url} names no host; {_EXPECTED}")
    return ModelSpec("openai", match["model"], url)


class ModelSettings(BaseModel):
    """The table `[models.ROLE]`: the model of a role and how it is called. A None is the role's own default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str = Field(default="offline", description="offline, openai:MODEL@URL or vllm:MODEL")
    identity: str | None = Field(
        default=None, min_length=1, description="name in keys and records in place of the model and its URL"
    )
    max_tokens: int | None = Field(default=None, ge=1, description="output tokens of a call")
    temperature: float | None = Field(default=None, ge=0, le=2, description="sampling temperature; judges: 0")
    seed: int | None = Field(default=None, ge=0, description="seed sent with each call, plus the number of the try")
    reasoning_effort: str | None = Field(default=None, description="none, low, medium or high, for models that reason")
    extra_body: dict[str, Any] = Field(default_factory=dict, description="further fields of the request's body")
    structured: Structured = Field(default="auto", description="how schemas are asked for; auto: a probe decides")
    stream: bool = Field(default=False, description="read replies as a stream")
    concurrency: int = Field(default=64, ge=1, le=4096, description="calls under way at a time")
    requests_per_minute: float | None = Field(default=None, gt=0, description="calls begun in a minute")
    timeout_seconds: float = Field(default=600.0, gt=0, description="wait for one try of a call")
    deadline_seconds: float = Field(default=3600.0, gt=0, description="wait for a call with all its tries")
    retries: int = Field(default=8, ge=0, le=100, description="further tries after a failure that may pass")
    key_env: str | None = Field(
        default=None, pattern="^[A-Z_][A-Z0-9_]*$", description="name of the variable with the key, in capitals"
    )
    price_input: float = Field(default=0.0, ge=0, description="money for a million input tokens")
    price_output: float = Field(default=0.0, ge=0, description="money for a million output tokens")
    budget_calls: int | None = Field(default=None, ge=0, description="cap on the role's calls")
    budget_tokens: int | None = Field(default=None, ge=0, description="cap on the role's tokens")
    budget_money: float | None = Field(default=None, ge=0, description="cap on the role's cost")
    budget_gpu_seconds: float | None = Field(
        default=None, ge=0, description="cap on the role's GPU seconds (vllm: models)"
    )
    instruction: str | None = Field(default=None, description="embedders: task put before every text (Qwen3 form)")
    dimension: int | None = Field(default=None, ge=1, description="embedders: size of a row, where there is a choice")
    batch: int = Field(default=64, ge=1, le=4096, description="embedders: texts of a call; vllm: see docs/models.md")
    max_input_tokens: int | None = Field(default=None, ge=1, description="embedders: tokens a text may have")
    engine: dict[str, Any] = Field(default_factory=dict, description="vllm: arguments of the engine")

    @field_validator("extra_body")
    @classmethod
    def _leaves_the_request_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(_OWN_FIELDS & value.keys())
        if taken:
            raise ValueError(f"{', '.join(taken)} belongs to the request itself and cannot be set here")
        return value

    @property
    def price(self) -> Price:
        """What the model costs."""
        return Price(self.price_input, self.price_output)

    @property
    def allowance(self) -> Allowance:
        """What the role may spend."""
        return Allowance(self.budget_calls, self.budget_tokens, self.budget_money, gpu_seconds=self.budget_gpu_seconds)

    def identity_of(self, spec: ModelSpec) -> str:
        """What the model is called in keys and records: its name and, as a digest, whatever can change its reply."""
        name = self.identity or str(spec)
        changing = {
            "temperature": self.temperature,
            "seed": self.seed,
            "reasoning_effort": self.reasoning_effort,
            "structured": None if self.structured == "auto" else self.structured,
            "extra_body": json.dumps(self.extra_body, sort_keys=True),
            "instruction": self.instruction,
            "dimension": self.dimension,
            "max_input_tokens": self.max_input_tokens,
            "engine": json.dumps(_behaviour(self.engine), sort_keys=True, default=str),
        }
        given = {key: value for key, value in changing.items() if value not in (None, "{}")}
        return f"{name}#{digest('model', given)[:12]}" if given else name


# How fast an engine runs and where; none of them is meant to change a reply.
_SPEED = {
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enforce_eager",
    "swap_space",
    "cpu_offload_gb",
    "disable_log_stats",
}


def _behaviour(engine: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in engine.items() if key not in _SPEED}
