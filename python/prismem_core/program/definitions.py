"""What statements read when they run, and whether that can have changed since the module was loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from prismem_core.program.inert import BUILTINS, Inertness, imports
from prismem_core.program.syntax import bound_names, evaluated_at_definition

_VALUES_OF_TYPES = frozenset({"frozenset", "str", "int", "float", "bool", "len", "abs", "repr"})
_IMMUTABLE_NODES = (
    ast.UnaryOp,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Tuple,
)


def reads_at_definition(statement: ast.stmt) -> Iterator[tuple[str, bool]]:
    """(name, whether the value is looked into) for each name that running an inert statement reads.

    A value that is only stored, as a default or an element, may change later without a difference.
    """
    if isinstance(statement, ast.ClassDef):
        for expression in evaluated_at_definition(statement):
            yield from _reads(expression, True)
        for inner in statement.body:
            yield from reads_at_definition(inner)
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = [item for item in [*statement.args.defaults, *statement.args.kw_defaults] if item is not None]
        for expression in evaluated_at_definition(statement):
            if expression in statement.decorator_list:
                yield from _reads(expression, True)
            elif expression in defaults:
                yield from _reads(expression, False)
            else:
                yield from _annotation_reads(expression)
    elif isinstance(statement, ast.Assign):
        unpacks = not all(isinstance(target, ast.Name) for target in statement.targets)
        yield from _reads(statement.value, unpacks)
    elif isinstance(statement, ast.AnnAssign):
        yield from _annotation_reads(statement.annotation)
        if statement.value is not None:
            yield from _reads(statement.value, False)


def _annotation_reads(annotation: ast.expr) -> Iterator[tuple[str, bool]]:
    return ((node.id, False) for node in ast.walk(annotation) if isinstance(node, ast.Name))


def _reads(expression: ast.expr, looks_inside: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(expression, ast.Name):
        yield expression.id, looks_inside
    elif isinstance(expression, ast.Lambda) and not looks_inside:
        # Its body runs later, when the values are what they are for everybody.
        for default in [*expression.args.defaults, *expression.args.kw_defaults]:
            if default is not None:
                yield from _reads(default, False)
    elif isinstance(expression, ast.List | ast.Tuple):
        for element in expression.elts:
            yield from _reads(element, looks_inside)
    elif isinstance(expression, ast.Dict):
        for key in expression.keys:
            if key is not None:
                yield from _reads(key, True)
        for key, value in zip(expression.keys, expression.values, strict=True):
            yield from _reads(value, looks_inside or key is None)
    else:
        for node in ast.walk(expression):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node.id, True


class Facts:
    """What the whole text of a program says of its names."""

    def __init__(self, tree: ast.Module) -> None:
        self.inert = Inertness(tree).inert
        self.imports = imports(tree)
        self.declared_global: set[str] = set()
        self.stored_attributes: set[str] = set()
        self.imports_change = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Global):
                self.declared_global.update(node.names)
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                self._stored(node.value, node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
                name = node.args[1]
                if node.func.id in ("setattr", "delattr") and isinstance(name, ast.Constant):
                    self._stored(node.args[0], str(name.value))

    def _stored(self, base: ast.expr, attribute: str) -> None:
        self.stored_attributes.add(attribute)
        if isinstance(base, ast.Name) and base.id in self.imports:
            self.imports_change = True


class Definitions:
    """The statements of one scope, and which of the values they bind stay what they are; `outer` is the module's."""

    def __init__(self, body: Sequence[ast.stmt], facts: Facts, outer: Definitions | None = None) -> None:
        self._outer = outer
        self._facts = facts
        self._rebound = facts.stored_attributes if outer else facts.declared_global
        self._places: dict[str, list[tuple[int, ast.stmt]]] = {}
        for place, statement in enumerate(body):
            for name in bound_names(statement):
                self._places.setdefault(name, []).append((place, statement))

    def unsettled(self, name: str, place: int, looks_inside: bool) -> str | None:
        """Why `name` may not give a statement at `place` what it gave when the module was loaded, or None."""
        places = self._places[name]
        if len(places) > 1 or name in self._rebound:
            return "which is bound more than once"
        if places[0][0] >= place:
            return "which is bound only after it"
        if looks_inside and not self.fixed(name):
            return "whose value index() may have changed"
        return None

    def fixed(self, name: str) -> bool:
        """Whether the one value of `name` can never change."""
        if name not in self._places:
            return self._outer.fixed(name) if self._outer else name in BUILTINS
        if len(self._places[name]) > 1 or name in self._rebound:
            return False
        statement = self._places[name][0][1]
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return not self._facts.imports_change
        if not self._facts.inert(statement):
            return False
        if isinstance(statement, ast.Assign) and all(isinstance(target, ast.Name) for target in statement.targets):
            return self._immutable(statement.value)
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            return self._immutable(statement.value)
        return False

    def _immutable(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Constant):
            return True
        if isinstance(value, ast.Name):
            return self.fixed(value.id)
        if isinstance(value, ast.Attribute):
            return (
                isinstance(value.value, ast.Name)
                and value.value.id in self._facts.imports
                and self.fixed(value.value.id)
            )
        if isinstance(value, _IMMUTABLE_NODES):
            return all(self._immutable(part) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr))
        if isinstance(value, ast.Call):
            function = value.func
            plain = isinstance(function, ast.Name) and function.id in _VALUES_OF_TYPES and self.fixed(function.id)
            pattern = ast.unparse(function) == "re.compile" and self._facts.imports.get("re") == "re"
            return (plain or pattern) and self._settled(value)
        return False

    def _settled(self, value: ast.expr) -> bool:
        """Whether all that `value` reads is fixed or its own."""
        nodes = list(ast.walk(value))
        own = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return all(self.fixed(name) for name in names - own)
