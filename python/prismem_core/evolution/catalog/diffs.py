"""From an edit to a unified diff against the program at hand, also one that the catalogue did not write."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from prismem_core.errors import PatchError
from prismem_core.evolution.catalog import clauses
from prismem_core.evolution.catalog.detect import detect, is_own
from prismem_core.evolution.catalog.edit import Edit
from prismem_core.evolution.catalog.features import Features
from prismem_core.evolution.catalog.render import render
from prismem_core.program.patch import apply_patch, make_patch


@dataclass(frozen=True)
class Draft:
    """A program after an edit; `rewritten` says that the catalogue's own form takes the place of a foreign program."""

    source: str
    design: Features
    rewritten: bool = False


def draft(source: str, edit: Edit) -> Draft | None:
    """The program after the edit, None where the edit does not fit its design.

    A program in the catalogue's form is rendered anew. In any other, the lines that the edit changes are looked for;
    where they are not found, an edit of the answer instruction adds its sentences to the program's own, and any other
    edit brings the program into the catalogue's form.
    """
    before = detect(source)
    after = edit.applied(before)
    if after is None:
        return None
    if is_own(source):
        return Draft(render(after), after)
    patched = _patched(source, render(before), render(after))
    if patched is not None and detect(patched) == after:
        return Draft(patched, after)
    if not edit.changes and edit.clauses and not edit.without:
        added = _with_sentences(source, [clauses.ANSWER[name] for name in edit.clauses])
        return None if added is None else Draft(added, after)
    return Draft(render(after), after, rewritten=True)


def difference(old: str, new: str) -> str:
    """The diff that the context patcher turns `old` into `new` with; a missing final newline of `old` is kept
    missing.
    """
    return make_patch(old, new if old.endswith("\n") or not old else new.rstrip("\n"))


def _patched(source: str, old: str, new: str) -> str | None:
    try:
        return apply_patch(source, make_patch(old, new))
    except PatchError:
        return None


def _with_sentences(source: str, sentences: list[str]) -> str | None:
    """The source with sentences added to a literal answer instruction, None where it has none."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = source.split("\n")
    for node in body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id == "AnswerInstruction" and isinstance(node, ast.Assign):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            alone = node.col_offset == 0 and node.end_lineno is not None
            if isinstance(value, str) and alone and len(lines[node.lineno - 1 : node.end_lineno]) > 0:
                new = clauses.instruction("AnswerInstruction", [" ".join(value.split()), *sentences])
                return "\n".join([*lines[: node.lineno - 1], *new, *lines[node.end_lineno :]])
    return None
