"""The engines of a run: roles that name one model share one, and one GPU's memory is parted between them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.clients.vllm_engine.engine import Engine
from prismem_core.clients.vllm_engine.starting import Log, require_vllm, start, told
from prismem_core.errors import SettingsError

SEQUENCES = 256
"""Calls that an engine works on at a time, unless `concurrency` or `engine.max_num_seqs` says otherwise."""

_MEMORY = "gpu_memory_utilization"
_WHOLE = 0.9
_CHATS_BESIDE_EMBEDDERS = 0.65
_EMBEDDERS_BESIDE_CHATS = 0.25


@dataclass
class _Shared:
    engine: Engine
    runner: str
    arguments: Mapping[str, Any]
    holders: int = 0


class Engines:
    """Hands out engines and ends each with its last holder; thread-safe.

    Without a fraction of its own (`engine.gpu_memory_utilization`) an engine gets its part of the GPU's memory: alone
    0.9, else 0.65 for all chats and 0.25 for all embedders. Engines start one after the other, since each measures
    what memory it has.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._shared: dict[tuple[str, str], _Shared] = {}
        self._log: Log | None = None

    def take(self, spec: ModelSpec, settings: ModelSettings, runner: str) -> Engine:
        """The engine for that model; SettingsError where vLLM is missing or two roles contradict each other."""
        require_vllm()
        arguments = dict(settings.engine)
        key = (spec.model, runner)
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                sequences = _sequences(settings)
                # A pooled call is a single step: as many again wait at the engine's door, so that it has no pause.
                window = sequences if runner == "generate" else 2 * sequences
                engine = Engine(
                    spec.model,
                    lambda: self._start(spec.model, runner, arguments, sequences),
                    window,
                    self._tell,
                    self._starting,
                )
                shared = self._shared[key] = _Shared(engine, runner, arguments)
            elif json.dumps(arguments, sort_keys=True) != json.dumps(shared.arguments, sort_keys=True):
                raise SettingsError(
                    f"two roles name vllm:{spec.model} with different tables `engine`; they share one engine, so give "
                    "both the same"
                )
            shared.holders += 1
            return shared.engine

    def give_back(self, engine: Engine) -> None:
        """One holder has gone; the last one ends the engine."""
        last = None
        with self._lock:
            for key, shared in list(self._shared.items()):
                if shared.engine is engine:
                    shared.holders -= 1
                    if shared.holders == 0:
                        del self._shared[key]
                        last = shared.engine
            log = self._log if last is not None and not self._shared else None
            self._log = None if log is not None else self._log
        if last is not None:
            last.close()
        if log is not None:
            log.close()

    def _start(self, model: str, runner: str, arguments: Mapping[str, Any], sequences: int) -> Any:
        with self._lock:
            self._log = self._log or Log()
            log, fraction = self._log, self._fraction(runner)
        return start(model, runner, arguments, sequences=sequences, memory_fraction=fraction, log=log)

    def _tell(self, error: BaseException) -> str:
        return told(error, self._log)

    def _fraction(self, runner: str) -> float:
        everyone = list(self._shared.values())
        free = [one for one in everyone if _MEMORY not in one.arguments]
        alike = sum(one.runner == runner for one in free)
        left = max(0.05, _WHOLE - sum(float(one.arguments[_MEMORY]) for one in everyone if _MEMORY in one.arguments))
        if alike == len(free):
            return left / max(1, alike)
        part = _CHATS_BESIDE_EMBEDDERS if runner == "generate" else _EMBEDDERS_BESIDE_CHATS
        return part * left / _WHOLE / max(1, alike)


def _sequences(settings: ModelSettings) -> int:
    if "max_num_seqs" in settings.engine:
        return int(settings.engine["max_num_seqs"])
    return settings.concurrency if "concurrency" in settings.model_fields_set else SEQUENCES
