"""Settings of the evolution, from a TOML table and overrides; unknown keys are refused."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prismem_core.errors import SettingsError


class EvolutionSettings(BaseModel):
    """Budgets, thresholds and strategy (P section B.2, Table 8)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    T1: int = Field(5, ge=0, description="iterations of the cold start")
    T2: int = Field(12, ge=0, description="iterations of capability refinement")
    T3: int = Field(3, ge=0, description="rounds of integration")
    delta: float = Field(0.8, ge=0, le=1, description="a training task below this score can become a case")
    K: int = Field(5, ge=1, description="cases shown in a refinement")
    theta: float = Field(0.1, ge=0, le=1, description="largest relative drop of a capability an integration may cause")
    overall_set: Literal["valid", "train", "all"] = Field("valid", description="tasks of the overall score s(P)")
    repair_attempts: int = Field(2, ge=0, le=10, description="times a failed reply goes back to the coder")
    measured_retries: int = Field(0, ge=0, le=10, description="times a measured, rejected candidate is tried again")
    strategy: Literal["prismem", "holistic", "round-robin", "random-case", "no-integration", "router"] = Field(
        "prismem", description="variant of Algorithm 1"
    )
    router: Literal["question", "oracle"] = Field(
        "question", description="strategy router: capability by the task model from the question, or by native type"
    )
    reallocate_budget: bool = Field(True, description="strategies without integration refine for T3 more iterations")
    seed: int = Field(0, ge=0, description="seed of every random choice")


def build_settings(values: Mapping[str, Any]) -> EvolutionSettings:
    """Settings from a mapping.

    SettingsError names an unknown key with close matches, or says what a value should have been.
    """
    known = list(EvolutionSettings.model_fields)
    for key in values:
        if key not in known:
            raise SettingsError(unknown_setting(str(key), known))
    # TOML and the command line spell whole numbers without a point; strict mode would refuse them for floats.
    prepared = {
        key: float(value) if key in ("delta", "theta") and type(value) is int else value
        for key, value in values.items()
    }
    try:
        return EvolutionSettings.model_validate(prepared)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        meaning = EvolutionSettings.model_fields[name].description
        raise SettingsError(f"setting {name} = {values[name]!r} ({meaning}): {first['msg']}") from None


def load_settings(
    path: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    other_tables: Collection[str] = (),
) -> EvolutionSettings:
    """Settings from the table `[evolution]` of a TOML file, then `overrides` (None values count as not given).

    A top-level key other than `evolution` and `other_tables` (read elsewhere) raises SettingsError, as do a missing and
    a broken file.
    """
    return settings_in({} if path is None else read_toml(path), path, overrides, other_tables=other_tables)


def settings_in(
    document: Mapping[str, Any],
    path: str | Path | None,
    overrides: Mapping[str, Any] | None = None,
    *,
    other_tables: Collection[str] = (),
) -> EvolutionSettings:
    """As `load_settings`, from the document that was read at `path`; `other_tables` are read elsewhere."""
    tables = ["evolution", *other_tables]
    for key in document:
        if key not in tables:
            at_home = key in EvolutionSettings.model_fields
            hint = "; it belongs into the table [evolution]" if at_home else _hint(key, tables)
            raise SettingsError(f"{path}: unknown key {key!r}{hint}")
    table = document.get("evolution", {})
    if not isinstance(table, Mapping):
        raise SettingsError(f"{path}: evolution must be a table, written [evolution]")
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    return build_settings({**table, **given})


def read_toml(path: str | Path) -> dict[str, Any]:
    """The document in a TOML file; SettingsError where it is missing or broken."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"no settings file at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"settings file {path} is not valid TOML: {error}") from None


def unknown_setting(key: str, known: Collection[str]) -> str:
    """The sentence that refuses a key: close matches first, then all that are known."""
    return f"unknown setting {key!r}{_hint(key, known)}; known: {', '.join(known)}"


def _hint(key: str, known: Collection[str]) -> str:
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower(), list(lower), n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(lower[name] for name in close)}?" if close else ""
