"""The tables `[models.ROLE]` and `[budget]` of a job: who plays each role, and what may be spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prismem_core.clients.model_settings import ModelSettings, ModelSpec, parse_model
from prismem_core.errors import SettingsError
from prismem_core.evolution.settings import unknown_setting
from prismem_core.roles.budget import Allowance

ROLES = ("task", "judge", "reflection", "coding", "embedding", "annotator")
LEDGER_ROLES: Mapping[str, str] = {"task": "chat", "embedding": "embedder"}
"""What the ledger calls a role, where that is not its name here."""

OFFLINE_NAMES: Mapping[str, tuple[str, ...]] = {
    "judge": ("offline", "lexical"),
    "embedding": ("offline", "auto", "bge-small", "hashing"),
}
MAX_TOKENS: Mapping[str, int] = {
    "task": 8192,
    "judge": 8192,
    "reflection": 65_536,
    "coding": 65_536,
    "annotator": 8192,
}
"""Output tokens of a call (P section B.2)."""

_FLOATS = ("temperature", "requests_per_minute", "timeout_seconds", "deadline_seconds", "price_input", "price_output")
_FLOATS_OF_ROLE_BUDGET = ("budget_money", "budget_gpu_seconds")
_FLOATS_OF_BUDGET = ("money", "seconds", "gpu_seconds")


class BudgetSettings(BaseModel):
    """The table `[budget]`: caps over all roles together."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    calls: int | None = Field(default=None, ge=0, description="model calls")
    tokens: int | None = Field(default=None, ge=0, description="tokens read and written")
    money: float | None = Field(default=None, ge=0, description="cost by the prices of the models")
    seconds: float | None = Field(default=None, ge=0, description="wall time of all sessions of a run")
    gpu_seconds: float | None = Field(
        default=None, ge=0, description="time in which models of this process and searches compute, times their GPUs"
    )

    @property
    def allowance(self) -> Allowance:
        """As the budget takes it."""
        return Allowance(self.calls, self.tokens, self.money, self.seconds, self.gpu_seconds)


def build_budget(values: Any) -> BudgetSettings:
    """The budget of a table; SettingsError for an unknown key or a value out of range."""
    budget: BudgetSettings = _build(BudgetSettings, values, "budget", _FLOATS_OF_BUDGET)
    return budget


def build_models(values: Any) -> dict[str, ModelSettings]:
    """Model settings by role; SettingsError for an unknown role or key, a value out of range, an unreadable model."""
    if not isinstance(values, Mapping):
        raise SettingsError("models must be tables, written [models.task], [models.judge] and so on")
    models = {}
    for role, table in values.items():
        if role not in ROLES:
            raise SettingsError(f"unknown role {role!r} in [models.{role}]; known: {', '.join(ROLES)}")
        models[role] = _build(ModelSettings, table, f"models.{role}", (*_FLOATS, *_FLOATS_OF_ROLE_BUDGET))
        spec = spec_of(role, models[role])
        if spec.kind == "openai" and models[role].engine:
            raise SettingsError(
                f"setting models.{role}.engine is for vllm:MODEL, and {spec} has an engine of its own; leave it out"
            )
    return models


def spec_of(role: str, settings: ModelSettings) -> ModelSpec:
    """Who serves the role's model."""
    return parse_model(settings.model, OFFLINE_NAMES.get(role, ("offline",)))


def _build(kind: type[Any], table: Any, where: str, floats: tuple[str, ...]) -> Any:
    if isinstance(table, kind):
        return table
    if not isinstance(table, Mapping):
        raise SettingsError(f"{where} must be a table, written [{where}]")
    known = list(kind.model_fields)
    for key in table:
        if key not in known:
            raise SettingsError(f"[{where}]: {unknown_setting(str(key), known)}")
    # TOML and the command line spell whole numbers without a point; strict mode would refuse them for floats.
    prepared = {key: float(v) if key in floats and type(v) is int else v for key, v in table.items()}
    try:
        return kind(**prepared)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        meaning = kind.model_fields[name].description
        if name == "key_env":
            # What stands there by mistake may be the key itself.
            raise SettingsError(f"setting {where}.{name} is no {meaning}: keys come from the environment") from None
        raise SettingsError(f"setting {where}.{name} = {table[name]!r} ({meaning}): {first['msg']}") from None
