"""Edits that change what a program does, or may."""

from __future__ import annotations

import ast
import random

from .trees import class_of, code_nodes, functions, method_of, on_tree, pick, targets, wrap_return


def _number(tree: ast.Module, rng: random.Random) -> bool:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) in (int, float)]
    node = pick(list(found), rng)
    if not isinstance(node, ast.Constant):
        return False
    assert isinstance(node.value, int | float)
    node.value = rng.choice([node.value + 1, node.value * 2, max(0, node.value - 1), 0])
    return True


def _text(tree: ast.Module, rng: random.Random) -> bool:
    inside = {id(v) for n in code_nodes(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    found = [
        n for n in code_nodes(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in inside
    ]
    node = pick(list(found), rng)
    if not isinstance(node, ast.Constant):
        return False
    node.value = rng.choice([f"{node.value} ", f"*{node.value}", "; ", ""])
    return True


_SWAPS: dict[type[ast.AST], list[type[ast.AST]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.Add: [ast.Sub, ast.Mult],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Add],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
}


def _operator(tree: ast.Module, rng: random.Random) -> bool:
    found = [n for n in code_nodes(tree) if isinstance(n, ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp)]
    node = pick(list(found), rng)
    if isinstance(node, ast.Compare):
        options = _SWAPS.get(type(node.ops[0]), [])
        if options:
            node.ops[0] = rng.choice(options)()  # type: ignore[assignment]
        return bool(options)
    if isinstance(node, ast.BinOp | ast.BoolOp):
        options = _SWAPS.get(type(node.op), [])
        if options:
            node.op = rng.choice(options)()  # type: ignore[assignment]
        return bool(options)
    if isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.USub()
        return True
    return False


def _slice(tree: ast.Module, rng: random.Random) -> bool:
    loops = [n for n in code_nodes(tree) if isinstance(n, ast.For | ast.comprehension)]
    loop = pick(list(loops), rng)
    if not isinstance(loop, ast.For | ast.comprehension):
        return False
    cut = rng.choice(["[1:]", "[:-1]", "[::-1]", "[:2]"])
    wrapped = ast.parse(f"list(x){cut}", mode="eval").body
    assert isinstance(wrapped, ast.Subscript)
    assert isinstance(wrapped.value, ast.Call)
    wrapped.value.args[0] = loop.iter
    loop.iter = wrapped
    return True


def _sort(tree: ast.Module, rng: random.Random) -> bool:
    found = [
        n
        for n in code_nodes(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "sorted"
    ]
    node = pick(list(found), rng)
    if not isinstance(node, ast.Call) or any(keyword.arg == "reverse" for keyword in node.keywords):
        return False
    node.keywords.append(ast.keyword("reverse", ast.Constant(True)))
    return True


def _statements(tree: ast.Module, rng: random.Random) -> bool:
    bodies = [f.body for f in functions(tree) if len(f.body) > 1]
    bodies += [n.body for n in code_nodes(tree) if isinstance(n, ast.For | ast.If) and n.body]
    if not bodies:
        return False
    body = rng.choice(bodies)
    place = rng.randrange(len(body))
    what = rng.choice(["delete", "double", "swap", "pass"])
    if what == "delete":
        if len(body) == 1:
            return False
        del body[place]
    elif what == "double":
        body.insert(place, body[place])
    elif what == "swap" and place + 1 < len(body):
        body[place], body[place + 1] = body[place + 1], body[place]
    else:
        body[place] = ast.Pass()
    return True


def _default(tree: ast.Module, rng: random.Random) -> bool:
    candidates = [f for f in functions(tree) if f.args.defaults]
    function = pick(list(candidates), rng)
    if not isinstance(function, ast.FunctionDef):
        return False
    names = [n for n in ("LIMIT", "K1", "B", "TOP", "LINES") if any(n in targets(s) for s in tree.body)]
    new: ast.expr = ast.Constant(rng.randrange(1, 9))
    if names and rng.random() < 0.5:
        new = ast.Name(rng.choice(names), ast.Load())
    function.args.defaults[rng.randrange(len(function.args.defaults))] = new
    return True


def _attribute(tree: ast.Module, rng: random.Random) -> bool:
    memory = class_of(tree, "Memory")
    if memory is None:
        return False
    own = [s for s in memory.body if isinstance(s, ast.Assign)]
    if own and rng.random() < 0.7:
        statement = rng.choice(own)
        if isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, int):
            statement.value = ast.Constant(statement.value.value + 1)
        else:
            statement.value = ast.Constant(f"label {rng.randrange(9)}")
        return True
    retrieve = method_of(tree, "retrieve")
    if retrieve is None:
        return False
    name = f"mark_{rng.randrange(4)}"
    memory.body.insert(0, ast.parse(f"{name} = {rng.choice(['> ', '# ', ''])!r}").body[0])
    return wrap_return(retrieve, f"(self.{name} + X)", rng)


def _rebind(tree: ast.Module, rng: random.Random) -> bool:
    constants = [s for s in tree.body if isinstance(s, ast.Assign) and targets(s)[0].isupper()]
    node = pick(list(constants), rng)
    if not isinstance(node, ast.Assign):
        return False
    name = targets(node)[0]
    line = rng.choice([f"{name} = {name}", f"{name} = ({name}, 1)[0]", f"{name} += {name}", f"print({name})"])
    place = rng.randrange(tree.body.index(node) + 1, len(tree.body) + 1)
    tree.body[place:place] = ast.parse(line).body
    return True


def _returned(tree: ast.Module, rng: random.Random) -> bool:
    function = pick(list(functions(tree)), rng)
    template = rng.choice(["X[::-1]", "X[1:]", "(X + X)", "(X or None)", "X[:40]"])
    return isinstance(function, ast.FunctionDef) and wrap_return(function, template, rng)


EDITS = {
    "number": on_tree(_number),
    "text": on_tree(_text),
    "operator": on_tree(_operator),
    "slice": on_tree(_slice),
    "sort": on_tree(_sort),
    "statements": on_tree(_statements),
    "default argument": on_tree(_default),
    "class attribute": on_tree(_attribute),
    "rebinding": on_tree(_rebind),
    "returned value": on_tree(_returned),
}
