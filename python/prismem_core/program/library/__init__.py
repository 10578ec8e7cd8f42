"""Memory programs that come with the package, as sources: the seed and the baselines. They are data, never imported.

Each stands beside this file as a module, or as a diff against the one it varies (`naive_rag_dates` varies `naive_rag`).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from prismem_core.errors import ArgumentError
from prismem_core.program.interface import Interface
from prismem_core.program.patch import apply_patch

_VARIANTS = {"naive_rag_dates": "naive_rag", "bm25_rag_dates": "bm25_rag"}
_NAMES = ("seed", "naive_rag", "naive_rag_dates", "bm25_rag", "bm25_rag_dates", "full_context", "collection_rag")
_INTERFACES: dict[str, Interface] = {"collection_rag": "engine"}


def names() -> tuple[str, ...]:
    """Names of the programs, the seed first."""
    return _NAMES


def interface(name: str) -> Interface:
    """What the backend must offer the program `name`."""
    return _INTERFACES.get(name.replace("-", "_"), "paper")


@cache
def source(name: str) -> str:
    """The source of the program `name`; hyphens may stand for underscores. Raises ArgumentError for an unknown name."""
    name = name.replace("-", "_")
    if name not in _NAMES:
        raise ArgumentError(f"no program {name!r} in the library; it has {', '.join(_NAMES)}")
    base = _VARIANTS.get(name)
    if base is None:
        return _read(f"{name}.py")
    return apply_patch(source(base), _read(f"{name}.diff"))


def _read(file: str) -> str:
    return files(__name__).joinpath(file).read_text(encoding="utf-8")
