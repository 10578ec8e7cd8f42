"""Edits of helpers: new ones, reached in every way there is, and changed ones."""

from __future__ import annotations

import ast
import random

from .trees import class_of, functions, method_of, on_tree, pick, targets, wrap_return


def _new_helper(tree: ast.Module, rng: random.Random) -> bool:
    """A function or member that one of the methods reaches in one of many ways, dynamic ones among them."""
    number = rng.randrange(6)
    helper, member = f"helper_{number}", f"_member_{number}"
    memory, user = class_of(tree, "Memory"), method_of(tree, rng.choice(["retrieve", "retrieve", "index", "__init__"]))
    if memory is None or user is None:
        return False
    body = rng.choice(["text.upper()", "text[::-1]", "text", "text.replace('a', 'o')", "'' + text[:60]"])
    before = rng.randrange(len(tree.body) + 1)
    if rng.random() < 0.5:
        tree.body[0:0] = ast.parse(f"def {helper}(text):\n    return {body}").body
        ways = [f"{helper}(X)", f"globals()['{helper}'](X)", f"(lambda f: f(X))({helper})", f"[{helper}][0](X)"]
        if rng.random() < 0.2:
            tree.body[before:before] = ast.parse(f"TABLE_{number} = {{'a': {helper}}}").body
            ways = [f"TABLE_{number}['a'](X)"]
    else:
        memory.body.append(ast.parse(f"def {member}(self, text):\n    return {body}").body[0])
        ways = [
            f"self.{member}(X)",
            f"getattr(self, {member!r})(X)",
            f"getattr(self, '_mem' + 'ber_{number}')(X)",
            f"Memory.{member}(self, X)",
            f"type(self).__dict__[{member!r}](self, X)",
            f"vars(type(self))[{member!r}](self, X)",
            f"super(Memory, self).__getattribute__({member!r})(X)",
        ]
    way = rng.choice(ways)
    if user.name == "retrieve":
        return wrap_return(user, way, rng)
    line = "self.notes = " if user.name == "__init__" else "raw_text = "
    user.body.append(ast.parse(line + way.replace("X", "'note'" if user.name == "__init__" else "raw_text")).body[0])
    retrieve = method_of(tree, "retrieve")
    if user.name == "__init__" and retrieve is not None:
        return wrap_return(retrieve, "(self.notes + X)", rng)
    return True


def _unused_helper(tree: ast.Module, rng: random.Random) -> bool:
    number = rng.randrange(99)
    line = rng.choice(
        [f"def unused_{number}(x):\n    return x", f"UNUSED_{number} = 'a b'.split()", "import math as m_"]
    )
    place = rng.randrange(1, len(tree.body) + 1)
    tree.body[place:place] = ast.parse(line).body
    return True


def _decorated(tree: ast.Module, rng: random.Random) -> bool:
    candidates = [f for f in functions(tree) if not f.decorator_list and f.name != "__init__"]
    function = pick(list(candidates), rng)
    if not isinstance(function, ast.FunctionDef):
        return False
    number = rng.randrange(4)
    body = rng.choice(["return f(*a, **k)", "r = f(*a, **k)\n        return r[1:] if isinstance(r, str) else r"])
    source = f"def wrap_{number}(f):\n    def inner(*a, **k):\n        {body}\n    return inner"
    tree.body[0:0] = ast.parse(source).body
    function.decorator_list.append(ast.Name(f"wrap_{number}", ast.Load()))
    return True


def _helper_body(tree: ast.Module, rng: random.Random) -> bool:
    own = [f for f in functions(tree) if f.name not in ("__init__", "index", "retrieve")]
    function = pick(list(own), rng)
    if not isinstance(function, ast.FunctionDef):
        return False
    return wrap_return(function, rng.choice(["X[::-1]", "(X, X)[1]", "X[:3]", "(X or X)"]), rng)


def _special(tree: ast.Module, rng: random.Random) -> bool:
    memory, retrieve = class_of(tree, "Memory"), method_of(tree, "retrieve")
    if memory is None or retrieve is None:
        return False
    name = rng.choice(["__len__", "__getattr__", "__call__"])
    arguments = {"__len__": "self", "__getattr__": "self, name", "__call__": "self, *a"}[name]
    value = rng.randrange(9)
    memory.body.append(ast.parse(f"def {name}({arguments}):\n    return {value}").body[0])
    use = {"__len__": "str(len(self))", "__getattr__": "str(self.absent)", "__call__": "str(self())"}[name]
    return wrap_return(retrieve, f"({use} + X)", rng)


def _inherited(tree: ast.Module, rng: random.Random) -> bool:
    memory, retrieve = class_of(tree, "Memory"), method_of(tree, "retrieve")
    if memory is None or retrieve is None:
        return False
    name = f"Base_{rng.randrange(3)}"
    source = f"class {name}:\n    def _given(self):\n        return {rng.choice(['', 'x', '> '])!r}"
    tree.body[0:0] = ast.parse(source).body
    memory.bases = [ast.Name(name, ast.Load()), *memory.bases]
    return wrap_return(retrieve, "(self._given() + X)", rng)


def _shared_state(tree: ast.Module, rng: random.Random) -> bool:
    """Module-level state that statements change behind the back of their names; a second edit changes how much."""
    retrieve = method_of(tree, "retrieve")
    if retrieve is None:
        return False
    holders = [s for s in tree.body if "DONE" in targets(s) or (isinstance(s, ast.ClassDef) and s.name == "Sizes")]
    amounts = [n for s in holders for n in ast.walk(s) if isinstance(n, ast.Constant) and type(n.value) is int]
    if amounts and rng.random() < 0.8:
        node = rng.choice(amounts)
        node.value = rng.choice([n for n in range(1, 5) if n != node.value])
        return True
    amount, state = rng.randrange(1, 5), f"STATE_{rng.randrange(3)}"
    source = rng.choice(
        [
            f"{state} = ['a', 'b', 'c', 'd', 'e']\nDONE = [{state}.pop() for _ in range({amount})]",
            f"from collections import deque\n{state} = deque('abcdef')\nDONE = deque.rotate({state}, {amount})",
            f"import re\n{state} = re.finditer('.', 'abcdef')\nDONE = list(zip('xyzuvw'[:{amount}], {state}))",
            f"{state} = map(str, range(8))\nDONE = [n for n, _ in zip(range({amount}), {state})]",
            f"{state} = []\nDONE = sorted('abcdef'[:{amount}], key={state}.append)",
            f"{state} = list('abc')\nDONE = {state}.__setitem__(0, {amount})",
            f"class Sizes:\n    size = {amount}\n\n{state} = 'abcdef'[:Sizes.size]",
            f"import re\n{state} = ['abc']\nDONE = re.sub('.', lambda m: str({state}.append(1)), 'pqrs'[:{amount}])",
            f"{state} = {{}}\nDONE = [{state}.setdefault(n, n) for n in range({amount})]",
        ]
    )
    tree.body[0:0] = ast.parse(source).body
    shown = f"str(tuple(str(getattr(x, 'group', lambda: x)()) for x in tuple({state})))"
    return wrap_return(retrieve, f"({shown} + X)", rng)


def _registered(tree: ast.Module, rng: random.Random) -> bool:
    """Functions that nothing names: a decorator notes them where `retrieve` finds them. A second edit changes one."""
    retrieve = method_of(tree, "retrieve")
    if retrieve is None:
        return False
    noted = [f for f in functions(tree) if f.name.startswith("noted_")]
    if noted:
        return wrap_return(rng.choice(noted), rng.choice(["X.upper()", "(X + '!')", "X[1:]"]), rng)
    source = "NOTED = []\n\ndef note(f):\n    NOTED.append(f)\n    return f\n"
    for number in range(2):
        source += f"\n@note\ndef noted_{number}(text):\n    return text[{number}:]\n"
    tree.body[0:0] = ast.parse(source).body
    return wrap_return(retrieve, "''.join((f(X) for f in NOTED))", rng)


def _shadow(tree: ast.Module, rng: random.Random) -> bool:
    """A member that hides a name of the module from the members after it; a second edit moves it."""
    memory, retrieve = class_of(tree, "Memory"), method_of(tree, "retrieve")
    if memory is None or retrieve is None:
        return False
    places = [i for i, s in enumerate(memory.body) if targets(s)[0] in ("WIDTH", "width", "sum", "sized")]
    if len(places) > 1:
        one, other = rng.sample(places, 2)
        memory.body[one], memory.body[other] = memory.body[other], memory.body[one]
        return True
    if rng.random() < 0.5:
        tree.body[0:0] = ast.parse("WIDTH = 'outer '").body
        memory.body[0:0] = ast.parse("WIDTH = 'inner '\nwidth = WIDTH").body
        return wrap_return(retrieve, "(self.width + X)", rng)
    memory.body[0:0] = ast.parse("sum = [].__len__\nsized = str(sum)[:9]").body
    return wrap_return(retrieve, "(self.sized + X)", rng)


def _introspective(tree: ast.Module, rng: random.Random) -> bool:
    """Docstrings and lines as part of what the program does."""
    retrieve = method_of(tree, "retrieve")
    way = rng.choice(
        [
            "str(self.__doc__)",
            "str(getattr(self.retrieve, '__doc__'))",
            "'{0.__doc__}'.format(self)",
            "('{0.__do' + 'c__}').format(self.index)",
            "str(self.retrieve.__code__.co_firstlineno)",
            "self.retrieve.__name__",
            "type(self).__name__",
            "','.join(sorted(k for k in vars(self)))",
        ]
    )
    return retrieve is not None and wrap_return(retrieve, f"({way} + X)", rng)


EDITS = {
    "new helper": on_tree(_new_helper),
    "unused helper": on_tree(_unused_helper),
    "decorator": on_tree(_decorated),
    "helper body": on_tree(_helper_body),
    "special method": on_tree(_special),
    "base class": on_tree(_inherited),
    "shared state": on_tree(_shared_state),
    "registry": on_tree(_registered),
    "shadow": on_tree(_shadow),
    "introspection": on_tree(_introspective),
}
