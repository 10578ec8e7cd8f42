"""Edits that change how a program reads."""

from __future__ import annotations

import ast
import random

from prismem_core.program.syntax import parse_module

from .trees import class_of, functions, on_tree, pick


def _comment(source: str, rng: random.Random) -> str:
    lines = source.splitlines()
    places = [i for i, line in enumerate(lines) if line.endswith(":") and not line.lstrip().startswith(('"', "#"))]
    if not places:
        return f"# note {rng.randrange(99)}\n{source}"
    place = rng.choice(places)
    lines[place] += f"  # note {rng.randrange(99)}"
    return "\n".join(lines) + "\n"


def _blank(source: str, rng: random.Random) -> str:
    lines = source.splitlines()
    # Not inside a text of several lines.
    places = [i for i, line in enumerate(lines) if line.startswith(("def ", "class ", "@"))]
    place = rng.choice(places)
    while place and lines[place - 1].startswith("@"):
        place -= 1
    return "\n".join([*lines[:place], "", f"# {rng.randrange(99)}", *lines[place:]]) + "\n"


def _relaid(source: str, rng: random.Random) -> str:
    return ast.unparse(parse_module(source)) + "\n" * rng.randrange(1, 4)


def _module_docstring(source: str, rng: random.Random) -> str:
    tree = parse_module(source)
    if ast.get_docstring(tree) is not None:
        del tree.body[0]
    return f'"""Version {rng.randrange(99)}."""\n' + ast.unparse(tree) + "\n"


def _docstring(tree: ast.Module, rng: random.Random) -> bool:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    node = pick(list(found), rng)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    if ast.get_docstring(node, clean=False) is not None and len(node.body) > 1:
        del node.body[0]
    if rng.random() < 0.8:
        node.body.insert(0, ast.Expr(ast.Constant(f"Note {rng.randrange(99)} about memory and retrieve.")))
    return True


def _local(tree: ast.Module, rng: random.Random) -> bool:
    function = pick(list(functions(tree)), rng)
    assert isinstance(function, ast.FunctionDef)
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if not stored:
        return False
    old = rng.choice(sorted(stored))
    new = f"{old}_{rng.randrange(9)}"
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return True


def _reordered(tree: ast.Module, rng: random.Random) -> bool:
    bodies = [tree.body]
    memory = class_of(tree, "Memory")
    if memory is not None:
        bodies.append(memory.body)
    body = rng.choice(bodies)
    movable = [i for i, s in enumerate(body) if isinstance(s, ast.FunctionDef | ast.Assign)]
    if len(movable) < 2:
        return False
    one, other = rng.sample(movable, 2)
    body[one], body[other] = body[other], body[one]
    return True


EDITS = {
    "comment": _comment,
    "blank lines": _blank,
    "layout": _relaid,
    "module docstring": _module_docstring,
    "docstring": on_tree(_docstring),
    "local name": on_tree(_local),
    "order": on_tree(_reordered),
}
