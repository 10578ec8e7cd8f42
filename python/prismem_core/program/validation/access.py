"""Names, attributes and constructs a program may not use (step 5 of validation).

The check explains and stops the careless; the process around the program is what confines it.
"""

from __future__ import annotations

import ast
import re

from prismem_core.program.interface import BACKEND_CALLS, Interface
from prismem_core.program.syntax import Definition, arguments, own_bindings
from prismem_core.program.validation import modules
from prismem_core.program.validation.origins import BACKEND, Origins
from prismem_core.program.validation.report import Finding
from prismem_core.program.validation.texts import HOLE, field_attributes, fold

_NAMES = frozenset("open eval exec compile globals locals vars input breakpoint exit quit".split())  # noqa: SIM905
_PRINTERS = frozenset({"help", "copyright", "credits", "license"})
_LOOKUPS = frozenset({"getattr", "setattr", "delattr", "hasattr"})
_FRAMES = re.compile(
    r"(gi|cr|ag)_(frame|code|yieldfrom|await|running|suspended|origin)"
    r"|f_(back|globals|locals|builtins|code|trace|trace_lines|trace_opcodes|lasti|lineno|generator)"
    r"|tb_(frame|next|lasti|lineno)"
    r"|co_(code|consts|names|varnames|freevars|cellvars|filename|name|qualname|firstlineno|linetable|lnotab|lines|positions"
    r"|flags|argcount|posonlyargcount|kwonlyargcount|nlocals|stacksize|exceptiontable)"
    r"|func_(code|globals|closure|defaults|dict)|mro"
)
# On any object: no other use of these names is known in memory programs.
_RAW_MEMORY = frozenset({"tofile", "as_strided", "ctypes"})
# Of every Enum, such as re.RegexFlag: reads and replaces the names of any module that is loaded.
_CONVERTERS = frozenset({"_convert", "_convert_"})
_SPECIAL_METHODS = frozenset(
    {"__array_interface__", "__array_struct__", "__buffer__", "__dlpack__", "__reduce__", "__reduce_ex__"}
)
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+")
_TEXTS = (ast.Constant, ast.BinOp, ast.JoinedStr, ast.Call, ast.Subscript)
_BLANK = re.compile(r"^[ \t\f]*(?:#.*)?$")


def access_faults(source: str, tree: ast.Module, origins: Origins, interface: Interface = "paper") -> list[Finding]:
    """Everything in the source that reaches where a program must not, in source order; imports have passed."""
    return _AccessCheck(source, tree, origins, interface).run()


def _is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


class _AccessCheck:
    def __init__(self, source: str, tree: ast.Module, origins: Origins, interface: Interface) -> None:
        self.backend = BACKEND_CALLS[interface]
        self.source = source
        self.tree = tree
        self.origins = origins
        self.found: set[Finding] = set()
        self.constants = string_constants(tree)
        self.defined = _defined_attributes(tree)
        self.class_names: set[int] = set()
        self.inner: set[int] = set()
        self.literal_lookups: set[int] = set()

    def run(self) -> list[Finding]:
        self._encoding()
        nodes = list(ast.walk(self.tree))
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr == "__name__" and isinstance(node.ctx, ast.Load):
                self.class_names.add(id(node.value))
            elif isinstance(node, ast.Call):
                self._call(node)
        for node in nodes:
            self._bindings(node)
            if isinstance(node, ast.Name):
                self._name(node)
            elif isinstance(node, ast.Attribute):
                self._attribute(node, node.value, node.attr, isinstance(node.ctx, ast.Load))
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                self._item(node)
            elif isinstance(node, ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.ClassDef):
                self._class(node)
            elif isinstance(node, ast.MatchClass):
                self._no(node, "class patterns in match read attributes; use isinstance and plain attributes")
            elif isinstance(node, ast.Global):
                self._no(node, "global statements are not allowed; keep state on the instance")
            elif isinstance(node, ast.expr):
                self._text(node)
        return sorted(self.found)

    def _no(self, node: ast.AST, message: str) -> None:
        self.found.add(Finding(getattr(node, "lineno", 0), message))

    def _encoding(self) -> None:
        """Only the first two lines can declare an encoding, the second only after a blank or a comment."""
        lines = re.split(r"\r\n|\r|\n", self.source, maxsplit=2)[:2]
        for number, line in enumerate(lines, 1):
            if _CODING.match(line):
                self.found.add(Finding(number, "encoding declarations are not allowed; the source is text already"))
            if not _BLANK.match(line):
                break

    def _bindings(self, node: ast.AST) -> None:
        names = [] if isinstance(node, ast.Name) else own_bindings(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            names = names + [argument.arg for argument in arguments(node)]
        if isinstance(node, ast.Global | ast.Nonlocal):
            names = list(node.names)
        method = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and self.origins.scope(node).kind == "class"
        for name in names:
            if not _is_dunder(name):
                continue
            if not (method and isinstance(node, Definition) and name == node.name):
                self._no(node, f"the name {name} is not allowed")
            elif name in _SPECIAL_METHODS:
                self._no(node, f"a method {name} is not allowed")

    def _name(self, node: ast.Name) -> None:
        if node.id in _NAMES or (_is_dunder(node.id) and node.id != "__name__"):
            self._no(node, f"the name {node.id} is not allowed")
        elif node.id in _LOOKUPS and id(node) not in self.literal_lookups:
            self._no(node, f"{node.id} may only be called, with a literal name as second argument")
        elif node.id in _PRINTERS and self.origins.is_builtin(node, node.id):
            self._no(node, f"the name {node.id} is not allowed")

    def _call(self, call: ast.Call) -> None:
        function = call.func
        if not isinstance(function, ast.Name):
            return
        if function.id in _LOOKUPS:
            plain = len(call.args) >= 2 and not any(isinstance(argument, ast.Starred) for argument in call.args[:2])
            name = call.args[1].value if plain and isinstance(call.args[1], ast.Constant) else None
            if isinstance(name, str) and not _is_dunder(name):
                self.literal_lookups.add(id(function))
                self._attribute(call, call.args[0], name, function.id in ("getattr", "hasattr"))
        elif function.id == "type" and self.origins.is_builtin(function, "type"):
            starred = any(isinstance(argument, ast.Starred) for argument in call.args)
            if len(call.args) != 1 or call.keywords or starred:
                self._no(call, "type() may only be called with one argument; write classes as class statements")

    def _attribute(self, node: ast.expr, base: ast.expr, name: str, reads: bool) -> None:
        if _is_dunder(name):
            own_class = name == "__class__" and id(node) in self.class_names and reads
            if name not in ("__init__", "__name__") and not own_class:
                self._no(node, f"the attribute {name} is not allowed")
                return
        if fault := self._refused(name, base):
            self._no(node, fault)
            return
        if name == "format" and any(HOLE in field for field in field_attributes(fold(base, self.constants) or "")):
            self._no(node, "a format field of this string reads an attribute whose name is put together while it runs")
        found = self.origins.of(base)
        for origin in found:
            kind, _, place = origin.partition(":")
            if kind == "module" and not _is_dunder(name):
                fault = modules.fault(place, name)
                if fault:
                    self._no(node, fault)
            elif kind == BACKEND and name not in self.backend:
                self._no(node, _not_of_backend(name, self.backend))
            elif kind == "class" and not reads:
                self._no(node, f"attributes of the class {place} must not be changed; keep state on the instance")
        if not found and not _is_dunder(name):
            for place in sorted(origin.partition(":")[2] for origin in self.origins.escaped):
                if fault := modules.fault(place, name, certain=False):
                    self._no(node, f"this may be the module {place}, handed on elsewhere: {fault}")
        if not reads and isinstance(base, ast.Call) and self.origins.is_builtin(base.func, "type"):
            self._no(node, "attributes of a class must not be changed through type(); keep state on the instance")

    def _refused(self, name: str, base: ast.expr) -> str | None:
        """Why no object's attribute `name` may be used, None if it may."""
        if _FRAMES.fullmatch(name):
            return f"the attribute {name} shows the interpreter's insides"
        if name in _RAW_MEMORY:
            return f"the attribute {name} reaches files or raw memory"
        if name in _CONVERTERS:
            return f"the attribute {name} reaches other modules"
        if name == "dump" and "dump" not in self.defined and "module:json" not in self.origins.of(base):
            return "the attribute dump writes files"
        return None

    def _item(self, node: ast.Subscript) -> None:
        """`Memory.cache[key] = value` changes state of the class, too."""
        value: ast.expr = node.value
        while isinstance(value, ast.Subscript):
            value = value.value
        if isinstance(value, ast.Attribute):
            for origin in self.origins.of(value.value):
                if origin.startswith("class:"):
                    self._no(
                        node, f"attributes of the class {origin[6:]} must not be changed; keep state on the instance"
                    )

    def _import(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            fault = modules.fault(node.module or "", alias.name)
            if fault:
                self._no(node, fault)

    def _class(self, node: ast.ClassDef) -> None:
        if any(keyword.arg in (None, "metaclass") for keyword in node.keywords):
            self._no(node, "metaclasses are not allowed")
        if any(self.origins.is_builtin(base, "type") for base in node.bases):
            self._no(node, "classes derived from type (metaclasses) are not allowed")

    def _text(self, node: ast.expr) -> None:
        """A string, written out or put together, whose format fields read what a program may not read itself."""
        if id(node) in self.inner or not isinstance(node, _TEXTS):
            return
        text = fold(node, self.constants)
        if text is None or not ("{" in text or "}" in text):
            return
        if isinstance(node, ast.BinOp):
            # Parts of one sum are judged with the whole.
            left = node.left
            while isinstance(left, ast.BinOp):
                self.inner.add(id(left))
                left = left.left
        for attribute in field_attributes(text):
            if attribute.startswith("__") or _FRAMES.fullmatch(attribute):
                shown = attribute.replace(HOLE, "...")
                self._no(node, f"a format field of this string reads the attribute {shown}")


def _not_of_backend(name: str, offered: tuple[str, ...]) -> str:
    if name in BACKEND_CALLS["engine"]:
        return f'backend.{name} needs interface="engine"; with interface="paper" the backend has ask and embed only'
    return f"the backend has {', '.join(offered[:-1])} and {offered[-1]} only, not {name}"


def string_constants(tree: ast.Module) -> dict[str, str]:
    """Names bound once in the whole source, to a string put together from constants."""
    counts: dict[str, int] = {}
    values: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        for name in own_bindings(node):
            counts[name] = counts.get(name, 0) + 1
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values[node.target.id] = node.value
    found: dict[str, str] = {}
    for _ in range(3):
        for name, value in values.items():
            text = fold(value, found) if counts[name] == 1 and name not in found else None
            if text is not None:
                found[name] = text
    return found


def _defined_attributes(tree: ast.Module) -> set[str]:
    """Attributes and methods that the program itself defines."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found
