"""What the syntax tree alone decides of steps 7-10 of validation.

Only certain failures are told: whatever could still come right when the module is loaded is left to the loaded module.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from prismem_core.program.interface import CLASS_NAMES, INSTRUCTION_NAMES, METHOD_PARAMETERS, field_type
from prismem_core.program.syntax import Definition, arguments, bound_names, scope_nodes
from prismem_core.program.validation.origins import Origins
from prismem_core.program.validation.report import Finding

_SCALARS = frozenset({"str", "int", "float", "bool", "None"})
_BUILTIN_TYPES = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and not name.startswith("_")
)
_TYPING = frozenset({"List", "Optional", "Union"})
# Modules none of whose members is a type of a field, and such members of others.
_FOREIGN = ("numpy", "datetime", "collections", "re", "json", "math", "hashlib", "textwrap")
_UNSUPPORTED = frozenset(
    ["dataclasses.InitVar"]
    + [
        f"typing.{name}"
        for name in (
            *("Any", "Callable", "Collection", "Counter", "DefaultDict", "Deque", "Dict", "FrozenSet", "Generator"),
            *("Hashable", "Iterable", "Iterator", "Literal", "Mapping", "MutableMapping", "MutableSequence"),
            *("OrderedDict", "Sequence", "Set", "Tuple", "Type"),
        )
    ]
)


def definition_fault(tree: ast.Module, origins: Origins) -> tuple[str, Finding] | None:
    """The first (code, finding) that is certain, in the order of validation."""
    check = _Definitions(tree, origins)
    for code, step in (
        ("missing_definition", check.missing),
        ("bad_instruction", check.instructions),
        ("bad_schema", check.schemas),
        ("bad_signature", check.signatures),
    ):
        for finding in step():
            return code, finding
    return None


class _Definitions:
    def __init__(self, tree: ast.Module, origins: Origins) -> None:
        self.tree = tree
        self.origins = origins
        self.binders: dict[str, list[ast.stmt]] = {}
        for statement in tree.body:
            for name in bound_names(statement):
                self.binders.setdefault(name, []).append(statement)

    def _only(self, name: str) -> ast.stmt | None:
        """The one statement of the module that binds `name`, None if there are several or none."""
        found = self.binders.get(name, [])
        return found[0] if len(found) == 1 else None

    def _class(self, name: str) -> ast.ClassDef | None:
        statement = self._only(name)
        return statement if isinstance(statement, ast.ClassDef) else None

    def missing(self) -> Iterator[Finding]:
        for name in CLASS_NAMES:
            statement = self._only(name)
            if name not in self.binders:
                yield Finding(0, f"the class {name} is missing; define it at module level")
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and not statement.decorator_list:
                yield Finding(statement.lineno, f"{name} is a function; it must be a class")
            elif statement is not None and _is_literal(_value(statement)):
                yield Finding(statement.lineno, f"{name} is no class; define it as one")
        for name in INSTRUCTION_NAMES:
            if name not in self.binders:
                yield Finding(0, f"the constant {name} is missing; define it at module level")

    def instructions(self) -> Iterator[Finding]:
        for name in INSTRUCTION_NAMES:
            statement = self._only(name)
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not statement.decorator_list:
                    yield Finding(statement.lineno, f"{name} must be a str")
                continue
            value = None if statement is None else _value(statement)
            if statement is None or value is None:
                continue
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                if not value.value.strip():
                    yield Finding(statement.lineno, f"{name} is blank; say what the model is to do")
            elif _is_literal(value):
                yield Finding(statement.lineno, f"{name} must be a str")

    def schemas(self) -> Iterator[Finding]:
        for name in ("MemoryUnit", "Query"):
            cls = self._class(name)
            if cls is None:
                continue
            if not cls.decorator_list:
                if not self._mentioned(name):
                    yield Finding(cls.lineno, f"{name} is not decorated with @dataclass; decorate it")
                continue
            if not all(self._is_dataclass(decorator) for decorator in cls.decorator_list):
                continue
            declared = [node for part in cls.body for node in scope_nodes(part) if isinstance(node, ast.AnnAssign)]
            if not declared and not cls.bases and not cls.keywords:
                yield Finding(cls.lineno, f"{name} has no fields; give it at least one")
            plain = len(declared) == sum(isinstance(part, ast.AnnAssign) for part in cls.body)
            # Of a field declared twice the last declaration counts.
            last = {node.target.id: node for node in declared if isinstance(node.target, ast.Name)}
            own = {bound for part in cls.body for bound in bound_names(part)}
            for item in last.values() if plain else ():
                yield from self._field(name, item, own)

    def _field(self, owner: str, item: ast.AnnAssign, own: set[str]) -> Iterator[Finding]:
        name = f"{owner}.{ast.unparse(item.target)}"
        if isinstance(item.annotation, ast.Name) and item.annotation.id not in own:
            other = self._class(item.annotation.id)
            if other is not None and all(self._is_dataclass(decorator) for decorator in other.decorator_list):
                yield Finding(item.lineno, f"{name}: the class {other.name} is not supported as a type")
        text = self._type_text(item.annotation)
        if text is not None and field_type(text) is None:
            yield Finding(item.lineno, f"{name}: the type {text[:100]} is not supported")
        value = item.value
        if isinstance(value, ast.Call) and "member:dataclasses.field" in self.origins.of(value.func):
            for keyword in value.keywords:
                constant = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if keyword.arg == "init" and constant is False and not self._is_class_variable(item.annotation):
                    yield Finding(item.lineno, f"{name} has init=False, so no model can fill it in")

    def _is_class_variable(self, annotation: ast.expr) -> bool:
        return any("ClassVar" in str(getattr(node, "id", getattr(node, "attr", ""))) for node in ast.walk(annotation))

    def _is_dataclass(self, decorator: ast.expr) -> bool:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        return self.origins.of(function) == {"member:dataclasses.dataclass"}

    def _type_text(self, node: ast.expr, depth: int = 0) -> str | None:
        """The annotation in the words of `field_type`, None where its meaning is not certain.

        A certain but unsupported part is spelled as it stands.
        """
        if depth > 20:
            return None
        if isinstance(node, ast.Constant):
            return {None: "None", ...: "..."}.get(node.value) if node.value in (None, ...) else None
        if isinstance(node, ast.Name | ast.Attribute):
            return self._type_name(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            left, right = self._type_text(node.left, depth + 1), self._type_text(node.right, depth + 1)
            return None if left is None or right is None else f"{left}|{right}"
        if isinstance(node, ast.Subscript):
            base = self._type_text(node.value, depth + 1)
            if base is not None and "." in base:
                return base  # unsupported, whatever its parts
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            inner = [self._type_text(part, depth + 1) for part in parts]
            if base is None or any(part is None for part in inner):
                return None
            # Optional[None], Union[str] and nested forms collapse in ways best left to the loaded module.
            return f"{base}[{','.join(part for part in inner if part)}]"
        return None

    def _type_name(self, node: ast.Name | ast.Attribute) -> str | None:
        if isinstance(node, ast.Name) and node.id not in self.binders and self.origins.is_builtin(node, node.id):
            return node.id if node.id in _BUILTIN_TYPES or node.id in _SCALARS else None
        found = self.origins.of(node)
        if len(found) != 1:
            return None
        kind, _, place = next(iter(found)).partition(":")
        module, _, member = place.rpartition(".")
        if kind != "member":
            return None
        if module == "typing" and member in _TYPING:
            return member
        if module.partition(".")[0] in _FOREIGN or place in _UNSUPPORTED:
            return place
        return None

    def _mentioned(self, name: str) -> bool:
        """Whether code could decorate the class later: its name is used outside annotations."""
        annotations: set[int] = set()
        for node in ast.walk(self.tree):
            parts: list[ast.expr | None] = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                parts = [node.returns, *(argument.annotation for argument in arguments(node))]
            elif isinstance(node, ast.AnnAssign):
                parts = [node.annotation]
            for part in parts:
                if part is not None:
                    annotations.update(id(inner) for inner in ast.walk(part))
        return any(
            isinstance(node, ast.Name) and node.id == name and id(node) not in annotations
            for node in ast.walk(self.tree)
        )

    def signatures(self) -> Iterator[Finding]:
        cls = self._class("Memory")
        if cls is None or cls.decorator_list or cls.keywords:
            return
        for name, parameters in METHOD_PARAMETERS.items():
            wanted = f"def {name}(self, {', '.join(parameters)})"
            binders = [statement for statement in cls.body if name in bound_names(statement)]
            if not binders:
                if not cls.bases:
                    yield Finding(cls.lineno, f"Memory.{name} is missing; define it as `{wanted}`")
                continue
            method = binders[0]
            if len(binders) != 1 or not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if method.decorator_list:
                if len(method.decorator_list) == 1 and any(
                    self.origins.is_builtin(method.decorator_list[0], kind)
                    for kind in ("staticmethod", "classmethod", "property")
                ):
                    yield Finding(method.lineno, f"Memory.{name} must be a plain method: `{wanted}`")
                continue
            spec = method.args
            # The first parameter may be positional-only: only what follows it is given by name.
            positional = [argument.arg for argument in [*spec.posonlyargs, *spec.args]]
            fits = positional[1:] == list(parameters) and not (
                spec.posonlyargs[1:] or spec.kwonlyargs or spec.vararg or spec.kwarg or spec.defaults
            )
            if isinstance(method, ast.AsyncFunctionDef) or _yields(method):
                yield Finding(method.lineno, f"Memory.{name} is async or a generator; define it as `{wanted}`")
            elif not fits:
                yield Finding(method.lineno, f"Memory.{name} takes other parameters than `{wanted}`")


def _value(statement: ast.stmt) -> ast.expr | None:
    """What a plain assignment to one name assigns."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.value
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.value
    return None


def _is_literal(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set)


def _yields(method: ast.FunctionDef) -> bool:
    stack: list[ast.AST] = list(method.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, Definition | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
    return False
