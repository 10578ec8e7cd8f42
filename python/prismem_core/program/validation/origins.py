"""Where names come from: which expressions of a program stand for an allowed module, the backend or one of the classes.

Scopes are those of Python, order is not: a name stands for everything it is ever bound to. A module handed to something
that is not followed (an argument, a container, a return value) is *escaped*, and any object may then be that module.

An origin is `module:<name>`, `member:<module>.<name>`, `class:<name>` (one of the three classes) or `backend`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from prismem_core.program.interface import CLASS_NAMES
from prismem_core.program.syntax import Definition, arguments, evaluated_at_definition, own_bindings
from prismem_core.program.validation.modules import submodule

_ROUNDS = 50
BACKEND = "backend"
BACKEND_ATTRIBUTES = frozenset({"backend", "_backend"})
_IMPLICIT_CLASS_METHODS = frozenset({"__new__", "__init_subclass__", "__class_getitem__"})
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Scope:
    """One namespace; `kind` is `module`, `function`, `class` or `comprehension`."""

    kind: str
    parent: Scope | None
    bound: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    origins: dict[str, set[str]] = field(default_factory=dict)

    def add(self, name: str, origins: set[str]) -> bool:
        """Whether this was news."""
        known = self.origins.setdefault(name, set())
        news = not origins <= known
        known |= origins
        return news


class Origins:
    """The origins of every expression of a parsed module."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope("module", None)
        self.escaped: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self._scope: dict[int, Scope] = {}
        self._flows: list[tuple[Scope, ast.expr, ast.expr]] = []
        self._followed: set[int] = set()
        self._loads: list[ast.expr] = []
        self._memo: dict[int, set[str]] = {}
        self._owners: dict[int, str] = {}
        self._walk(tree)
        for _ in range(_ROUNDS):
            self._memo.clear()
            news = [self._flow(scope, target, value) for scope, target, value in self._flows]
            if not any(news):
                break
        self._memo.clear()
        for load in self._loads:
            if id(load) not in self._followed:
                self.escaped.update(origin for origin in self.of(load) if origin.startswith("module:"))

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which a name or definition stands."""
        return self._scope.get(id(node), self.module)

    def is_builtin(self, node: ast.expr, name: str) -> bool:
        """Whether `node` is the name `name` and the program binds it nowhere around it."""
        return isinstance(node, ast.Name) and node.id == name and self._home(name, self.scope(node)) is None

    def of(self, node: ast.expr) -> set[str]:
        """Origins of an expression; empty when it comes from nowhere known."""
        found = self._memo.get(id(node))
        if found is None:
            found = self._memo[id(node)] = self._compute(node)
        return found

    def _compute(self, node: ast.expr) -> set[str]:
        if isinstance(node, ast.Name):
            home = self._home(node.id, self.scope(node))
            found = set(home.origins.get(node.id, ())) if home else set()
            return found | ({BACKEND} if node.id == BACKEND and not found else set())
        if isinstance(node, ast.Attribute):
            chain: list[ast.Attribute] = []
            base: ast.expr = node
            # A long chain of attributes is walked from its root, so that its length is no depth of recursion.
            while isinstance(base, ast.Attribute) and id(base) not in self._memo:
                chain.append(base)
                base = base.value
            found = self.of(base)
            for link in reversed(chain):
                found = self._member(found, link.attr)
                self._memo[id(link)] = found
            return found
        if isinstance(node, ast.IfExp):
            return self.of(node.body) | self.of(node.orelse)
        if isinstance(node, ast.BoolOp):
            return set().union(*(self.of(value) for value in node.values))
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value)
        return set()

    def _member(self, bases: set[str], attribute: str) -> set[str]:
        found: set[str] = set()
        for base in bases:
            if base.startswith(("module:", "member:")):
                found.add(module_member(base, attribute))
        if not found:
            found |= self.attributes.get(attribute, set())
            found |= {BACKEND} if attribute in BACKEND_ATTRIBUTES else set()
        return found

    def _home(self, name: str, scope: Scope) -> Scope | None:
        """The scope whose `name` an expression in `scope` sees, None for a builtin."""
        here: Scope | None = scope
        while here is not None:
            visible = here is scope or here.kind != "class"
            if visible and name in here.bound and name not in here.outer:
                return here
            here = here.parent
        return None

    def _flow(self, scope: Scope, target: ast.expr, value: ast.expr) -> bool:
        # The backend is known by its names alone, not by where it is handed.
        origins = self.of(value) - {BACKEND}
        if not origins:
            return False
        if isinstance(target, ast.Name):
            home = self._home(target.id, scope)
            news = home is not None and home.add(target.id, origins)
            if home is not None and home.kind == "class":
                news = self._attribute(target.id, origins) or news
            return news
        return isinstance(target, ast.Attribute) and self._attribute(target.attr, origins)

    def _attribute(self, name: str, origins: set[str]) -> bool:
        known = self.attributes.setdefault(name, set())
        news = not origins <= known
        known |= origins
        return news

    # Building the scopes

    def _walk(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, Scope]] = [(statement, self.module) for statement in reversed(tree.body)]
        while stack:
            node, scope = stack.pop()
            self._bind(node, scope)
            self._note(node, scope)
            for child in reversed(self._children(node, scope)):
                stack.append(child)

    def _children(self, node: ast.AST, scope: Scope) -> list[tuple[ast.AST, Scope]]:
        if isinstance(node, Definition):
            outer: list[tuple[ast.AST, Scope]] = [(part, scope) for part in evaluated_at_definition(node)]
            inner = Scope("class" if isinstance(node, ast.ClassDef) else "function", scope)
            if not isinstance(node, ast.ClassDef):
                self._parameters(node, inner)
            return outer + [(statement, inner) for statement in node.body]
        if isinstance(node, ast.Lambda):
            inner = Scope("function", scope)
            self._parameters(node, inner)
            defaults = [part for part in [*node.args.defaults, *node.args.kw_defaults] if part is not None]
            return [*((part, scope) for part in defaults), (node.body, inner)]
        if isinstance(node, _COMPREHENSIONS):
            inner = Scope("comprehension", scope)
            results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            found: list[tuple[ast.AST, Scope]] = [(node.generators[0].iter, scope)]
            for number, generator in enumerate(node.generators):
                found.append((generator.target, inner))
                if number:
                    found.append((generator.iter, inner))
                found.extend((test, inner) for test in generator.ifs)
                self._unpack(inner, generator.target, generator.iter, each=True)
            return found + [(result, inner) for result in results]
        if isinstance(node, ast.NamedExpr):
            # Its target is bound by _bind, outside the comprehension it may stand in.
            return [(node.value, scope)]
        return [(child, scope) for child in ast.iter_child_nodes(node)]

    def _parameters(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, inner: Scope) -> None:
        names = [argument.arg for argument in arguments(node)]
        inner.bound.update(names)
        spec = node.args
        positional = [*spec.posonlyargs, *spec.args]
        pairs = list(zip(reversed(positional), reversed(spec.defaults), strict=False))
        pairs += [(argument, value) for argument, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value]
        for argument, default in pairs:
            self._follow(inner, ast.Name(argument.arg, ast.Store()), default)
        owner = self._owners.get(id(node))
        if owner and positional and not isinstance(node, ast.Lambda):
            decorated = any(isinstance(item, ast.Name) and item.id == "classmethod" for item in node.decorator_list)
            if decorated or node.name in _IMPLICIT_CLASS_METHODS:
                inner.add(positional[0].arg, {f"class:{owner}"})

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        home = scope
        if isinstance(node, ast.NamedExpr):
            while home.kind == "comprehension" and home.parent is not None:
                home = home.parent
            home.bound.add(node.target.id)
            self._follow(home, node.target, node.value)
            return
        home.bound.update(own_bindings(node))
        if isinstance(node, ast.Global | ast.Nonlocal):
            scope.outer.update(node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                self._import(scope, alias.asname or top, f"module:{alias.name if alias.asname else top}")
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                self._import(scope, alias.asname or alias.name, module_member(f"module:{node.module}", alias.name))
        elif isinstance(node, ast.ClassDef) and scope is self.module and node.name in CLASS_NAMES:
            scope.add(node.name, {f"class:{node.name}"})
            self._owners.update((id(part), node.name) for part in node.body if isinstance(part, ast.FunctionDef))

    def _import(self, scope: Scope, name: str, origin: str) -> None:
        scope.add(name, {origin})
        if scope.kind == "class":
            self._attribute(name, {origin})

    def _note(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name | Definition):
            self._scope[id(node)] = scope
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            self._loads.append(node)
        if isinstance(node, ast.Attribute):
            self._mark(node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._unpack(scope, target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._unpack(scope, node.target, node.value)
        elif isinstance(node, ast.For):
            self._unpack(scope, node.target, node.iter, each=True)

    def _unpack(self, scope: Scope, target: ast.expr, value: ast.expr, each: bool = False) -> None:
        """Follow `value` into `target`, part by part where both are written out; `each` for loops over a display."""
        if each:
            for item in value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else ():
                self._unpack(scope, target, item)
        elif isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                for part, item in zip(target.elts, value.elts, strict=True):
                    self._unpack(scope, part, item)
        elif isinstance(target, ast.Name | ast.Attribute):
            self._follow(scope, target, value)

    def _follow(self, scope: Scope, target: ast.expr, value: ast.expr) -> None:
        self._flows.append((scope, target, value))
        self._mark(value)

    def _mark(self, node: ast.expr) -> None:
        """The origins of `node` are followed from here on, so it does not escape."""
        stack = [node]
        while stack:
            part = stack.pop()
            self._followed.add(id(part))
            if isinstance(part, ast.IfExp):
                stack += [part.body, part.orelse]
            elif isinstance(part, ast.BoolOp):
                stack += part.values
            elif isinstance(part, ast.NamedExpr):
                stack.append(part.value)


def module_member(base: str, attribute: str) -> str:
    """The origin of `attribute` of a module or of one of its members."""
    kind, _, name = base.partition(":")
    if kind == "module" and submodule(name, attribute):
        return f"module:{name}.{attribute}"
    return f"member:{name}.{attribute}"
