"""Edits of what a program shows of itself: schemas and instructions."""

from __future__ import annotations

import ast
import random

from .trees import class_of, on_tree, targets


def _schema(tree: ast.Module, rng: random.Random) -> bool:
    schema = class_of(tree, rng.choice(["MemoryUnit", "Query"]))
    if schema is None:
        return False
    what = rng.choice(["description", "field", "default", "post_init", "constant"])
    strings = [
        n
        for n in ast.walk(schema)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value != "description" and " " in n.value
    ]
    if what == "description" and strings:
        node = rng.choice(strings)
        assert isinstance(node.value, str)
        node.value = node.value + rng.choice([" in full", " (speaker)", "."])
    elif what == "constant" and strings:
        number = rng.randrange(3)
        value = rng.choice(["One piece of information", "The date of the session", "What was said"])
        tree.body[0:0] = ast.parse(f"TEXT_{number} = {value!r}").body
        chosen = rng.choice(strings)
        for node in ast.walk(schema):
            for name, item in ast.iter_fields(node):
                if item is chosen:
                    setattr(node, name, ast.Name(f"TEXT_{number}", ast.Load()))
                elif isinstance(item, list) and chosen in item:
                    item[item.index(chosen)] = ast.Name(f"TEXT_{number}", ast.Load())
    elif what == "post_init":
        target = "memory_text" if schema.name == "MemoryUnit" else "query_text"
        body = rng.choice([".upper()", "[1:]", " + ' '"])
        source = f"def __post_init__(self):\n    self.{target} = self.{target}{body}"
        schema.body.append(ast.parse(source).body[0])
    elif what == "default":
        fields = [s for s in schema.body if isinstance(s, ast.AnnAssign) and isinstance(s.value, ast.Call)]
        defaults = [k for s in fields for k in s.value.keywords if k.arg == "default"]  # type: ignore[union-attr]
        if not defaults:
            return False
        rng.choice(defaults).value = ast.Constant(rng.choice(["", "unknown", "today"]))
    else:
        name, description = rng.choice(
            [
                ("date", "Date of the session"),
                ("speaker", "Who said it"),
                ("keywords", "Keywords"),
                ("note", "Anything else"),
            ]
        )
        if any(isinstance(s, ast.AnnAssign) and getattr(s.target, "id", "") == name for s in schema.body):
            return False
        kind, default = ("list[str]", "default_factory=list") if name == "keywords" else ("str", "default=''")
        line = f"{name}: {kind} = field({default}, metadata={{'description': {description!r}}})"
        schema.body.append(ast.parse(line).body[0])
    return True


_INSTRUCTIONS = ("MemoryExtractionInstruction", "QueryPlanningInstruction", "AnswerInstruction")


def _instruction(tree: ast.Module, rng: random.Random) -> bool:
    name = rng.choice(_INSTRUCTIONS)
    found = [s for s in tree.body if name in targets(s)]
    if not found:
        return False
    statement = found[-1]
    assert isinstance(statement, ast.Assign)
    addition = rng.choice(
        [" Be brief.", " Each sentence by itself.", " Say when it happened.", " Skip the assistant.", ""]
    )
    if rng.random() < 0.3:
        number = rng.randrange(3)
        tree.body[0:0] = ast.parse(f"EXTRA_{number} = {addition!r}").body
        right: ast.expr = ast.Name(f"EXTRA_{number}", ast.Load())
    else:
        right = ast.Constant(addition)
    if rng.random() < 0.2:
        statement.value = ast.Constant("Answer from the text." + addition)
    else:
        statement.value = ast.BinOp(statement.value, ast.Add(), right)
    return True


SCHEMA = {"schema": on_tree(_schema)}
INSTRUCTION = {"instruction": on_tree(_instruction)}
