"""The settings that decide what a program answers wherever it runs: they go with an exported program or a memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismem_core.errors import DataError, SettingsError
from prismem_core.jobs.model_tables import spec_of
from prismem_core.jobs.settings import JobSettings, build_job_settings

_KEPT = ("segment_chars", "output_retries", "interface", "memory_mib", "reranker")


def running_settings(settings: JobSettings) -> dict[str, Any]:
    """Those of a job, as keys of `[job]`; who plays the roles is not among them, but for an embedded embedder."""
    kept: dict[str, Any] = {key: getattr(settings, key) for key in _KEPT}
    kept["max_tokens"] = settings.task_tokens
    model = settings.model("embedding")
    if spec_of("embedding", model).kind == "offline":
        kept["embedder"] = model.model
    return kept


def over_running_settings(kept: Mapping[str, Any], given: JobSettings) -> JobSettings:
    """A job with the settings that a file brought, and whatever was given in their place.

    Raises DataError where the file's are none.
    """
    known = {key: value for key, value in kept.items() if key in (*_KEPT, "max_tokens", "embedder")}
    try:
        build_job_settings(known)
    except (SettingsError, TypeError, AttributeError) as error:
        raise DataError(f"its settings cannot be used ({error}); export or save it again") from None
    return build_job_settings({**known, **{key: getattr(given, key) for key in given.model_fields_set}})
