"""Where a model lies: a directory, the hub's local cache, or the hub itself where it was named and may be asked."""

from __future__ import annotations

import os
import re
from pathlib import Path

from prismem_core.errors import RoleError

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_TRUE = {"1", "ON", "YES", "TRUE"}


def locate(model: str, revision: str | None = None) -> tuple[str, bool]:
    """What vLLM is told to load, and whether it lies on this machine.

    A directory is taken as it is; a name ORG/MODEL is looked for in the hub's local cache, whose copy is loaded without
    asking the hub. Naming one that is not there allows its download, unless HF_HUB_OFFLINE forbids it. RoleError for
    what is neither.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file() and not (path / "params.json").is_file():
            raise RoleError(f"the directory {model} holds no model: it has no config.json; name one that vLLM can load")
        return str(path), True
    if not _HUB_NAME.fullmatch(model) or path.parent.is_dir():
        raise RoleError(
            f"there is no model directory {model}; give vllm: a directory that holds config.json, weights and "
            "tokenizer, or a name ORG/MODEL of the hub"
        )
    cached = _cached(model, revision or "main")
    if cached is not None:
        return str(cached), True
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE:
        raise RoleError(
            f"the model {model} is not in the hub's local cache ({_cache()}) and HF_HUB_OFFLINE forbids its download; "
            "fetch it first or name a directory"
        )
    return model, False


def _cache() -> Path:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    return Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()


def _cached(model: str, revision: str) -> Path | None:
    folder = _cache() / f"models--{model.replace('/', '--')}"
    reference = folder / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    return snapshot if (snapshot / "config.json").exists() else None
