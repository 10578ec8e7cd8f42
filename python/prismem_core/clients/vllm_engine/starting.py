"""Starts a vLLM engine: its surroundings, its arguments, and its failures in one line."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prismem_core.clients.vllm_engine.leash import KEY, Leash
from prismem_core.clients.vllm_engine.model_files import locate
from prismem_core.errors import RoleError, SettingsError

_LOGGER = logging.getLogger("prismem_core")

_STRUCTURED = {"backend": "xgrammar", "disable_any_whitespace": True}
_HONOURS_WHITESPACE = {"xgrammar", "guidance"}
_QUOTED = 200
_ERROR = re.compile(r"(?:^|\s)([A-Z]\w*(?:Error|Exception): .+)$")


def require_vllm() -> None:
    """SettingsError where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise SettingsError(
            "vllm:MODEL runs a model in this process and needs vLLM: pip install 'prismem-core[vllm]' (a GPU), or "
            "name a server with openai:MODEL@URL"
        )


class Log:
    """The file that takes what vLLM and its processes log, so that neither stdout nor a terminal gets it.

    A VLLM_LOGGING_CONFIG_PATH of the user's is left alone, and the log then goes where that says.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="prismem-vllm-", ignore_cleanup_errors=True)
        self._path = Path(self._folder.name) / "vllm.log"
        self._settings = Path(self._folder.name) / "logging.json"
        handler = {"class": "logging.FileHandler", "filename": str(self._path), "formatter": "plain", "delay": True}
        self._settings.write_text(
            json.dumps(
                {
                    "version": 1,
                    "disable_existing_loggers": False,
                    "formatters": {"plain": {"format": "%(levelname)s %(message)s"}},
                    "handlers": {"file": handler},
                    "loggers": {"vllm": {"handlers": ["file"], "level": "WARNING", "propagate": False}},
                }
            ),
            encoding="utf-8",
        )

    def surround(self, *, offline: bool) -> None:
        """Set what vLLM reads from the environment, here and in its processes, where the user has not.

        vLLM counts its users over the network unless told not to; a forked engine would inherit this process's threads.
        """
        mine = os.environ.get("VLLM_LOGGING_CONFIG_PATH", "")
        if not mine or "prismem-vllm-" in mine:
            os.environ["VLLM_LOGGING_CONFIG_PATH"] = str(self._settings)
        for name, value in (
            ("VLLM_NO_USAGE_STATS", "1"),
            ("DO_NOT_TRACK", "1"),
            ("VLLM_WORKER_MULTIPROC_METHOD", "spawn"),
            ("TRANSFORMERS_VERBOSITY", "error"),
            ("TOKENIZERS_PARALLELISM", "false"),
        ):
            os.environ.setdefault(name, value)
        if offline:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")

    def reason(self) -> str:
        """The last error in the log, "" if there is none."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, self._path.stat().st_size - (1 << 18)))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        named = [
            match[1] for line in lines if (match := re.search(r"(?:^|\s)([A-Z]\w*(?:Error|Exception): .+)$", line))
        ]
        return named[-1] if named else ""

    def close(self) -> None:
        """Delete the file."""
        if os.environ.get("VLLM_LOGGING_CONFIG_PATH") == str(self._settings):
            del os.environ["VLLM_LOGGING_CONFIG_PATH"]
        self._folder.cleanup()


def start(
    model: str, runner: str, arguments: Mapping[str, Any], *, sequences: int, memory_fraction: float, log: Log
) -> Any:
    """A `vllm.LLM` for `model` as a `generate` or `pooling` runner; RoleError where it does not start.

    `arguments` are the user's and win over the defaults.
    """
    place, local = locate(model, arguments.get("revision"))
    log.surround(offline=local)
    if not local:
        _LOGGER.warning("the model %s is not on this machine: vLLM fetches it from the hub", model)
    chosen: dict[str, Any] = {
        "max_num_seqs": sequences,
        "gpu_memory_utilization": memory_fraction,
        "use_tqdm_on_load": False,
        **arguments,
        "additional_config": {**(arguments.get("additional_config") or {}), KEY: Leash()},
        "runner": runner,
    }
    if runner == "generate":
        chosen["structured_outputs_config"] = _structured(arguments.get("structured_outputs_config"))
    chosen.pop("chat_template", None)
    try:
        from vllm import LLM

        return LLM(place, **chosen)
    except (Exception, SystemExit) as error:
        raise RoleError(
            f"vLLM could not start {model}: {told(error, log)}; see docs/vllm.md for memory, dtype and context length"
        ) from None


def _structured(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """White space between tokens of JSON is free to a grammar: a weak model may write it without end."""
    chosen = {**_STRUCTURED, **(given or {})}
    if chosen["backend"] not in _HONOURS_WHITESPACE and "disable_any_whitespace" not in (given or {}):
        del chosen["disable_any_whitespace"]
    return chosen


def told(error: BaseException, log: Log | None = None) -> str:
    """What an exception says, on one line and short; the log's word where the exception only points to it."""
    text = str(error) or type(error).__name__
    if log is not None and re.search(r"root cause|See stack trace|EngineCore", text):
        text = log.reason() or text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A validation error of pydantic names the number of faults first, the fault after.
    if len(lines) > 1 and "validation error" in lines[0]:
        lines = lines[1:]
    plain = "".join(c if c.isprintable() else " " for c in " ".join(lines)).strip().rstrip(".")
    plain = re.sub(r"\s*\[type=.*$", "", plain)
    return plain if len(plain) <= _QUOTED else plain[:_QUOTED] + "..."
