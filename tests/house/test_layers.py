"""Imports point one way: a module imports from lower rows and its own folder, never up or sideways."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "prismem_core"

ROWS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "_native"}),
    frozenset({"arrays", "digests"}),
    frozenset({"ops", "cache", "kernels"}),
    frozenset({"index"}),
    frozenset({"tasks", "prompts"}),
    frozenset({"roles"}),
    frozenset({"program", "runs"}),
    frozenset({"pipeline", "scale"}),
    frozenset({"evaluation"}),
    frozenset({"evolution"}),
    frozenset({"integrations", "clients"}),
    frozenset({"jobs"}),
    frozenset({"bench"}),
    frozenset({"memory"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
RANK = {room: row for row, rooms in enumerate(ROWS) for room in rooms}
OPTIONAL = {"onnxruntime", "tokenizers", "torch", "triton", "cupy", "vllm", "ml_dtypes", "nltk", "openai", "ray"} | {
    "mem0",
    "agentic_memory",
    "chromadb",
    "scipy",
}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "library" not in p.parts or p.name == "__init__.py")


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imported_rooms(tree: ast.AST, path: Path) -> list[tuple[int, str]]:
    found = []
    package = ["prismem_core", *path.relative_to(PACKAGE).with_suffix("").parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], base]).rstrip(".")
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "prismem_core" else [base]
        else:
            continue
        rooms = [name.split(".")[1] for name in names if name.startswith("prismem_core.")]
        found += [(node.lineno, room) for room in rooms if room != "__version__"]
    return found


def violations(path: Path, source: str) -> list[str]:
    room = room_of(path)
    if room == "__init__":
        return []
    wrong = []
    for line, other in imported_rooms(ast.parse(source), path):
        if other == room:
            continue
        if other not in RANK:
            wrong.append(f"{path}:{line} imports {other}, which has no row")
        elif RANK[other] >= RANK[room]:
            wrong.append(f"{path}:{line} ({room}) imports {other}, which does not lie below it")
    return wrong


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_module_imports_only_from_below(path: Path) -> None:
    assert room_of(path) in {*RANK, "__init__"}, f"{path} lies in a room without a row"
    assert violations(path, path.read_text(encoding="utf-8")) == []


BENCH = PACKAGE.parents[1] / "bench"


@pytest.mark.parametrize("path", sorted(BENCH.rglob("*.py")), ids=lambda p: str(p.relative_to(BENCH)))
def test_benchmarks_import_only_from_below(path: Path) -> None:
    installed = PACKAGE / "bench" / path.relative_to(BENCH)
    if path.name != "__main__.py":  # it starts the command line
        assert violations(installed, path.read_text(encoding="utf-8")) == []


KERNELS = PACKAGE.parents[1] / "kernels"


@pytest.mark.parametrize("path", sorted(KERNELS.rglob("*.py")), ids=lambda p: str(p.relative_to(KERNELS)))
def test_kernels_import_only_from_below(path: Path) -> None:
    installed = PACKAGE / "kernels" / path.relative_to(KERNELS)
    assert violations(installed, path.read_text(encoding="utf-8")) == []


def test_an_upward_import_is_caught() -> None:
    path = PACKAGE / "ops" / "imagined.py"
    assert violations(path, "from prismem_core.evolution.engine import evolve\n")
    assert violations(path, "from ..tasks import task\n")
    assert violations(path, "def f():\n    import prismem_core.cli\n")
    assert not violations(path, "from prismem_core.errors import ArgumentError\n")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_optional_libraries_are_imported_where_they_are_used(path: Path) -> None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        assert not OPTIONAL & {name.split(".")[0] for name in names}, (
            f"{path}:{node.lineno} imports an optional library"
        )


def test_importing_the_package_is_light() -> None:
    import subprocess

    code = "import sys, prismem_core; print(' '.join(sorted({m.split('.')[0] for m in sys.modules})))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {*OPTIONAL, "numpy", "rich", "typer", "pydantic", "jinja2"} & set(loaded)
