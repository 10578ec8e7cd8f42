"""Names that a program reaches without writing them where they are used: what makes every part of it count."""

from __future__ import annotations

import ast
import re

from prismem_core.program.interface import ALLOWED_IMPORTS

BY_NAME = frozenset({"getattr", "setattr", "delattr", "hasattr"})
"""Builtins whose second argument names an attribute: harmless with a literal."""

_DYNAMIC_NAMES = frozenset(
    {"eval", "exec", "compile", "globals", "locals", "vars", "dir", "__import__", "__builtins__"}
)
# Of typing, where a program may have them from: both look at members that no name in the text leads to.
_TYPING_NAMES = frozenset({"get_type_hints", "runtime_checkable"})
_DOCSTRINGS = frozenset({"__doc__"})
_POSITIONS = frozenset(
    {
        "__code__",
        "__traceback__",
        "co_firstlineno",
        "cr_frame",
        "f_back",
        "f_code",
        "f_lineno",
        "gi_code",
        "gi_frame",
        "lineno",
        "tb_frame",
        "tb_lineno",
        "tb_next",
    }
)
_DYNAMIC_ATTRIBUTES = (
    frozenset(
        {
            "__dict__",
            "__dir__",
            "__getattribute__",
            "__globals__",
            "__subclasses__",
            "_sys",
            "attrgetter",
            "builtins",
            "f_globals",
            "f_locals",
            "functools",
            "get_type_hints",
            "inspect",
            "methodcaller",
            "operator",
            "runtime_checkable",
            "sys",
        }
    )
    | _DOCSTRINGS
    | _POSITIONS
)
_FORMATS = frozenset({"format", "format_map"})
_WHOLE_FIELD = re.compile(r"\{[^{}]*\}")
# Names long and odd enough to be meant wherever they stand in a text, such as a format string.
_TELLING = frozenset(name for name in _DYNAMIC_ATTRIBUTES if name.startswith("__"))


def dynamic_lookup(tree: ast.Module) -> tuple[int, str] | None:
    """The first (line, expression) that may reach code by a name that does not stand in the text as such, or None.

    Imports of modules a program may not have count too, for nobody knows what is in them; so does a generator that is
    bound at module level, for whoever takes from it changes it for the others.
    """
    found: list[tuple[int, str]] = []
    literal = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _names_literally(node)}
    found.extend(_formats_pieces(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            dynamic = node.id in _DYNAMIC_NAMES or node.id in _POSITIONS or node.id in _TYPING_NAMES
            if dynamic or (node.id in BY_NAME and id(node) not in literal):
                found.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute):
            if node.attr in _DYNAMIC_ATTRIBUTES:
                found.append((node.end_lineno or node.lineno, "." + node.attr))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.extend((node.lineno, repr(name)) for name in sorted(_TELLING) if name in node.value)
        elif isinstance(node, ast.Import):
            unknown = [alias.name for alias in node.names if alias.name.partition(".")[0] not in ALLOWED_IMPORTS]
            found.extend((node.lineno, f"import {name}") for name in unknown)
        elif isinstance(node, ast.ImportFrom):
            known = (node.module or "").partition(".")[0] in ALLOWED_IMPORTS and not node.level
            if not known or any(alias.name in {"*", *_DYNAMIC_ATTRIBUTES} for alias in node.names):
                found.append((node.lineno, f"from {'.' * node.level}{node.module or ''} import"))
    for statement in tree.body:
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(value, ast.GeneratorExp):
            found.append((statement.lineno, "a generator at module level"))
    return min(found, default=None)


_COMPOSED = (ast.BinOp, ast.JoinedStr, ast.Call)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _has_pieces_of_fields(tree: ast.Module) -> bool:
    """Whether a text of the module holds a brace without its partner, and so may be a piece of a format field."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            rest = _WHOLE_FIELD.sub("", node.value.replace("{{", "").replace("}}", ""))
            if "{" in rest or "}" in rest:
                return True
    return False


def _formats_pieces(tree: ast.Module) -> list[tuple[int, str]]:
    """Uses of `format` whose fields, and so the attributes they read, may stand in no text as a whole."""
    pieces = _has_pieces_of_fields(tree)
    return [
        (node.lineno, f".{node.attr} of a text put together from pieces")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in _FORMATS
        if isinstance(node.value, _COMPOSED) or (pieces and not _is_text(node.value))
    ]


def reads_docstrings(tree: ast.Module) -> bool:
    """Whether docstrings may be part of what the program does."""
    return bool(_formats_pieces(tree)) or any(_names(node, _DOCSTRINGS | {"__code__"}) for node in ast.walk(tree))


def reads_positions(tree: ast.Module) -> bool:
    """Whether the lines its code stands on may be part of what the program does."""
    return bool(_formats_pieces(tree)) or any(_names(node, _POSITIONS) for node in ast.walk(tree))


def _names(node: ast.AST, wanted: frozenset[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in wanted
    if isinstance(node, ast.Attribute):
        return node.attr in wanted
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return any(name in node.value for name in wanted & _TELLING)
    return False


def _names_literally(call: ast.Call) -> bool:
    """Whether this is `getattr(x, "name")` or its kin, the name a literal that opens no further door."""
    if not (isinstance(call.func, ast.Name) and call.func.id in BY_NAME):
        return False
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return False
    name = call.args[1] if len(call.args) > 1 else None
    return isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value not in _DYNAMIC_ATTRIBUTES
