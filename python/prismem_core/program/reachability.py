"""The code a method can run, as one digest: the key of `reuse="content"`.

The digest errs on the side of holding too much. What runs without being named (module statements, bases, decorators,
special methods, assignments that call something unknown) always counts; where a name is looked up dynamically
everything does.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from prismem_core.digests import digest, digest_bytes
from prismem_core.program.inert import Inertness, shadowing
from prismem_core.program.lookups import dynamic_lookup, reads_docstrings, reads_positions
from prismem_core.program.syntax import (
    MEMORY_CLASS,
    MODULE,
    bindings,
    bound_names,
    docstring_of,
    is_special,
    parse_module,
    shape,
)

_DOTTED_NAME = re.compile(r"(?:^|\.)([^\W\d]\w*)")
_NAME_IN_TEXT = re.compile(r"\.([^\W\d]\w*)|([^\W\d]\w*)(?=[}!:\[])")
_PATH = re.compile(r"[\w.]+")

INDEX_ROOTS = ("Memory.__init__", "Memory.index", "MemoryUnit")
"""The components whose code, with all it can run, decides a built memory."""

LOADING = "the module, when it is loaded"
HANDED = "the objects it is handed"
SPECIAL = "special methods, which no name calls"
"""Who runs a part that no other part names: the first link of a chain of `CodeGraph.chains`."""


def code_digest(source: str, roots: Sequence[str]) -> str:
    """A digest of all code that the components `roots` can run, such as `["Memory.__init__", "Memory.index"]`.

    It changes with every change that can alter what they do, and with no change of comments, layout or docstrings.
    `Memory.index` brings MemoryUnit with it and `Memory.retrieve` Query, whose objects they are handed. Raises
    ProgramError (`syntax_error`) where the source does not parse.
    """
    return _code_digest(source, tuple(sorted(set(roots))))


@lru_cache(64)
def _code_digest(source: str, wanted: tuple[str, ...]) -> str:
    read = reading(source)
    tree, graph = read.tree, read.graph
    if graph is None:
        if reads_positions(tree):
            return digest("code", wanted, "text", digest_bytes(source.encode("utf-8", "surrogatepass")))
        return digest("code", wanted, "module", shape(tree, docstrings=reads_docstrings(tree)))
    reached = graph.chains(wanted).keys()
    parts = [part for part in graph.parts if part.name in reached]
    names = [part.name for part in parts]
    # Alone and unshadowed, definitions give the same module in any order that loads; otherwise their order matters.
    if len(set(names)) == len(names) and not shadowing(names) and not any(part.eager for part in parts):
        parts.sort(key=lambda part: part.name)
    return digest("code", wanted, [[part.name, shape(part.node, docstrings=False)] for part in parts])


@dataclass(frozen=True)
class Reading:
    """What a source says: its tree, not to be changed, and its graph, None where it is `dynamic` (`conservative`)."""

    tree: ast.Module
    dynamic: tuple[int, str] | None
    graph: CodeGraph | None


@lru_cache(16)
def reading(source: str) -> Reading:
    """Raises ProgramError (`syntax_error`) where the source does not parse."""
    tree = parse_module(source)
    dynamic = conservative(tree)
    return Reading(tree, dynamic, CodeGraph(tree) if dynamic is None else None)


def conservative(tree: ast.Module) -> tuple[int, str] | None:
    """The (line, cause) for which everything in a module counts for everything, None where the graph decides."""
    found = dynamic_lookup(tree)
    if found is not None:
        return found
    binders = [statement for statement in tree.body if "Memory" in bound_names(statement)]
    if len(binders) == 1 and isinstance(binders[0], ast.ClassDef):
        return None
    line = binders[1].lineno if len(binders) > 1 else binders[0].lineno if binders else 1
    return line, "Memory is not one class statement of the module itself"


@dataclass
class _Part:
    """One statement under one of the names it binds; an eager one runs something when the module is loaded."""

    name: str
    node: ast.stmt
    eager: bool
    mentions: frozenset[str] = field(default_factory=frozenset)


class CodeGraph:
    """Statements of a module and the names each mentions; members of Memory carry the prefix `Memory.`."""

    def __init__(self, tree: ast.Module) -> None:
        inertness = Inertness(tree)
        inert = inertness.inert
        self.parts: list[_Part] = []
        for statement in tree.body:
            if statement is docstring_of(tree):
                continue
            if isinstance(statement, ast.ClassDef) and statement.name == "Memory":
                header = ast.ClassDef("Memory", statement.bases, statement.keywords, [], statement.decorator_list)
                self._add(MEMORY_CLASS, header, not inertness.inert_header(header))
                for inner in statement.body:
                    if inner is not docstring_of(statement):
                        for name, part in bindings(inner):
                            self._add(f"Memory.{name}" if name else MEMORY_CLASS, part, not inert(part))
            else:
                for name, part in bindings(statement):
                    self._add(name or MODULE, part, not inert(part))
        members = {part.name.removeprefix("Memory.") for part in self.parts if part.name.startswith("Memory.")}
        known = {part.name for part in self.parts}
        for entry in self.parts:
            entry.mentions = frozenset(_mentions(entry.node, known, members))

    def _add(self, name: str, node: ast.stmt, eager: bool) -> None:
        self.parts.append(_Part(name, node, eager))

    def chains(self, roots: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Every part that `roots`, or the loading of the module, can run, with a shortest chain of mentions to it.

        A chain begins with a root, LOADING, HANDED or SPECIAL and ends with the part.
        """
        wanted = list(roots)
        starts: list[tuple[str, tuple[str, ...]]] = [(name, (name,)) for name in wanted]
        handed = {"Memory.index": "MemoryUnit", "Memory.retrieve": "Query"}
        starts += [(handed[name], (name, HANDED, handed[name])) for name in wanted if name in handed]
        starts += [(part.name, (LOADING, part.name)) for part in self.parts if part.eager or part.name == MEMORY_CLASS]
        if any(name.startswith("Memory.") for name, _ in starts):
            starts += [(part.name, (SPECIAL, part.name)) for part in self.parts if is_special(part.name)]
        mentioned: dict[str, set[str]] = {}
        for part in self.parts:
            mentioned.setdefault(part.name, set()).update(part.mentions)
        found: dict[str, tuple[str, ...]] = {}
        queue = deque(starts)
        while queue:
            name, chain = queue.popleft()
            if name not in found:
                found[name] = chain
                queue.extend((other, (*chain, other)) for other in sorted(mentioned.get(name, ())))
        return found


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
            # "name", "outer.name" and "{0.name}", also where the text is put together from pieces such as these.
            if _PATH.fullmatch(item.value):
                words.update(_DOTTED_NAME.findall(item.value))
            words.update(word for pair in _NAME_IN_TEXT.findall(item.value) for word in pair if word)
        elif isinstance(item, ast.MatchClass):
            words.update(item.kwd_attrs)
        elif isinstance(item, ast.Global | ast.Nonlocal):
            words.update(item.names)
    found = words & known
    found.update(f"Memory.{word}" for word in words & members)
    if "Memory" in words:
        found.update(name for name in known if name.startswith("Memory."))
    return found
