"""Parse a program's source within bounds, and compare its syntax trees without positions.

Nothing here recurses, because the source may be hostile: a tree deeper than Python's own stack must end in a message.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator

from prismem_core.errors import ProgramError

MAX_BYTES = 200_000
MAX_DEPTH = 500
MAX_NODES = 120_000

MODULE = "<module>"
MEMORY_CLASS = "Memory.<class>"
"""Names of the statements that bind no name, of the module and of the class Memory with its bases and decorators."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parse_module(source: str) -> ast.Module:
    """The tree of `source`; raises ProgramError (`syntax_error`) if it does not parse or is too long or too deep."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise ProgramError("syntax_error", f"the source has {size} bytes; at most {MAX_BYTES} are allowed")
    try:
        with warnings.catch_warnings():
            # An invalid escape in a program's string is its own business, not a line on the engine's terminal.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        raise ProgramError("syntax_error", f"the source does not parse: {error.msg}", error.lineno) from None
    except ValueError as error:
        raise ProgramError("syntax_error", f"the source does not parse: {error}") from None
    except (RecursionError, MemoryError):
        raise ProgramError(
            "syntax_error", "the source is nested too deeply to be parsed; split long expressions"
        ) from None
    nodes = 0
    level: list[ast.AST] = [tree]
    for depth in range(MAX_DEPTH + 1):
        nodes += len(level)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level or nodes > MAX_NODES:
            break
        if depth == MAX_DEPTH:
            line = getattr(level[0], "lineno", None)
            raise ProgramError("syntax_error", f"the source is nested more than {MAX_DEPTH} levels deep", line)
    if nodes > MAX_NODES:
        raise ProgramError("syntax_error", f"the source has more than {MAX_NODES} syntax nodes; shorten it")
    return tree


def shape(node: ast.AST, *, docstrings: bool = True) -> str:
    """A digest of a tree without positions; equal trees give equal digests.

    With `docstrings=False` the docstrings of classes and functions do not count, nor does the `u` before a string.
    """
    hasher = hashlib.sha256()
    stack: list[object] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, ast.AST):
            hasher.update(b"(" + type(item).__name__.encode())
            skip = None if docstrings else docstring_of(item)
            pending: list[object] = []
            for name, value in ast.iter_fields(item):
                if value is None and not isinstance(item, ast.Constant):
                    continue
                if name == "kind" and (value is None or not docstrings):
                    continue
                pending.append(_Field(name))
                if isinstance(value, list):
                    pending.append(_Items([part for part in value if part is not skip]))
                else:
                    pending.append(value)
            stack.append(_CLOSE)
            stack.extend(reversed(pending))
        elif isinstance(item, _Items):
            hasher.update(b"[%d" % len(item.parts))
            stack.extend(reversed(item.parts))
        elif isinstance(item, _Field):
            hasher.update(b"|" + item.name.encode() + b"=")
        elif item is _CLOSE:
            hasher.update(b")")
        else:
            hasher.update(_plain(item))
    return hasher.hexdigest()


class _Field:
    def __init__(self, name: str) -> None:
        self.name = name


class _Items:
    def __init__(self, parts: list[object]) -> None:
        self.parts = parts


_CLOSE = object()


def _plain(value: object) -> bytes:
    """A constant with its type, so that 1, 1.0 and True differ."""
    # repr of an integer of thousands of digits is refused by the interpreter, hex is not.
    text = hex(value) if type(value) is int else repr(value)
    return f"{type(value).__name__}:{len(text)}:{text}".encode("utf-8", "surrogatepass")


def docstring_of(node: ast.AST) -> ast.stmt | None:
    """The docstring statement of a module, class or function."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            return first
    return None


def scope_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and what runs in its scope: bodies of functions, lambdas, classes and comprehensions stay out.

    What a definition evaluates at once (decorators, defaults, bases, annotations) is in; so are walrus targets of a
    comprehension, which bind outside it.
    """
    stack: list[ast.AST] = [node]
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, Definition):
            stack.extend(evaluated_at_definition(item))
        elif isinstance(item, ast.Lambda):
            stack.extend(default for default in [*item.args.defaults, *item.args.kw_defaults] if default is not None)
        elif isinstance(item, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            stack.append(item.generators[0].iter)
            stack.extend(part.target for part in ast.walk(item) if isinstance(part, ast.NamedExpr))
        else:
            stack.extend(ast.iter_child_nodes(item))


def evaluated_at_definition(node: Definition) -> list[ast.expr]:
    """Expressions that run when a function or class statement runs."""
    found: list[ast.expr] = list(node.decorator_list)
    if isinstance(node, ast.ClassDef):
        return found + node.bases + [keyword.value for keyword in node.keywords]
    found.extend(default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None)
    found.extend(argument.annotation for argument in arguments(node) if argument.annotation is not None)
    if node.returns is not None:
        found.append(node.returns)
    return found


def arguments(node: FunctionNode) -> list[ast.arg]:
    """All parameters of a function in the order of its signature."""
    spec = node.args
    found = [*spec.posonlyargs, *spec.args]
    if spec.vararg:
        found.append(spec.vararg)
    found.extend(spec.kwonlyargs)
    if spec.kwarg:
        found.append(spec.kwarg)
    return found


def bound_names(node: ast.AST) -> list[str]:
    """Names that running the statement `node` binds or deletes in its own scope, each once, sorted."""
    names: set[str] = set()
    for item in scope_nodes(node):
        names.update(own_bindings(item))
    return sorted(names)


def own_bindings(item: ast.AST) -> list[str]:
    """Names that this one node binds, its children not asked."""
    if isinstance(item, ast.Name):
        return [] if isinstance(item.ctx, ast.Load) else [item.id]
    if isinstance(item, Definition):
        return [item.name]
    if isinstance(item, ast.Import):
        return [alias.asname or alias.name.partition(".")[0] for alias in item.names]
    if isinstance(item, ast.ImportFrom):
        return [alias.asname or alias.name for alias in item.names]
    if isinstance(item, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return [item.name] if item.name else []
    if isinstance(item, ast.MatchMapping):
        return [item.rest] if item.rest else []
    return []


def bindings(statement: ast.stmt) -> list[tuple[str, ast.stmt]]:
    """(name, statement) for each name the statement binds, an import cut in one a name; ("", statement) for no name."""
    if isinstance(statement, ast.Import):
        return [(own_bindings(ast.Import([alias]))[0], ast.Import([alias])) for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        return [
            (alias.asname or alias.name, ast.ImportFrom(statement.module, [alias], statement.level))
            for alias in statement.names
        ]
    return [(name, statement) for name in bound_names(statement)] or [("", statement)]


def is_special(name: str) -> bool:
    """Whether a component is a special method of Memory that runs without being named, such as `Memory.__len__`."""
    member = name.removeprefix("Memory.")
    return member != name and member.startswith("__") and member.endswith("__") and member != "__init__"
