"""Strings that a program puts together from constants, and the attributes that format fields in them would read."""

from __future__ import annotations

import ast
import re
from string import Formatter

_LIMIT = 20_000
_DEPTH = 40
HOLE = "\x00"
"""Stands for a part of a string that is not known before the program runs."""

_ATTRIBUTE = re.compile(r"\.([^.\[\]{}!:]*)")
_CONVERSION = re.compile(r"%[srd]")
_TORN = re.compile(r"\{[^{}]*\.(__\w+|[^{}]*\x00)|\.(__\w+__)[^{}]*\}")


def field_attributes(text: str) -> list[str]:
    """Attributes that `text.format(...)` would read, those of nested fields and of torn fields included.

    A part that holds HOLE is an attribute whose name is not known.
    """
    found: list[str] = []
    pending = [text]
    for _ in range(_DEPTH):
        if not pending:
            break
        part = pending.pop()
        try:
            fields = list(Formatter().parse(part))
        except ValueError:
            found.extend(match.group(1) or match.group(2) for match in _TORN.finditer(part))
            continue
        for _, name, spec, _ in fields:
            found.extend(_ATTRIBUTE.findall(name or ""))
            if spec and "{" in spec:
                pending.append(spec)
    # A piece that closes a field another piece opened parses as plain text.
    found.extend(match.group(2) for match in _TORN.finditer(text) if match.group(2))
    return found


def fold(node: ast.expr, names: dict[str, str], depth: int = 0) -> str | None:
    """The text an expression gives, unknown parts as HOLE; None if it is no string put together from constants.

    `names` are the constants that names stand for. Follows +, *, %, f-strings, join, replace, chr, decode, reversal.
    """
    if depth > _DEPTH:
        return None
    if isinstance(node, ast.Constant):
        # Bytes stand for the text that decoding them would give.
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.JoinedStr):
        return _joined([_formatted(part, names, depth) for part in node.values], "")
    if isinstance(node, ast.BinOp):
        return _operation(node, names, depth)
    if isinstance(node, ast.Subscript):
        text = fold(node.value, names, depth + 1)
        step = node.slice.step if isinstance(node.slice, ast.Slice) else None
        turned = isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
        return text[::-1] if text is not None and turned else None
    return _call(node, names, depth) if isinstance(node, ast.Call) else None


def _formatted(part: ast.expr, names: dict[str, str], depth: int) -> str | None:
    if isinstance(part, ast.FormattedValue):
        return fold(part.value, names, depth + 1) if part.conversion == -1 and part.format_spec is None else None
    return fold(part, names, depth + 1)


def _operation(node: ast.BinOp, names: dict[str, str], depth: int) -> str | None:
    if isinstance(node.op, ast.Mult):
        for text, count in ((node.left, node.right), (node.right, node.left)):
            if isinstance(count, ast.Constant) and type(count.value) is int and 0 <= count.value <= 100:
                known = fold(text, names, depth + 1)
                return None if known is None else (known * count.value)[:_LIMIT]
        return None
    if isinstance(node.op, ast.Mod):
        template = fold(node.left, names, depth + 1)
        parts = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        values = iter([fold(part, names, depth + 1) for part in parts])
        if template is None:
            return None
        return _CONVERSION.sub(lambda match: next(values, None) or HOLE, template)[:_LIMIT]
    if not isinstance(node.op, ast.Add):
        return None
    operands: list[ast.expr] = []
    left: ast.expr = node
    # Long sums lean to the left; walking down that side is no recursion.
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        operands.append(left.right)
        left = left.left
    operands.append(left)
    return _joined([fold(operand, names, depth + 1) for operand in reversed(operands)], "")


def _call(node: ast.Call, names: dict[str, str], depth: int) -> str | None:
    function = node.func
    if isinstance(function, ast.Name) and function.id == "chr" and len(node.args) == 1:
        code = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        return chr(code) if type(code) is int and 0 <= code < 0x110000 else HOLE
    if not isinstance(function, ast.Attribute) or node.keywords:
        return None
    base = fold(function.value, names, depth + 1)
    if base is None:
        return None
    if function.attr == "join" and len(node.args) == 1:
        items = node.args[0]
        if isinstance(items, ast.List | ast.Tuple):
            return _joined([fold(item, names, depth + 1) for item in items.elts], base)
        return None
    if function.attr == "replace" and len(node.args) == 2:
        old, new = (fold(argument, names, depth + 1) for argument in node.args)
        return None if old is None or new is None else base.replace(old, new)[:_LIMIT]
    return base if function.attr in ("strip", "lower", "casefold", "decode") else None


def _joined(parts: list[str | None], separator: str) -> str | None:
    """The parts as one text, unknown ones as HOLE; None if all are unknown."""
    if all(part is None for part in parts):
        return None
    return separator.join(HOLE if part is None else part for part in parts)[:_LIMIT]
