"""The code a method can run, as one digest: the key of `reuse="content"`.

The digest errs on the side of holding too much. What runs without being named (module statements, bases, decorators,
special methods, assignments that call something unknown) always counts; where a name is looked up dynamically
everything does.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prismem_core.digests import digest
from prismem_core.program.interface import ALLOWED_IMPORTS
from prismem_core.program.syntax import (
    MEMORY_CLASS,
    MODULE,
    Definition,
    bindings,
    bound_names,
    docstring_of,
    evaluated_at_definition,
    is_special,
    parse_module,
    scope_nodes,
    shape,
)

_LOOKUPS = frozenset({"getattr", "setattr", "delattr", "hasattr"})
_DYNAMIC_NAMES = frozenset({"eval", "exec", "compile", "globals", "locals", "vars", "__import__", "__builtins__"})
_DYNAMIC_ATTRIBUTES = frozenset(
    {"__dict__", "__getattribute__", "__globals__", "__subclasses__", "__doc__", "__code__"}
)
_BUILTINS = frozenset(dir(builtins)) | {"OUT_CHAR_BUDGET"}
_FORMAT_ATTRIBUTE = re.compile(r"\.([^\W\d]\w*)")

# Calls that touch nothing but what they are given and return, and so may stand in an assignment that is left out.
_PURE_BUILTINS = frozenset(
    function.__name__
    for function in (
        frozenset,
        set,
        tuple,
        list,
        dict,
        str,
        int,
        float,
        bool,
        len,
        range,
        sorted,
        min,
        max,
        sum,
        abs,
        repr,
    )
)
_PURE_MODULES = frozenset(ALLOWED_IMPORTS) - {"numpy"}
_PURE_NUMPY = frozenset({"array", "asarray", "zeros", "ones", "arange", "linspace", "eye", "float32", "float64", "log"})
_PURE_DECORATORS = frozenset({"staticmethod", "classmethod", "property"})
_PURE_NODES = (
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.UnaryOp,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Name,
    ast.Attribute,
    ast.Starred,
    ast.Lambda,
    ast.Slice,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.comprehension,
    ast.arguments,
    ast.arg,
    ast.keyword,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)


def code_digest(source: str, roots: Sequence[str]) -> str:
    """A digest of all code that the components `roots` can run, such as `["Memory.__init__", "Memory.index"]`.

    It changes with every change that can alter what they do, and with no change of comments, layout or docstrings.
    `Memory.index` brings MemoryUnit with it and `Memory.retrieve` Query, whose objects they are handed. Raises
    ProgramError (`syntax_error`) where the source does not parse.
    """
    tree = parse_module(source)
    wanted = sorted(set(roots))
    if _looks_up_dynamically(tree) or not _plain_memory(tree):
        keep = any(_names_docstring(node) for node in ast.walk(tree))
        return digest("code", wanted, "module", shape(tree, docstrings=keep))
    graph = _Graph(tree)
    reached = graph.reach(wanted)
    parts = [part for part in graph.parts if part.name in reached]
    names = [part.name for part in parts]
    # Alone and unshadowed, definitions give the same module in any order that loads; otherwise their order matters.
    if len(set(names)) == len(names) and not _BUILTINS.intersection(names) and not any(part.eager for part in parts):
        parts.sort(key=lambda part: part.name)
    return digest("code", wanted, [[part.name, shape(part.node, docstrings=False)] for part in parts])


@dataclass
class _Part:
    """One statement under one of the names it binds; an eager one runs something when the module is loaded."""

    name: str
    node: ast.stmt
    eager: bool
    mentions: frozenset[str] = field(default_factory=frozenset)


class _Graph:
    """Statements of a module and the names each mentions; members of Memory carry the prefix `Memory.`."""

    def __init__(self, tree: ast.Module) -> None:
        self.imports = _imports(tree)
        self.bound = set(bound_names(tree))
        self.parts: list[_Part] = []
        for statement in tree.body:
            if statement is docstring_of(tree):
                continue
            if isinstance(statement, ast.ClassDef) and statement.name == "Memory":
                header = ast.ClassDef("Memory", statement.bases, statement.keywords, [], statement.decorator_list)
                self._add(MEMORY_CLASS, header, eager=True)
                for inner in statement.body:
                    if inner is not docstring_of(statement):
                        for name, part in bindings(inner):
                            self._add(f"Memory.{name}" if name else MEMORY_CLASS, part, not self._inert(part))
            else:
                for name, part in bindings(statement):
                    self._add(name or MODULE, part, not self._inert(part))
        members = {part.name.removeprefix("Memory.") for part in self.parts if part.name.startswith("Memory.")}
        known = {part.name for part in self.parts}
        for entry in self.parts:
            entry.mentions = frozenset(_mentions(entry.node, known, members))

    def _add(self, name: str, node: ast.stmt, eager: bool) -> None:
        self.parts.append(_Part(name, node, eager))

    def reach(self, roots: Iterable[str]) -> set[str]:
        """Names of all parts that `roots`, or the loading of the module, can run."""
        stack = [*roots, *(part.name for part in self.parts if part.eager)]
        if "Memory.index" in stack:
            stack.append("MemoryUnit")
        if "Memory.retrieve" in stack:
            stack.append("Query")
        if any(name.startswith("Memory.") for name in stack):
            stack.extend(part.name for part in self.parts if is_special(part.name))
        mentioned: dict[str, set[str]] = {}
        for part in self.parts:
            mentioned.setdefault(part.name, set()).update(part.mentions)
        seen: set[str] = set()
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack.extend(mentioned.get(name, ()))
        return seen

    def _inert(self, statement: ast.stmt) -> bool:
        """Whether running the statement does nothing but bind its names: it may be left out if they are unused."""
        if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
            return True
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            rest = [item for item in evaluated_at_definition(statement) if not self._pure_decorator(item)]
            return all(self._pure(item, annotation=True) for item in rest)
        if isinstance(statement, ast.ClassDef):
            bases = all(isinstance(base, ast.Name) and self._builtin(base.id) for base in statement.bases)
            decorators = all(self._pure_decorator(item) for item in statement.decorator_list)
            docstring = docstring_of(statement)
            return (
                bases
                and decorators
                and not statement.keywords
                and all(self._inert(inner) for inner in statement.body if inner is not docstring)
            )
        if isinstance(statement, ast.Assign):
            return all(_plain_target(target) for target in statement.targets) and self._pure(statement.value)
        if isinstance(statement, ast.AnnAssign):
            value = statement.value is None or self._pure(statement.value)
            return _plain_target(statement.target) and value and self._pure(statement.annotation, annotation=True)
        return False

    def _builtin(self, name: str) -> bool:
        return name in _BUILTINS and name not in self.bound

    def _pure_decorator(self, item: ast.expr) -> bool:
        if isinstance(item, ast.Name) and item.id in _PURE_DECORATORS:
            return self._builtin(item.id)
        call = item.func if isinstance(item, ast.Call) else item
        arguments = item.keywords if isinstance(item, ast.Call) else []
        if self._origin(call) != "dataclasses.dataclass":
            return False
        return all(isinstance(keyword.value, ast.Constant) for keyword in arguments)

    def _pure(self, value: ast.expr, annotation: bool = False) -> bool:
        """Whether evaluating `value` neither changes nor uses up anything."""
        if isinstance(value, ast.GeneratorExp):
            return False
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                if not self._pure_call(node):
                    return False
            elif isinstance(node, ast.Subscript):
                # A look-up can change a defaultdict; subscripts of types and of constants cannot.
                literal = isinstance(node.value, ast.Constant)
                kind = annotation or self._origin(node.value).partition(".")[0] in ("typing", "collections")
                if not (literal or kind):
                    return False
            elif not isinstance(node, (*_PURE_NODES, ast.GeneratorExp)):
                return False
        return True

    def _pure_call(self, call: ast.Call) -> bool:
        function = call.func
        if isinstance(function, ast.Name) and self._builtin(function.id):
            return function.id in _PURE_BUILTINS
        origin = self._origin(function)
        top, _, rest = origin.partition(".")
        if top == "numpy":
            return rest in _PURE_NUMPY
        if top in _PURE_MODULES:
            return True
        # Methods of literals, such as "a b c".split() or {"a": 1}.items().
        base = function.value if isinstance(function, ast.Attribute) else None
        while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute):
            base = base.func.value
        return isinstance(base, ast.Constant | ast.Dict | ast.List | ast.Set | ast.JoinedStr)

    def _origin(self, node: ast.expr) -> str:
        """The dotted name an imported name stands for, "" for anything else."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imports:
            return ""
        return ".".join([self.imports[node.id], *reversed(path)])


def _imports(tree: ast.Module) -> dict[str, str]:
    """What each name that only imports bind stands for."""
    found: dict[str, str] = {}
    others: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                found[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
        else:
            others.update(bound_names(statement))
    return {name: origin for name, origin in found.items() if name not in others}


def _plain_target(target: ast.expr) -> bool:
    return all(
        isinstance(node, ast.Name | ast.Tuple | ast.List | ast.Starred | ast.expr_context) for node in ast.walk(target)
    )


def _mentions(node: ast.AST, known: set[str], members: set[str]) -> set[str]:
    """Parts that code in `node` may use: by name, as an attribute, through a string or a pattern."""
    words: set[str] = set()
    for item in ast.walk(node):
        if isinstance(item, ast.Name):
            words.add(item.id)
        elif isinstance(item, ast.Attribute):
            words.add(item.attr)
            # self._Memory__x is the member __x, seen from outside the class.
            words.add(item.attr.removeprefix("_Memory") if item.attr.startswith("_Memory__") else item.attr)
        elif isinstance(item, ast.Constant) and isinstance(item.value, str):
            words.add(item.value)
            if "{" in item.value:
                words.update(_FORMAT_ATTRIBUTE.findall(item.value))
        elif isinstance(item, ast.MatchClass):
            words.update(item.kwd_attrs)
        elif isinstance(item, ast.Global | ast.Nonlocal):
            words.update(item.names)
    found = words & known
    found.update(f"Memory.{word}" for word in words & members)
    if "Memory" in words:
        found.update(name for name in known if name.startswith("Memory."))
    return found


def _plain_memory(tree: ast.Module) -> bool:
    """Whether Memory is bound once, by a class statement of the module itself."""
    binders = [statement for statement in tree.body if "Memory" in bound_names(statement)]
    return len(binders) == 1 and isinstance(binders[0], ast.ClassDef)


def _names_docstring(node: ast.AST) -> bool:
    name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "value", None)
    return name in ("__doc__", "__code__") if isinstance(name, str) else False


def _looks_up_dynamically(tree: ast.Module) -> bool:
    """Whether the module may reach code by a name that does not stand in its text as such."""
    calls: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LOOKUPS:
            name = node.args[1] if len(node.args) > 1 else None
            literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
            starred = any(isinstance(argument, ast.Starred) for argument in node.args)
            if literal and not starred and name is not None and getattr(name, "value", "") not in _DYNAMIC_ATTRIBUTES:
                calls.add(id(node.func))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in _DYNAMIC_NAMES or (node.id in _LOOKUPS and id(node) not in calls):
                return True
        elif isinstance(node, ast.Attribute):
            if node.attr in _DYNAMIC_ATTRIBUTES:
                return True
        elif isinstance(node, ast.Import):
            if any(alias.name.partition(".")[0] not in ALLOWED_IMPORTS for alias in node.names):
                return True
        elif isinstance(node, ast.ImportFrom):
            known = (node.module or "").partition(".")[0] in ALLOWED_IMPORTS
            if node.level or not known or any(alias.name == "*" for alias in node.names):
                return True
    return any(
        isinstance(node, ast.GeneratorExp)
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and not isinstance(statement, Definition)
        for node in scope_nodes(statement)
        if node is getattr(statement, "value", None)
    )
