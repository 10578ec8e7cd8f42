"""Which parts of a revised program go into the memory that its parent built, so that `index` need not run again.

What `Memory.__init__`, `index` and the loading of the module can run is equal in both programs and stays as it is, with
all state that it has made. The other parts are executed anew in the same module (`sandbox/graft.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

from prismem_core.errors import ProgramError
from prismem_core.program.definitions import Definitions, Facts, reads_at_definition
from prismem_core.program.reachability import INDEX_ROOTS, code_digest, reading
from prismem_core.program.syntax import MEMORY_CLASS, MODULE, bindings, bound_names, docstring_of

_MEMBER = "Memory."
# What shows a program the names that its classes and module bind, grafted or not.
_TELLTALES = ("__annotations__", "__slots__", "_Memory__")


@dataclass(frozen=True)
class Graft:
    """What to execute of `source`, and what the parent's module and class lose before.

    `statements` are places in the module's body, `members` in that of Memory, which stands at place `memory`; a second
    number picks one name of an import. `removed` are names of the module; those of the class (`removed_members`,
    `new_members`, and `seen_members`, which stay and are read while new ones are made) are mangled.
    """

    source: str
    memory: int
    statements: tuple[tuple[int, ...], ...]
    members: tuple[tuple[int, ...], ...]
    removed: tuple[str, ...]
    removed_members: tuple[str, ...]
    new_members: tuple[str, ...]
    seen_members: tuple[str, ...]

    def order(self) -> dict[str, Any]:
        """What a worker is told, as JSON."""
        return {
            "op": "attach",
            "source": self.source,
            "memory": self.memory,
            "statements": [list(place) for place in self.statements],
            "members": [list(place) for place in self.members],
            "removed": list(self.removed),
            "removed_members": list(self.removed_members),
            "new_members": list(self.new_members),
            "seen_members": list(self.seen_members),
        }


@dataclass(frozen=True)
class NotReusable:
    """Why a revision needs a memory of its own."""

    reason: str


@lru_cache(64)
def plan_graft(parent_source: str, source: str) -> Graft | NotReusable:
    """How `source` takes over a memory that `parent_source` built, or why it cannot; looks at both itself."""
    try:
        parent, revised = _Split(parent_source), _Split(source)
        equal = code_digest(parent_source, INDEX_ROOTS) == code_digest(source, INDEX_ROOTS)
    except ProgramError as error:
        return NotReusable(f"a source does not parse: {error}")
    for whose, split in (("the parent", parent), ("the revision", revised)):
        problem = split.problem()
        if problem is not None:
            return NotReusable(f"{whose} {problem}")
    if not equal:
        return NotReusable("code that Memory.__init__, index or loading can run differs")
    return _Plan(parent, revised).graft()


class _Split:
    """The statements of a source as those that building a memory reaches, which are kept, and the others."""

    def __init__(self, source: str) -> None:
        self.source = source
        read = reading(source)
        self.tree = read.tree
        self.dynamic = read.dynamic
        self.kept: set[str] = set()
        self.free: set[str] = set()
        if read.graph is not None:
            self.kept = set(read.graph.chains(INDEX_ROOTS))
            self.free = {part.name for part in read.graph.parts} - self.kept - {MODULE, MEMORY_CLASS}

    @property
    def memory(self) -> int:
        """The place of the class Memory among the module's statements."""
        return next(i for i, s in enumerate(self.tree.body) if isinstance(s, ast.ClassDef) and s.name == "Memory")

    def problem(self) -> str | None:
        """Why the source can neither give nor take a memory."""
        if self.dynamic is not None:
            line, what = self.dynamic
            return f"looks names up dynamically (line {line}: {what})"
        memory = self.tree.body[self.memory]
        assert isinstance(memory, ast.ClassDef)
        if memory.bases or memory.keywords or memory.decorator_list:
            return f"has a Memory with bases, keywords or decorators (line {memory.lineno})"
        found = next((name for name in _TELLTALES if name in self.source), None)
        if found is not None:
            return f"names {found}"
        place = next((node for node in ast.walk(self.tree) if _tells_objects_apart(node)), None)
        return None if place is None else f"asks whether two objects are the same one (line {place.lineno})"

    def names(self) -> set[str]:
        """Free names of the module."""
        return {name for name in self.free if not name.startswith(_MEMBER)}

    def members(self) -> set[str]:
        """Free members of Memory, mangled as in the class."""
        return {mangled(name.removeprefix(_MEMBER)) for name in self.free if name.startswith(_MEMBER)}


def _tells_objects_apart(node: ast.AST) -> TypeGuard[ast.expr]:
    """Whether `node` asks for the identity of anything but None, True, False and `...`.

    Equal constants are one object within a source, and may be two where part of it was compiled apart.
    """
    if isinstance(node, ast.Name):
        return node.id == "id"
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    return any(
        isinstance(operator, ast.Is | ast.IsNot) and not (_is_single(sides[at]) or _is_single(sides[at + 1]))
        for at, operator in enumerate(node.ops)
    )


def _is_single(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool | type(...)))


class _Plan:
    def __init__(self, parent: _Split, revised: _Split) -> None:
        self._parent = parent
        self._revised = revised
        facts = Facts(revised.tree)
        self._module = Definitions(revised.tree.body, facts)
        self._memory_place = revised.memory
        memory = revised.tree.body[self._memory_place]
        assert isinstance(memory, ast.ClassDef)
        self._memory = memory
        self._class = Definitions(memory.body, facts, self._module)
        self._seen: set[str] = set()
        self._holding: set[str] = set()

    def graft(self) -> Graft | NotReusable:
        chosen: dict[str, list[tuple[int, ...]]] = {"": [], _MEMBER: []}
        for scope, place, statement in self._in_order():
            for chosen_place, part in self._free_parts(scope, place, statement):
                problem = self._unsettled(scope, place, part)
                if problem is not None:
                    return NotReusable(f"line {statement.lineno} of the revision {problem}")
                chosen[scope].append(chosen_place)
        return Graft(
            self._revised.source,
            self._memory_place,
            tuple(chosen[""]),
            tuple(chosen[_MEMBER]),
            tuple(sorted(self._parent.names() | self._revised.names())),
            tuple(sorted(self._parent.members() | self._revised.members())),
            tuple(sorted(self._revised.members())),
            tuple(sorted(self._seen)),
        )

    def _in_order(self) -> Iterator[tuple[str, int, ast.stmt]]:
        """Statements of the revision with their scope and place, as they run."""
        tree, memory = self._revised.tree, self._memory
        for place, statement in enumerate(tree.body):
            if statement is memory:
                inner = enumerate(memory.body)
                yield from ((_MEMBER, i, member) for i, member in inner if member is not docstring_of(memory))
            elif statement is not docstring_of(tree):
                yield "", place, statement

    def _free_parts(self, scope: str, place: int, statement: ast.stmt) -> Iterator[tuple[tuple[int, ...], ast.stmt]]:
        """What of a statement is executed anew, with its place."""
        parts = [(name, part) for name, part in bindings(statement) if name]
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for number, (name, part) in enumerate(parts):
                if scope + name in self._revised.free:
                    yield (place, number), part
        elif parts and all(scope + name in self._revised.free for name, _ in parts):
            yield (place,), statement

    def _unsettled(self, scope: str, place: int, part: ast.stmt) -> str | None:
        """Why executing `part` after `index` may give something else than before, or None.

        What is executed anew is as fresh as ever, but for the kept values that it holds; of what is kept, `index` may
        have changed the value.
        """
        for name, looks_inside in reads_at_definition(part):
            if name == "Memory" and looks_inside:
                return "looks into Memory, whose attributes index() may have changed"
            if scope and _MEMBER + name in self._revised.kept:
                self._seen.add(mangled(name))
                kept, problem = self._class, self._class.unsettled(name, place, looks_inside)
            elif name in self._revised.kept:
                place_in_module = self._memory_place if scope else place
                kept, problem = self._module, self._module.unsettled(name, place_in_module, looks_inside)
            else:
                if name == "Memory" or {name, scope + name} & self._holding:
                    if looks_inside:
                        return f"looks into {name}, which holds what index() may have changed"
                    self._holding.update(scope + own for own in bound_names(part))
                continue
            if problem is not None:
                return f"reads {name}, {problem}"
            if not kept.fixed(name):
                self._holding.update(scope + own for own in bound_names(part))
        return None


def mangled(member: str) -> str:
    """The name under which the class Memory keeps a member."""
    return f"_Memory{member}" if member.startswith("__") and not member.endswith("__") else member
