"""Attributes of collections that a program uses, where its text leaves no doubt that the object is a collection."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from prismem_core.program.interface import COLLECTION_CALLS
from prismem_core.program.syntax import arguments, bound_names, own_bindings, parse_module
from prismem_core.program.validation.origins import BACKEND, Origins
from prismem_core.program.validation.report import Finding

_ROUNDS = 3
_WORD = re.compile(r"[^\W\d]\w*")


def collection_faults(tree: ast.Module, origins: Origins) -> list[Finding]:
    """Attributes other than those a collection has; objects that may be something else are left to the trial run."""
    nodes = list(ast.walk(tree))
    known = _Known(nodes, origins)
    offered = f"{', '.join(COLLECTION_CALLS[:-1])} and {COLLECTION_CALLS[-1]}"
    return [
        Finding(node.lineno, f"a collection has {offered} only, not {node.attr}")
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr not in COLLECTION_CALLS and known.collection(node.value)
    ]


def uses_collections(source: str) -> int | None:
    """The line where a program first asks its backend for a collection, None if it never does.

    Raises ProgramError (`syntax_error`) where the source does not parse.
    """
    tree = parse_module(source)
    origins = Origins(tree)
    lines = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "collection" and BACKEND in origins.of(node.value)
    ]
    return min(lines, default=None)


class _Known:
    """Names and attributes that every binding in the module binds to a collection, or to None before that."""

    def __init__(self, nodes: Iterable[ast.AST], origins: Origins) -> None:
        self._origins = origins
        self._certain: set[str] = set()
        bindings = list(_bindings(nodes))
        for _ in range(_ROUNDS):
            values: dict[str, list[bool | None]] = {}
            for name, value in bindings:
                nothing = isinstance(value, ast.Constant) and value.value is None
                values.setdefault(name, []).append(None if nothing else value is not None and self.collection(value))
            self._certain = {name for name, found in values.items() if False not in found and True in found}

    def collection(self, node: ast.expr) -> bool:
        """Whether an expression is a collection for certain."""
        if isinstance(node, ast.Name):
            return node.id in self._certain
        if isinstance(node, ast.Attribute):
            return f".{node.attr}" in self._certain
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "collection":
            return self._origins.of(node.func.value) == {BACKEND}
        return False


def _bindings(nodes: Iterable[ast.AST]) -> Iterable[tuple[str, ast.expr | None]]:
    """Every name and `.attribute` that is bound, with its value where the statement gives it one as a whole.

    A name bound in a class body is an attribute too, and a string may name one (setattr, namedtuple).
    """
    simple: dict[int, ast.expr | None] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            simple.update((id(target), node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            simple[id(node.target)] = node.value
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id, simple.get(id(node))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield f".{node.attr}", simple.get(id(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for word in _WORD.findall(node.value):
                yield f".{word}", None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for argument in arguments(node):
                yield argument.arg, None
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                for name in bound_names(inner):
                    yield f".{name}", None
        elif not isinstance(node, ast.Name | ast.Attribute | ast.Assign | ast.AnnAssign | ast.NamedExpr):
            for name in own_bindings(node):
                yield name, None
