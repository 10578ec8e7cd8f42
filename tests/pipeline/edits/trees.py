"""Pieces of a program's tree that edits work on."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator

from prismem_core.program.syntax import parse_module

Mutation = Callable[[ast.Module, random.Random], bool]
"""Changes a tree in place; false where it found nothing to change."""


def on_tree(mutate: Mutation) -> Callable[[str, random.Random], str | None]:
    def edit(source: str, rng: random.Random) -> str | None:
        tree = parse_module(source)
        if not mutate(tree, rng):
            return None
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"

    return edit


def pick(found: list[ast.AST], rng: random.Random) -> ast.AST | None:
    return rng.choice(found) if found else None


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def class_of(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)


def method_of(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    memory = class_of(tree, "Memory")
    inner = [] if memory is None else memory.body
    return next((n for n in inner if isinstance(n, ast.FunctionDef) and n.name == name), None)


def code_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes of function bodies, docstrings left out."""
    for function in functions(tree):
        for statement in function.body[bool(ast.get_docstring(function, clean=False)) :]:
            yield from ast.walk(statement)


def targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return [statement.targets[0].id]
    return [""]


def wrap_return(function: ast.FunctionDef, template: str, rng: random.Random) -> bool:
    """Put the value of one return into `template` in the place of X."""
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    if not returns:
        return False
    node = rng.choice(returns)
    value = node.value
    assert value is not None

    class Put(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return value if name.id == "X" else name

    node.value = Put().visit(ast.parse(template, mode="eval").body)
    return True
