"""With which settings a memory is opened: those its file brought, those that were given, and what a program needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prismem_core.errors import ProgramError, SettingsError
from prismem_core.jobs.model_tables import spec_of
from prismem_core.jobs.settings import JobSettings, load_job_settings
from prismem_core.memory.origin import Origin
from prismem_core.program.validation import uses_collections

_LOGGER = logging.getLogger("prismem_core")

MODEL_ROLES = {"chat": "task", "embedder": "embedding"}
"""The roles that a memory needs, by the name of their argument, as the tables of models call them."""

Settings = Mapping[str, Any] | str | Path | JobSettings
"""Settings of a job: a mapping like the table `[job]` (with `models` and `budget`), a TOML file, or what was read of
them."""


def given_settings(chat: str | None, embedder: str | None, settings: Settings | None) -> JobSettings:
    """The settings as a job's; `chat` and `embedder` come before the rest. Raises SettingsError for what is none."""
    named = {"chat": chat, "embedder": embedder}
    if isinstance(settings, JobSettings):
        return settings.model_copy(update={key: value for key, value in named.items() if value is not None})
    if settings is None or isinstance(settings, (str, Path)):
        return load_job_settings(settings, named, {})[0]
    if not isinstance(settings, Mapping):
        raise SettingsError(f"settings are of type {type(settings).__name__}; expected a mapping or a TOML file")
    return load_job_settings(None, {**settings, **{k: v for k, v in named.items() if v is not None}}, {})[0]


def with_interface(settings: JobSettings, given: JobSettings, origin: Origin) -> JobSettings:
    """A program that asks for collections gets the interface that has them, unless another was asked for."""
    with named_in_errors(origin.name):
        line = uses_collections(origin.program.source)
    if line is None or settings.interface == "engine":
        return settings
    if "interface" in given.model_fields_set:
        raise ProgramError(
            "forbidden_access", f'{origin.name}, line {line}: backend.collection needs interface="engine"', line
        )
    return settings.model_copy(update={"interface": "engine"})


def compare_roles(origin: Origin, settings: JobSettings, roles: Mapping[str, str]) -> None:
    """Refuse to guess a model that is not named again; say what another one means."""
    for name, role in MODEL_ROLES.items():
        offline = spec_of(role, settings.model(role)).kind == "offline"
        if role in origin.models and offline:
            raise SettingsError(
                f"{origin.name} was made with the {role} model {origin.models[role]}; a file decides nothing about "
                f"whom its texts are sent to: name the model, as in Memory.load(..., {name}={origin.models[role]!r})"
            )
        before = origin.roles.get(name, roles[name])
        if origin.saved and before != roles[name]:
            again = "extracted" if name == "chat" else "embedded"
            _LOGGER.warning("%s was made with %s; %s has it %s anew", origin.name, before, roles[name], again)
        elif not origin.saved and offline and before != roles[name] and before.startswith(("openai:", "vllm:")):
            _LOGGER.warning("%s was evolved with %s; here %s plays that role", origin.name, before, roles[name])


@contextmanager
def named_in_errors(name: str) -> Iterator[None]:
    """What is wrong with a program is told with its name."""
    try:
        yield
    except ProgramError as error:
        where = f", line {error.line}" if error.line else ""
        raise ProgramError(error.code, f"{name}{where}: {error.code}: {error}", error.line) from None
