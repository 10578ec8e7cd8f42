"""Puts a retrieval-only revision into a memory that stands: what `program/grafting.py` chose is executed in its module.

Runs in a worker, in a copy that holds the built memory. All state stays the very same objects: the instance, the
module's globals, class attributes, defaults. Kept code keeps the places it had in the source it came from, so lines of
a failure are translated to those of the newest source.
"""

from __future__ import annotations

import ast
import copy
import linecache
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prismem_core.program.sandbox.namespace import PROGRAM_FILE
from prismem_core.program.syntax import bindings, docstring_of, shape

_sources: list[str] = []
_lines: list[str] = []
_grafted: dict[int, tuple[types.CodeType, int]] = {}
"""The sources that this process has taken in, the first the one it loaded, and the lines of the last; grafted code by
its id, with the place of its source among them. The code is held so that the id stays its own."""


class NotGrafted(Exception):
    """The memory does not take the revision; it must be built again."""


def attach(module: types.ModuleType, memory: Any, order: Mapping[str, Any]) -> None:
    """Make the program in `module` the one of `order["source"]`, its `memory` as it stands.

    Raises NotGrafted, or what executing the chosen parts raises; the process is of no further use then.
    """
    kind = module.__dict__.get("Memory")
    if type(kind) is not type or type(memory) is not kind:
        raise NotGrafted("the memory is no plain instance of the class Memory")
    source: str = order["source"]
    body = ast.parse(source).body
    place: int = order["memory"]
    namespace = module.__dict__
    for name in order["removed"]:
        namespace.pop(name, None)
    for name in order["removed_members"]:
        if name in kind.__dict__:
            delattr(kind, name)
    _take_in(source)
    chosen = [tuple(path) for path in order["statements"]]
    _execute([_picked(body, path) for path in chosen if path[0] < place], namespace)
    _graft_members(kind, body[place], order, namespace)
    _execute([_picked(body, path) for path in chosen if path[0] > place], namespace)


def _take_in(source: str) -> None:
    if not _is_grafted():
        present = linecache.cache[PROGRAM_FILE]
        _sources[:] = ["".join(present[2]) if len(present) == 4 else ""]
        _grafted.clear()
    _sources.append(source)
    _lines[:] = source.splitlines(keepends=True)
    linecache.cache[PROGRAM_FILE] = (len(source), None, _lines, PROGRAM_FILE)


def _is_grafted() -> bool:
    """Whether the program is one that was taken in, and no other was loaded since."""
    present = linecache.cache.get(PROGRAM_FILE)
    return present is not None and len(present) == 4 and present[2] is _lines


def _picked(body: Sequence[ast.stmt], path: Sequence[int]) -> ast.stmt:
    statement = body[path[0]]
    if len(path) == 1:
        return statement
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    names = [statement.names[path[1]]]
    part = (
        ast.Import(names)
        if isinstance(statement, ast.Import)
        else ast.ImportFrom(statement.module, names, statement.level)
    )
    return ast.copy_location(part, statement)


def _execute(statements: list[ast.stmt], namespace: dict[str, Any]) -> None:
    if statements:
        exec(_compiled(statements), namespace)


def _compiled(statements: list[ast.stmt]) -> types.CodeType:
    code: types.CodeType = compile(ast.Module(statements, []), PROGRAM_FILE, "exec", dont_inherit=True)
    newest = len(_sources) - 1
    _grafted.update((id(part), (part, newest)) for part in _all_code(code))
    return code


def _all_code(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_code(constant)


def _graft_members(kind: type, statement: ast.stmt, order: Mapping[str, Any], namespace: dict[str, Any]) -> None:
    assert isinstance(statement, ast.ClassDef)
    if not order["members"]:
        return
    part = copy.copy(statement)
    part.body = [_picked(statement.body, path) for path in order["members"]]
    code = _compiled([part])
    body = next(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    scope = {name: kind.__dict__[name] for name in order["seen_members"]}
    # The body of a class statement by itself, as __build_class__ runs it, but for the class that exists already.
    exec(body, namespace, scope)
    if "__classcell__" in scope:
        scope["__classcell__"].cell_contents = kind
    if "__classdictcell__" in scope:
        scope["__classdictcell__"].cell_contents = scope
    for name in order["new_members"]:
        if name in scope:
            setattr(kind, name, scope[name])
            named = getattr(type(scope[name]), "__set_name__", None)
            if named is not None:
                named(scope[name], kind, name)


def places(traceback: types.TracebackType | None) -> list[tuple[int, str]]:
    """(line in the newest source, function) of each frame of the program that an error passed, outermost first."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == PROGRAM_FILE:
            found.append((_newest_line(traceback), code.co_name))
        traceback = traceback.tb_next
    return found


def _newest_line(traceback: types.TracebackType) -> int:
    line = traceback.tb_lineno
    if not _is_grafted():
        return line
    code = traceback.tb_frame.f_code
    origin = _grafted.get(id(code), (code, 0))[1]
    if origin == len(_sources) - 1:
        return line
    place = list(code.co_positions())[traceback.tb_lasti // 2]
    return translate(_sources[origin], _sources[-1], line, place)


_Placed = ast.expr | ast.stmt | ast.arg | ast.keyword | ast.ExceptHandler | ast.pattern
Place = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column and last column, as an instruction has them."""


def translate(old: str, new: str, line: int, place: Place) -> int:
    """The line in `new` of what stands in `old` at a place inside a part that both have; `line` itself elsewhere."""
    twins: dict[str, list[ast.stmt]] = {}
    for name, node in _parts(ast.parse(new)):
        twins.setdefault(name, []).append(node)
    near: dict[int | None, int] = {}
    for name, node in _parts(ast.parse(old)):
        twin = twins[name].pop(0) if twins.get(name) else None
        if twin is None or shape(node, docstrings=False) != shape(twin, docstrings=False):
            continue
        for one, other in zip(_places(node), _places(twin), strict=True):
            assert other[0] is not None
            if one == place:
                return other[0]
            near.setdefault(one[0], other[0])
    return near.get(line, line)


def _parts(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == "Memory":
            for inner in statement.body:
                yield from (("Memory." + name, part) for name, part in bindings(inner))
        else:
            yield from bindings(statement)


def _places(node: ast.AST) -> Iterator[Place]:
    """Where the instructions of each node under `node` are said to stand, docstrings left out."""
    stack = [node]
    while stack:
        item = stack.pop()
        # The pieces of an import that was cut up have no place.
        if isinstance(item, _Placed) and hasattr(item, "lineno"):
            yield _place(item)
        docstring = docstring_of(item)
        stack.extend(child for child in reversed(list(ast.iter_child_nodes(item))) if child is not docstring)


def _place(node: _Placed) -> Place:
    named = node.func if isinstance(node, ast.Call) and not _unpacks(node) else node
    if isinstance(named, ast.Attribute) and named.end_lineno != node.lineno and named.end_col_offset is not None:
        # CPython puts a look-up and a call of a method on the line that holds the name.
        return named.end_lineno, node.end_lineno, named.end_col_offset - len(named.attr), named.end_col_offset
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _unpacks(call: ast.Call) -> bool:
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return starred or any(keyword.arg is None for keyword in call.keywords)
