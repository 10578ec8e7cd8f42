"""The models of a job: clients by role, one for each model that several roles share, recorded or replayed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.clients.offline import offline_roles
from prismem_core.clients.vllm_engine.engines import Engines
from prismem_core.errors import SettingsError
from prismem_core.jobs.model_tables import LEDGER_ROLES, MAX_TOKENS, ROLES, build_models, spec_of
from prismem_core.jobs.settings import JobSettings
from prismem_core.roles.budget import Budget, Price
from prismem_core.roles.ledger import Ledger, Usage
from prismem_core.roles.protocols import Chat, Embedder
from prismem_core.roles.recording import (
    Recorder,
    Recording,
    RecordingChat,
    RecordingEmbedder,
    ReplayedChat,
    ReplayedEmbedder,
)


class ModelClients:
    """The clients that the settings name; opens no connection and loads no model before the first call.

    A role whose model is the embedded default has None here. A context manager that ends what was begun.
    """

    def __init__(self, settings: JobSettings) -> None:
        if settings.record and settings.replay:
            raise SettingsError("record and replay contradict each other: a replayed run makes no call to record")
        self._replayed = Recording(Path(settings.replay)) if settings.replay else None
        self.models = job_models(settings, self._replayed)
        self.specs = {role: spec_of(role, model) for role, model in self.models.items()}
        self._recorder: Recorder | None = None
        self._clients: list[Any] = []
        self._engines = Engines()
        self._first: dict[Any, Any] = {}
        self._record = settings.record
        self.chats: dict[str, Chat | None] = {role: self._chat(role) for role in ROLES if role != "embedding"}
        self.embedder: Embedder | None = self._embedder()
        if self._record is not None:
            self._start_recording(Path(self._record))

    @property
    def called(self) -> bool:
        """Whether a role has a model beyond the embedded default."""
        return self.embedder is not None or any(chat is not None for chat in self.chats.values())

    def budget(self, settings: JobSettings, ledger: Ledger) -> Budget:
        """The caps of the settings, less what the ledger says was used."""
        spent: dict[str, Usage] = {}
        for (role, _), usage in ledger.totals().items():
            spent.setdefault(role, Usage()).add(usage)
        return Budget(
            settings.budget.allowance,
            {ledger_role(role): model.allowance for role, model in self.models.items()},
            prices(self.models),
            spent,
            gpu_spent=ledger.gpu_seconds(),
            seconds=ledger.seconds(),
        )

    def max_tokens(self, role: str) -> int:
        """Output tokens of a call of that role."""
        return self.models[role].max_tokens or MAX_TOKENS[role]

    def close(self) -> None:
        """End connections, engines and the recording."""
        for client in self._clients:
            client.close()
        if self._recorder is not None:
            self._recorder.close()

    def _chat(self, role: str) -> Chat | None:
        spec, model = self.specs[role], self.models[role]
        if spec.kind == "offline":
            return None
        if self._replayed is not None:
            return ReplayedChat(self._replayed, ledger_role(role), model.identity_of(spec))
        client: Any = make_chat(spec, model, self._engines)
        self._clients.append(client)
        if spec.kind == "openai":
            # The same model at the same server is found out about once.
            first = self._first.setdefault((spec, model.structured, repr(model.extra_body)), client)
            if first is not client:
                client.learn_from(first)
        chat: Chat = client
        return chat

    def _embedder(self) -> Embedder | None:
        spec, model = self.specs["embedding"], self.models["embedding"]
        if spec.kind == "offline":
            return None
        if self._replayed is not None:
            return ReplayedEmbedder(self._replayed, ledger_role("embedding"), model.identity_of(spec))
        client = make_embedder(spec, model, self._engines)
        self._clients.append(client)
        return client

    def _start_recording(self, path: Path) -> None:
        recorded = {role: m.model_dump() for role, m in self.models.items() if self.specs[role].kind != "offline"}
        if not recorded:
            raise SettingsError("record: there is no model call to record, all roles are the embedded default")
        recorder = self._recorder = Recorder(path, recorded, _secrets(self.models))
        self.chats = {
            role: None if chat is None else RecordingChat(chat, recorder, ledger_role(role))
            for role, chat in self.chats.items()
        }
        if self.embedder is not None:
            self.embedder = RecordingEmbedder(self.embedder, recorder, ledger_role("embedding"))


def ledger_role(role: str) -> str:
    """What the ledger and the budget call a role of the settings."""
    return LEDGER_ROLES.get(role, role)


def prices(models: Mapping[str, ModelSettings]) -> dict[str, Price]:
    """Prices by the ledger's names of the roles."""
    return {ledger_role(role): model.price for role, model in models.items()}


def make_chat(spec: ModelSpec, settings: ModelSettings, engines: Engines | None = None) -> Chat:
    """A chat client; SettingsError where the extra it needs is missing. Models in this process share `engines`."""
    if spec.kind == "vllm":
        from prismem_core.clients.vllm_engine import VLLMChat

        return VLLMChat(spec, settings, engines=engines)
    if spec.kind == "openai":
        from prismem_core.clients.openai_compatible import OpenAIChat

        return OpenAIChat(spec, settings)
    return offline_roles(quiet=True).chat


def make_embedder(spec: ModelSpec, settings: ModelSettings, engines: Engines | None = None) -> Embedder:
    """An embedding client, as `make_chat`."""
    if spec.kind == "vllm":
        from prismem_core.clients.vllm_engine import VLLMEmbedder

        return VLLMEmbedder(spec, settings, engines=engines)
    if spec.kind == "openai":
        from prismem_core.clients.openai_compatible import OpenAIEmbedder

        return OpenAIEmbedder(spec, settings)
    return offline_roles(embedder=spec.model if spec.model != "offline" else "auto", quiet=True).embedder


def job_models(settings: JobSettings, recording: Recording | None = None) -> dict[str, ModelSettings]:
    """Settings by role; those of a recording where one answers, which the settings may repeat but not contradict."""
    models = {role: settings.model(role) for role in ROLES}
    if recording is None and settings.replay:
        recording = Recording(Path(settings.replay))
    if recording is None:
        return models
    try:
        recorded_models = build_models(recording.models)
    except SettingsError as error:
        raise SettingsError(f"{recording.path} has a damaged head ({error}); record the run again") from None
    for role, recorded in recorded_models.items():
        given = spec_of(role, models[role])
        if given.kind != "offline" and str(given) != recorded.model:
            raise SettingsError(
                f"the recording {recording.path} has {recorded.model} as {role} model, not {given}; leave it out"
            )
        models[role] = recorded
    for role, model in models.items():
        if role not in recording.models and spec_of(role, model).kind != "offline":
            raise SettingsError(f"the recording {recording.path} has no {role} model; leave {model.model} out")
    return models


def with_moved_servers(settings: JobSettings, moved: Sequence[str]) -> JobSettings:
    """Settings whose models are called at new URLs and keep their identity, so that what was paid for stays theirs.

    Each of `moved` is `OLD_URL=NEW_URL`; SettingsError where no model is called at the old one.
    """
    for pair in moved:
        old, found, new = (part.strip().rstrip("/") for part in pair.partition("="))
        models = {role: settings.model(role) for role in ROLES}
        specs = {role: spec_of(role, model) for role, model in models.items()}
        there = [role for role, spec in specs.items() if spec.kind == "openai" and spec.url == old]
        if not found or not there:
            known = ", ".join(sorted({spec.url for spec in specs.values() if spec.url})) or "no server"
            raise SettingsError(f"--moved {pair!r} is not OLD_URL=NEW_URL with the URL of a model; the run has {known}")
        for role in there:
            spec, model = specs[role], models[role]
            named = {"model": str(replace(spec, url=new)), "identity": model.identity or str(spec)}
            models[role] = model.model_copy(update=named)
            if spec_of(role, models[role]).url != new:
                raise SettingsError(f"--moved {pair!r}: {new!r} is no URL of a server; write OLD_URL=NEW_URL")
        # What a flag named stands in the tables now.
        settings = settings.model_copy(
            update={
                "models": models,
                "chat": None,
                "judge": None,
                "designer": None,
                "embedder": None,
                "annotator": None,
            }
        )
    return settings


def _secrets(models: Mapping[str, ModelSettings]) -> list[str]:
    names = {"OPENAI_API_KEY", *(model.key_env for model in models.values() if model.key_env)}
    return [value for name in sorted(names) if (value := os.environ.get(name))]
