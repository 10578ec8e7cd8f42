"""An examination of the installation: every part is tried, not inferred from versions."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from prismem_core import __version__, ops
from prismem_core.cache import ExecutionCache
from prismem_core.clients.offline import offline_roles
from prismem_core.clients.offline.model_files import why_missing
from prismem_core.digests import digest
from prismem_core.jobs.gpu_examination import gpu_parts
from prismem_core.jobs.sandbox_examination import sandbox_parts
from prismem_core.program.sandbox.layers import Required
from prismem_core.tasks.datasets import load


@dataclass(frozen=True)
class Finding:
    """What trying one part came to: `ok`, `missing` (the main job runs without it) or `broken`.

    A layer of the sandbox is `witnessed` or `missing`; whether the job runs without it is said of the tier.
    """

    part: str
    state: str
    message: str


def examine(require: Required = "standard") -> list[Finding]:
    """Try the native core, the cache, the sandbox, the embedded models, the sample data and what a GPU needs.

    A tier of the sandbox below `require` is broken.
    """
    parts: list[tuple[str, Callable[[], tuple[str, str]]]] = [
        ("platform", _platform),
        ("native ops", _ops),
        ("execution cache", _cache),
        *sandbox_parts(require),
        ("embedded models", _models),
        ("model servers", partial(_extra, "openai", ("openai", "tenacity", "aiolimiter"), "openai:MODEL@URL")),
        ("models in process", partial(_extra, "vllm", ("vllm",), "vllm:MODEL")),
        ("sample data", _sample),
        *gpu_parts(),  # last: a driver that has started does not survive a fork
    ]
    findings = []
    for part, attempt in parts:
        try:
            state, message = attempt()
        except Exception as error:  # any failure of a part is what this command is there to show
            state, message = "broken", f"{type(error).__name__}: {error}"
        findings.append(Finding(part, state, message))
    return findings


def _platform() -> tuple[str, str]:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return "ok", f"{platform.system()} {platform.release()} {platform.machine()}, {python}, prismem-core {__version__}"


def _ops() -> tuple[str, str]:
    rows = np.eye(4, 8, dtype=np.float32)
    found = ops.top_k(rows[2:3], rows, 1)
    if int(found.indices[0, 0]) != 2:
        return "broken", "top_k found the wrong row"
    return "ok", ops.explain("top_k", rows, rows)


def _cache() -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as directory:
        key = digest("doctor")
        with ExecutionCache(Path(directory) / "cache") as cache:
            cache.put("doctor", key, b"kept")
        with ExecutionCache(Path(directory) / "cache") as cache:
            if cache.get("doctor", key) != b"kept":
                return "broken", "a stored value was not read back"
    return "ok", "a value survived closing and reopening"


def _models() -> tuple[str, str]:
    roles = offline_roles(quiet=True)
    row = roles.embedder.embed(["a short sentence"])
    if row.shape != (1, roles.embedder.dimension):
        return "broken", f"{roles.embedder.identity} returned shape {row.shape}"
    if roles.embedder.identity.startswith("hashing"):
        return "missing", f"a hashing embedder stands in: {why_missing()}"
    return "ok", f"{roles.embedder.identity}; reader {roles.chat.identity}"


def _extra(extra: str, modules: Sequence[str], spec: str) -> tuple[str, str]:
    """Whether the modules of an extra import; nothing is contacted."""
    for module in modules:
        # vLLM takes half a minute to import, and may start more than this command should.
        if importlib.util.find_spec(module) is None:
            return "missing", f"{module} is not installed, which {spec} needs; pip install 'prismem-core[{extra}]'"
        if module != "vllm":
            importlib.import_module(module)
    return "ok", f"{spec} can be used (docs/models.md)"


def _sample() -> tuple[str, str]:
    dataset = load("sample")
    return "ok", f"{len(dataset.histories)} conversations, {len(dataset.tasks)} questions"
