"""Statements that do nothing but bind their names, and so may be left out of a key where nobody uses the names."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

from prismem_core.program.interface import ALLOWED_IMPORTS
from prismem_core.program.syntax import bound_names, docstring_of, evaluated_at_definition

BUILTINS = frozenset(dir(builtins)) | {"OUT_CHAR_BUDGET"}

# Calls that touch nothing but what they are given and return.
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
# What these modules offer is pure, but for the methods of mutable classes and what calls or yields step by step.
_PURE_MODULES = frozenset(ALLOWED_IMPORTS) - {"numpy"}
_IMPURE = frozenset({"re.finditer", "re.sub", "re.subn", "re.Scanner", "re.purge", "json.dump", "json.load"})
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


class Inertness:
    """Judges the statements of one module; what it does not know to be harmless counts as active."""

    def __init__(self, tree: ast.Module) -> None:
        self._imports = imports(tree)
        self._bound = set(bound_names(tree))
        self._active: set[str] = set()
        # Whoever uses what an active statement binds may use it up: an iterator, an object with an odd __len__.
        statements = list(tree.body)
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef) and statement.name == "Memory":
                statements += statement.body
        known = -1
        while known != len(self._active):
            known = len(self._active)
            for statement in statements:
                if not self.inert(statement):
                    self._active.update(bound_names(statement))

    def inert(self, statement: ast.stmt) -> bool:
        """Whether running the statement does nothing but bind its names."""
        if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
            return True
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            # A decorator is not only evaluated but called, and may note the function where others look it up.
            decorators = statement.decorator_list
            rest = [item for item in evaluated_at_definition(statement) if item not in decorators]
            return all(map(self._pure_decorator, decorators)) and all(self._pure(i, annotation=True) for i in rest)
        if isinstance(statement, ast.ClassDef):
            docstring = docstring_of(statement)
            return self.inert_header(statement) and all(
                self.inert(inner) for inner in statement.body if inner is not docstring
            )
        if isinstance(statement, ast.Assign):
            return all(_plain_target(target) for target in statement.targets) and self._pure(statement.value)
        if isinstance(statement, ast.AnnAssign):
            value = statement.value is None or self._pure(statement.value)
            return _plain_target(statement.target) and value and self._pure(statement.annotation, annotation=True)
        return False

    def inert_header(self, statement: ast.ClassDef) -> bool:
        """Whether making the class runs no code beside that of its body."""
        bases = all(isinstance(base, ast.Name) and self._builtin(base.id) for base in statement.bases)
        return bases and not statement.keywords and all(map(self._pure_decorator, statement.decorator_list))

    def _builtin(self, name: str) -> bool:
        return name in BUILTINS and name not in self._bound

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
        consumed = {id(argument) for call in ast.walk(value) if isinstance(call, ast.Call) for argument in call.args}
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
            elif isinstance(node, ast.GeneratorExp):
                if id(node) not in consumed:
                    return False
            elif isinstance(node, ast.Name):
                if node.id in self._active:
                    return False
            elif not isinstance(node, _PURE_NODES):
                return False
        return True

    def _pure_call(self, call: ast.Call) -> bool:
        function = call.func
        # A callback runs inside the call, and only a lambda shows here what it does; a field's factory runs later.
        callbacks = call.keywords if self._origin(function) != "dataclasses.field" else []
        if not all(self._harmless_callback(keyword.value) for keyword in callbacks):
            return False
        if isinstance(function, ast.Name) and self._builtin(function.id):
            return function.id in _PURE_BUILTINS
        origin = self._origin(function)
        top, _, rest = origin.partition(".")
        if top == "numpy":
            return rest in _PURE_NUMPY
        if top in _PURE_MODULES:
            # collections.deque.append(rows, 1) is a call of a method.
            return origin not in _IMPURE and not (top == "collections" and "." in rest)
        # Methods of literals, such as "a b c".split() or {"a": 1}.items().
        base = function.value if isinstance(function, ast.Attribute) else None
        while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute):
            base = base.func.value
        return isinstance(base, ast.Constant | ast.Dict | ast.List | ast.Set | ast.JoinedStr)

    def _harmless_callback(self, value: ast.expr) -> bool:
        while isinstance(value, ast.Attribute):
            value = value.value
        return not isinstance(value, ast.Name) or self._builtin(value.id) or value.id in self._imports

    def _origin(self, node: ast.expr) -> str:
        """The dotted name an imported name stands for, "" for anything else."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._imports:
            return ""
        return ".".join([self._imports[node.id], *reversed(path)])


def imports(tree: ast.Module) -> dict[str, str]:
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


def shadowing(names: Iterable[str]) -> bool:
    """Whether some of these components hide others, or builtins, so that the order of the definitions may count."""
    plain = {name for name in names if "." not in name}
    members = {name.removeprefix("Memory.") for name in names if name.startswith("Memory.")}
    return bool(BUILTINS & plain or members & (plain | BUILTINS))


def _plain_target(target: ast.expr) -> bool:
    return all(
        isinstance(node, ast.Name | ast.Tuple | ast.List | ast.Starred | ast.expr_context) for node in ast.walk(target)
    )
