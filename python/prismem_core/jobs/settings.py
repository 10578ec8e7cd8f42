"""Settings of a job beside those of the evolution, from the same TOML file; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prismem_core.clients.model_settings import ModelSettings
from prismem_core.errors import SettingsError
from prismem_core.evolution.settings import EvolutionSettings, read_toml, settings_in, unknown_setting
from prismem_core.jobs.model_tables import (
    MAX_TOKENS,
    ROLES,
    BudgetSettings,
    build_budget,
    build_models,
    spec_of,
)
from prismem_core.pipeline.pipeline import PipelineSettings
from prismem_core.program.sandbox import Limits


class JobSettings(BaseModel):
    """The table `[job]`: how the pipeline runs and, in short, who plays the roles; `models` and `budget` are tables of
    their own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    chat: str | None = Field(None, description="task model: offline, openai:MODEL@URL or vllm:MODEL")
    judge: str | None = Field(None, description="judge: lexical, openai:MODEL@URL or vllm:MODEL")
    designer: str | None = Field(None, description="reflection and coding model: offline, openai:... or vllm:...")
    embedder: str | None = Field(
        None, description="embedder: auto (bge-small where the extra `offline` is installed), bge-small, hashing, ..."
    )
    annotator: str | None = Field(
        None, description="annotator of capabilities: offline (rules), openai:MODEL@URL or vllm:MODEL"
    )
    reranker: bool = Field(True, description="the embedded reader uses its cross-encoder where it is installed")
    score: Literal["auto", "offline", "judge"] = Field(
        "auto", description="the score that drives selection; auto: the judge's where a model judges"
    )
    reuse: Literal["content", "paper", "off"] = Field("content", description="how far stages are shared")
    workers: int = Field(2, ge=1, le=256, description="threads that run stages; never changes a result")
    interface: Literal["paper", "engine"] = Field(
        "paper", description="what a program's backend offers; engine adds collections"
    )
    copies: int = Field(8, ge=1, le=256, description="queries of a memory under way; never changes a result")
    frozen_mib: int | None = Field(
        None,
        ge=0,
        description="MiB of built memories kept for the next program (0: none); never changes a result",
    )
    verify_reuse: float = Field(
        0.0, ge=0.0, le=1.0, description="share of reused memories that are built again to compare"
    )
    device: str = Field(
        "cpu", description="cpu, cuda or cuda:N: what searches embeddings first; never changes a result"
    )
    segment_chars: int = Field(12_000, ge=200, description="characters of an extraction segment")
    output_retries: int = Field(2, ge=0, le=10, description="times a malformed reply is asked for again")
    annotation_retries: int = Field(
        2, ge=0, le=10, description="times an annotation out of form is asked for again; then the native type counts"
    )
    prompt_chars: int = Field(
        200_000, ge=20_000, description="characters of a prompt of the designer's models; longer ones show less"
    )
    max_tokens: int = Field(MAX_TOKENS["task"], ge=16, description="output tokens of a task-model call")
    sandbox_require: Literal["standard", "strict"] = Field(
        "standard", description="least tier that programs must be confined with; the command is refused below it"
    )
    memory_mib: int = Field(2048, ge=128, description="address space of a program's worker")
    cache_mib: int = Field(256, ge=1, description="memory tier of the execution cache")
    cache_bytes: int = Field(
        16 << 30,
        ge=1 << 20,
        le=1 << 50,
        description="bytes of the execution cache on disk; beyond, entries go",
    )

    record: str | None = Field(None, description="file that gets every model call, for replay")
    replay: str | None = Field(None, description="recording that answers in place of the models")
    models: dict[str, ModelSettings] = Field(default_factory=dict, description="settings of the models by role")
    budget: BudgetSettings = Field(default_factory=BudgetSettings, description="caps over all models")

    def model(self, role: str) -> ModelSettings:
        """The settings of a role's model: what `[job]` or a flag names comes before the role's table."""
        table = self.models.get(role)
        named = {
            "task": self.chat,
            "judge": self.judge,
            "embedding": self.embedder,
            "annotator": self.annotator,
            "reflection": self.designer,
            "coding": self.designer,
        }[role]
        if named is None:
            if table is None and role == "embedding":
                return ModelSettings(model="auto")
            return table or ModelSettings()
        return (table or ModelSettings()).model_copy(update={"model": named})

    @property
    def task_tokens(self) -> int:
        """Output tokens of a call of the task model."""
        return self.model("task").max_tokens or self.max_tokens

    def pipeline(self) -> PipelineSettings:
        """The pipeline's part."""
        return PipelineSettings(
            segment_chars=self.segment_chars,
            output_retries=self.output_retries,
            max_tokens=self.task_tokens,
            reuse=self.reuse,
            workers=self.workers,
            interface=self.interface,
            copies=self.copies,
            device=self.device,
            limits=Limits(memory_bytes=self.memory_mib << 20),
            frozen_bytes=None if self.frozen_mib is None else self.frozen_mib << 20,
            verify_reuse=self.verify_reuse,
        )


def load_job_settings(
    path: str | Path | None, job: Mapping[str, Any], evolution: Mapping[str, Any]
) -> tuple[JobSettings, EvolutionSettings]:
    """Settings from the tables `[job]`, `[models.ROLE]`, `[budget]` and `[evolution]` of a TOML file, then overrides
    (None: not given). In `job` the keys `models` and `budget` hold tables whose values come before the file's.

    Raises SettingsError for a missing or broken file, an unknown table or key, and a value out of range.
    """
    document = {} if path is None else read_toml(path)
    evolution_settings = settings_in(document, path, evolution, other_tables=("job", "models", "budget"))
    table = document.get("job", {})
    if not isinstance(table, Mapping):
        raise SettingsError(f"{path}: job must be a table, written [job]")
    for key in ("models", "budget"):
        if key in table:
            raise SettingsError(f"{path}: {key} is a table of its own, written [{key}{'.task' * (key == 'models')}]")
    given = {key: value for key, value in job.items() if value is not None}
    tables = {key: _merged(document.get(key, {}), given.pop(key, None)) for key in ("models", "budget")}
    return build_job_settings({**table, **given, **tables}), evolution_settings


def _merged(below: Any, above: Any) -> Any:
    """`above` laid over `below`, table by table."""
    if above is None:
        return below
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    return {**below, **{key: _merged(below.get(key, {}), value) for key, value in above.items()}}


def build_job_settings(values: Mapping[str, Any]) -> JobSettings:
    """Settings from a mapping; raises SettingsError for an unknown key or a value out of range."""
    for key in values:
        if key not in JobSettings.model_fields:
            raise SettingsError(unknown_setting(str(key), list(JobSettings.model_fields)))
    values = {
        **values,
        "models": build_models(values.get("models", {})),
        "budget": build_budget(values.get("budget", {})),
    }
    try:
        settings = JobSettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        meaning = JobSettings.model_fields[name].description
        raise SettingsError(f"setting {name} = {values[name]!r} ({meaning}): {first['msg']}") from None
    for role in ROLES:
        spec_of(role, settings.model(role))
    return settings
