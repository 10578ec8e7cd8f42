"""The components of a program and what a change of them re-executes (PrisMem Table 6)."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from prismem_core.digests import digest
from prismem_core.program.interface import (
    ANSWER_INSTRUCTION,
    EXTRACTION_INSTRUCTION,
    PLANNING_INSTRUCTION,
)
from prismem_core.program.reachability import code_digest
from prismem_core.program.syntax import MEMORY_CLASS, MODULE, bindings, docstring_of, is_special, parse_module, shape

__all__ = [
    "MODULE",
    "STAGES",
    "Components",
    "changed_components",
    "code_digest",
    "reaching",
    "restart_stage",
    "reusable_stages",
    "stage_digests",
]

STAGES = ("segmentation", "extraction", "indexing", "planning", "retrieval", "answer")
"""Stages of the pipeline in the order they run."""

NAMED: Mapping[str, str] = {
    "Segmentation": "segmentation",
    "MemoryUnit": "extraction",
    EXTRACTION_INSTRUCTION: "extraction",
    "Memory.__init__": "indexing",
    "Memory.index": "indexing",
    MEMORY_CLASS: "indexing",
    "Query": "planning",
    PLANNING_INSTRUCTION: "planning",
    "Memory.retrieve": "planning",
    ANSWER_INSTRUCTION: "answer",
}
"""The stage at which re-execution begins for the components Table 6 names; all others begin at indexing."""


@dataclass(frozen=True)
class Components:
    """The parts of one program by name: shapes of the statements that bind each, in order, and what each refers to.

    Names are module-level names, `Memory.<member>`, `Memory.<class>` (bases, decorators, unnamed class statements) and
    `<module>` (other statements). An import binds each of its names by itself; the order of components does not count.
    """

    shapes: Mapping[str, tuple[str, ...]]
    references: Mapping[str, frozenset[str]]

    @property
    def names(self) -> tuple[str, ...]:
        """Component names, sorted."""
        return tuple(sorted(self.shapes))

    @classmethod
    def parse(cls, source: str) -> Components:
        """Raises ProgramError (`syntax_error`) where the source does not parse."""
        parts = split(parse_module(source))
        members = {name.removeprefix("Memory.") for name in parts if name.startswith("Memory.")}
        return cls(
            {name: tuple(shape(node) for node in nodes) for name, nodes in parts.items()},
            {name: _references(nodes, parts.keys(), members) for name, nodes in parts.items()},
        )


def split(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """The statements of a module by component; a module docstring belongs to none."""
    parts: dict[str, list[ast.stmt]] = {}
    docstring = docstring_of(tree)
    for statement in tree.body:
        if statement is docstring:
            continue
        if isinstance(statement, ast.ClassDef) and statement.name == "Memory":
            header = ast.ClassDef(
                name="Memory",
                bases=statement.bases,
                keywords=statement.keywords,
                body=[],
                decorator_list=statement.decorator_list,
            )
            parts.setdefault(MEMORY_CLASS, []).append(header)
            for inner in statement.body:
                for name, part in bindings(inner):
                    parts.setdefault(f"Memory.{name}" if name else MEMORY_CLASS, []).append(part)
            continue
        for name, part in bindings(statement):
            parts.setdefault(name or MODULE, []).append(part)
    return parts


def _references(nodes: Iterable[ast.stmt], names: Iterable[str], members: set[str]) -> frozenset[str]:
    """Components named by a Name, an attribute (of Memory) or a string constant in `nodes`."""
    known = set(names)
    found: set[str] = set()
    for item in (part for node in nodes for part in ast.walk(node)):
        if isinstance(item, ast.Name):
            found.update({item.id} & known)
            found.update({f"Memory.{item.id}"} if item.id in members else ())
            found.update({MEMORY_CLASS} & known if item.id == "Memory" else ())
        elif isinstance(item, ast.Attribute):
            found.update({f"Memory.{item.attr}"} if item.attr in members else ())
        elif isinstance(item, ast.Constant) and isinstance(item.value, str):
            found.update({item.value} & known)
        elif isinstance(item, ast.Call):
            name = literal_attribute(item)
            found.update({f"Memory.{name}"} if name in members else ())
    return frozenset(found)


def literal_attribute(call: ast.Call) -> str | None:
    """The attribute that `getattr(x, "name")` and its kin name."""
    if isinstance(call.func, ast.Name) and call.func.id in ("getattr", "setattr", "delattr", "hasattr"):
        name = call.args[1] if len(call.args) > 1 else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return name.value
    return None


def _chains(root: str, references: Mapping[str, frozenset[str]]) -> dict[str, tuple[str, ...]]:
    """Every component that `root` reaches, itself included, with a shortest chain of references to it."""
    found: dict[str, tuple[str, ...]] = {}
    queue: deque[tuple[str, ...]] = deque([(root,)])
    while queue:
        chain = queue.popleft()
        if chain[-1] not in found:
            found[chain[-1]] = chain
            queue.extend((*chain, name) for name in sorted(references.get(chain[-1], ())))
    return found


def changed_components(parent: Components | str, candidate: Components | str) -> list[str]:
    """Components whose own statements differ, those of one program only included; sorted."""
    before, after = _components(parent), _components(candidate)
    names = {*before.shapes, *after.shapes}
    return sorted(name for name in names if before.shapes.get(name) != after.shapes.get(name))


def reaching(parent: Components | str, candidate: Components | str) -> dict[str, tuple[str, ...]]:
    """Each component of Table 6 that changed or reaches a changed one by the references of either version.

    The value is a shortest chain from it to a changed component, itself alone where it changed.
    """
    before, after = _components(parent), _components(candidate)
    changed = set(changed_components(before, after))
    union = {
        name: before.references.get(name, frozenset()) | after.references.get(name, frozenset())
        for name in {*before.references, *after.references}
    }
    # len(memory), memory[key] and the like run special methods that no reference names.
    special = frozenset(name for name in union if is_special(name))
    for root in ("Memory.__init__", "Memory.index", MEMORY_CLASS):
        union[root] = union.get(root, frozenset()) | special
    found = {}
    for name in NAMED:
        chains = [chain for end, chain in _chains(name, union).items() if end in changed]
        if chains:
            found[name] = min(chains, key=lambda chain: (len(chain), chain))
    return found


def restart_stage(parent: Components | str, candidate: Components | str) -> str | None:
    """The stage at which the candidate's re-execution begins, None if nothing changed.

    A component Table 6 names counts as changed too if it reaches a changed one by the references of either version.
    """
    before, after = _components(parent), _components(candidate)
    changed = changed_components(before, after)
    if not changed:
        return None
    starts = {NAMED.get(name, "indexing") for name in changed}
    starts.update(NAMED[name] for name in reaching(before, after))
    return min(starts, key=STAGES.index)


def reusable_stages(start: str | None) -> list[str]:
    """Stages before `start`, all of them for None."""
    return list(STAGES if start is None else STAGES[: STAGES.index(start)])


def stage_digests(source: str) -> dict[str, str]:
    """For `extraction`, `indexing`, `planning` and `answer`, a digest of all that makes `restart_stage` begin there or
    before: two programs share it exactly where re-execution from one to the other begins later.
    """
    components = Components.parse(source)
    references = dict(components.references)
    special = frozenset(name for name in references if is_special(name))
    for root in ("Memory.__init__", "Memory.index", MEMORY_CLASS):
        references[root] = references.get(root, frozenset()) | special
    result = {}
    for stage in ("extraction", "indexing", "planning", "answer"):
        last = STAGES.index(stage)
        counting = {name for name in components.shapes if STAGES.index(NAMED.get(name, "indexing")) <= last}
        for name, begins in NAMED.items():
            if STAGES.index(begins) <= last:
                counting.update(_chains(name, references))
        result[stage] = digest("stage", stage, {name: components.shapes.get(name) for name in sorted(counting)})
    return result


def _components(program: Components | str) -> Components:
    return _parsed(program) if isinstance(program, str) else program


@lru_cache(maxsize=32)
def _parsed(source: str) -> Components:
    """A parent is compared with every candidate that is made of it, and parsed once for all of them."""
    return Components.parse(source)
