"""Settings of a job beside those of the evolution, from the same TOML file; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prismem_core.errors import SettingsError
from prismem_core.evolution.settings import EvolutionSettings, load_settings, read_toml, unknown_setting
from prismem_core.pipeline.pipeline import PipelineSettings
from prismem_core.program.sandbox import Limits


class JobSettings(BaseModel):
    """The table `[job]`: who plays the roles and how the pipeline runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    chat: Literal["offline"] = Field("offline", description="task model")
    embedder: Literal["auto", "bge-small", "hashing"] = Field(
        "auto", description="embedder; auto takes bge-small where the extra `offline` is installed"
    )
    reranker: bool = Field(True, description="the embedded reader uses its cross-encoder where it is installed")
    score: Literal["offline", "judge"] = Field("offline", description="the score that drives selection")
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
    max_tokens: int = Field(8192, ge=16, description="output tokens of a task-model call")
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

    def pipeline(self) -> PipelineSettings:
        """The pipeline's part."""
        return PipelineSettings(
            segment_chars=self.segment_chars,
            output_retries=self.output_retries,
            max_tokens=self.max_tokens,
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
    """Settings from the tables `[job]` and `[evolution]` of a TOML file, then overrides (None: not given).

    Raises SettingsError for a missing or broken file, an unknown table or key, and a value out of range.
    """
    evolution_settings = load_settings(path, evolution, other_tables=("job",))
    table = read_toml(path).get("job", {}) if path is not None else {}
    if not isinstance(table, Mapping):
        raise SettingsError(f"{path}: job must be a table, written [job]")
    given = {key: value for key, value in job.items() if value is not None}
    return build_job_settings({**table, **given}), evolution_settings


def build_job_settings(values: Mapping[str, Any]) -> JobSettings:
    """Settings from a mapping; raises SettingsError for an unknown key or a value out of range."""
    for key in values:
        if key not in JobSettings.model_fields:
            raise SettingsError(unknown_setting(str(key), list(JobSettings.model_fields)))
    try:
        return JobSettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        meaning = JobSettings.model_fields[name].description
        raise SettingsError(f"setting {name} = {values[name]!r} ({meaning}): {first['msg']}") from None
