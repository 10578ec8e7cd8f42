"""Random edits of memory programs, in five kinds: behavioural, cosmetic, helper, schema, instruction.

An edit takes a source and gives another that parses; whether that program still works is left to chance, because a
failure is an outcome of a stage like any other.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prismem_core.errors import ProgramError
from prismem_core.program.syntax import parse_module

KINDS = ("behavioural", "cosmetic", "helper", "schema", "instruction")

DISPATCHING = '''
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

MemoryExtractionInstruction = "Extract the key information from the text into several memory units."
QueryPlanningInstruction = "Given the following question, generate a query to retrieve relevant memory."
STYLE = "a short answer"
AnswerInstruction = f"Based on the retrieved memory and the original question, provide {STYLE}."
HINT = "One piece of information worth remembering from the text"
LIMIT = 6
WEIGHTS = {"exact": 2.0, "loose": 1.0}
SEEN = []
ORDER = iter([3, 1, 2])
FIRST = next(ORDER)
STOP = frozenset("a the of in on".split())


def counted(function):
    SEEN.append(function.__name__)
    return function


def words(text, size=LIMIT):
    """Words of a text."""
    return [word for word in re.findall("[a-z]+", text.lower()) if word not in STOP][:size]


def loose(line, wanted):
    return WEIGHTS["loose"] * sum(word[:3] in line.lower() for word in wanted)


def exact(line, wanted):
    return WEIGHTS["exact"] * len(set(words(line)) & set(wanted))


MODES = {"exact": exact, "loose": loose}


class Shelf:
    """Lines with a mark each."""

    mark = "- "

    def __init__(self):
        self.lines = []

    def __len__(self):
        return len(self.lines)

    def __call__(self, line):
        self.lines.append(self.mark + line)


class Base:
    separator = "\\n"

    def _join(self, lines):
        return self.separator.join(lines)


@dataclass
class MemoryUnit:
    memory_text: str = field(metadata={"description": HINT})
    date: str = field(default="", metadata={"description": "Date of the session"})


@dataclass
class Query:
    query_text: str = field(metadata={"description": "A query for retrieving information relevant to the question"})


class Memory(Base):
    """Keeps lines on a shelf."""

    top = 3
    label = "memory"

    def __init__(self, backend):
        self.backend = backend
        self.shelf = Shelf()
        self.counts = Counter()
        self.by_date = defaultdict(list)

    def index(self, units, raw_text):
        """Put every unit on the shelf."""
        for unit in units:
            self.shelf(getattr(self, "_line")(unit))
            self.counts.update(words(unit.memory_text))
            self.by_date[unit.date].append(len(self.shelf))

    @counted
    def _line(self, unit):
        return f"({unit.date}) {unit.memory_text}" if unit.date else unit.memory_text

    @property
    def title(self):
        return "{0.label}: ".format(self)

    @staticmethod
    def _rare(counts, word):
        return -counts[word]

    def _score(self, line, wanted):
        return sum(mode(line, wanted) for mode in MODES.values())

    def retrieve(self, query):
        wanted = sorted(words(query.query_text, 20), key=lambda word: (self._rare(self.counts, word), word))
        ranked = sorted(self.shelf.lines, key=lambda line: (-self._score(line, wanted), line))
        found = self._join(ranked[: self.top + FIRST - 2])
        return (self.title + found)[:OUT_CHAR_BUDGET] if len(self.shelf) else json.dumps([])
'''
"""A program whose parts are reached in all the ways that Python has: names, attributes, strings, bases, decorators."""


@dataclass(frozen=True)
class Edit:
    """What was done, its kind and the source it gave."""

    kind: str
    name: str
    source: str


Mutation = Callable[[ast.Module, random.Random], bool]


def random_edit(source: str, rng: random.Random, kind: str | None = None) -> Edit:
    """One edit of `source`, of a random kind by default; the new source parses and differs in its text."""
    chosen = kind or rng.choice(KINDS)
    while True:
        name = rng.choice(sorted(EDITS[chosen]))
        edited = EDITS[chosen][name](source, rng)
        if edited is None or edited == source:
            continue
        try:
            parse_module(edited)
        except ProgramError:
            continue
        return Edit(chosen, name, edited)


def _on_tree(mutate: Mutation) -> Callable[[str, random.Random], str | None]:
    def edit(source: str, rng: random.Random) -> str | None:
        tree = parse_module(source)
        if not mutate(tree, rng):
            return None
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"

    return edit


def _pick(found: list[ast.AST], rng: random.Random) -> ast.AST | None:
    return rng.choice(found) if found else None


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)


def _method(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    memory = _class(tree, "Memory")
    inner = [] if memory is None else memory.body
    return next((n for n in inner if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _code(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes of function bodies, docstrings left out."""
    for function in _functions(tree):
        for statement in function.body[bool(ast.get_docstring(function, clean=False)) :]:
            yield from ast.walk(statement)


# Behavioural


def _number(tree: ast.Module, rng: random.Random) -> bool:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) in (int, float)]
    node = _pick(list(found), rng)
    if not isinstance(node, ast.Constant):
        return False
    assert isinstance(node.value, int | float)
    node.value = rng.choice([node.value + 1, node.value * 2, max(0, node.value - 1), 0])
    return True


def _text(tree: ast.Module, rng: random.Random) -> bool:
    inside = {id(v) for n in _code(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    found = [n for n in _code(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in inside]
    node = _pick(list(found), rng)
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
    found = [n for n in _code(tree) if isinstance(n, ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp)]
    node = _pick(list(found), rng)
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
    loops = [n for n in _code(tree) if isinstance(n, ast.For | ast.comprehension)]
    loop = _pick(list(loops), rng)
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
        n for n in _code(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "sorted"
    ]
    node = _pick(list(found), rng)
    if not isinstance(node, ast.Call) or any(keyword.arg == "reverse" for keyword in node.keywords):
        return False
    node.keywords.append(ast.keyword("reverse", ast.Constant(True)))
    return True


def _statements(tree: ast.Module, rng: random.Random) -> bool:
    bodies = [f.body for f in _functions(tree) if len(f.body) > 1]
    bodies += [n.body for n in _code(tree) if isinstance(n, ast.For | ast.If) and n.body]
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
    functions = [f for f in _functions(tree) if f.args.defaults]
    function = _pick(list(functions), rng)
    if not isinstance(function, ast.FunctionDef):
        return False
    names = [n for n in ("LIMIT", "K1", "B", "TOP", "LINES") if any(n in _targets(s) for s in tree.body)]
    new: ast.expr = ast.Constant(rng.randrange(1, 9))
    if names and rng.random() < 0.5:
        new = ast.Name(rng.choice(names), ast.Load())
    function.args.defaults[rng.randrange(len(function.args.defaults))] = new
    return True


def _attribute(tree: ast.Module, rng: random.Random) -> bool:
    memory = _class(tree, "Memory")
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
    retrieve = _method(tree, "retrieve")
    if retrieve is None:
        return False
    name = f"mark_{rng.randrange(4)}"
    memory.body.insert(0, ast.parse(f"{name} = {rng.choice(['> ', '# ', ''])!r}").body[0])
    return _wrap_return(retrieve, f"(self.{name} + X)", rng)


def _rebind(tree: ast.Module, rng: random.Random) -> bool:
    constants = [s for s in tree.body if isinstance(s, ast.Assign) and _targets(s)[0].isupper()]
    node = _pick(list(constants), rng)
    if not isinstance(node, ast.Assign):
        return False
    name = _targets(node)[0]
    line = rng.choice([f"{name} = {name}", f"{name} = ({name}, 1)[0]", f"{name} += {name}", f"print({name})"])
    place = rng.randrange(tree.body.index(node) + 1, len(tree.body) + 1)
    tree.body[place:place] = ast.parse(line).body
    return True


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return [statement.targets[0].id]
    return [""]


def _wrap_return(function: ast.FunctionDef, template: str, rng: random.Random) -> bool:
    """Put the value of one return into `template` in the place of X."""
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    if not returns:
        return False
    node = rng.choice(returns)
    value = node.value
    assert value is not None

    class Put(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return value if name.id == "X" else name

    node.value = Put().visit(ast.parse(template, mode="eval").body)
    return True


def _returned(tree: ast.Module, rng: random.Random) -> bool:
    function = _pick(list(_functions(tree)), rng)
    template = rng.choice(["X[::-1]", "X[1:]", "(X + X)", "(X or None)", "X[:40]"])
    return isinstance(function, ast.FunctionDef) and _wrap_return(function, template, rng)


# Cosmetic


def _comment(source: str, rng: random.Random) -> str:
    lines = source.splitlines()
    places = [i for i, line in enumerate(lines) if line.endswith(":") and not line.lstrip().startswith(('"', "#"))]
    if not places:
        return f"# note {rng.randrange(99)}\n{source}"
    place = rng.choice(places)
    lines[place] += f"  # note {rng.randrange(99)}"
    return "\n".join(lines) + "\n"


def _blank(source: str, rng: random.Random) -> str:
    lines = source.splitlines()
    # Not inside a text of several lines.
    places = [i for i, line in enumerate(lines) if line.startswith(("def ", "class ", "@"))]
    place = rng.choice(places)
    while place and lines[place - 1].startswith("@"):
        place -= 1
    return "\n".join([*lines[:place], "", f"# {rng.randrange(99)}", *lines[place:]]) + "\n"


def _relaid(source: str, rng: random.Random) -> str:
    return ast.unparse(parse_module(source)) + "\n" * rng.randrange(1, 4)


def _module_docstring(source: str, rng: random.Random) -> str:
    tree = parse_module(source)
    if ast.get_docstring(tree) is not None:
        del tree.body[0]
    return f'"""Version {rng.randrange(99)}."""\n' + ast.unparse(tree) + "\n"


def _docstring(tree: ast.Module, rng: random.Random) -> bool:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    node = _pick(list(found), rng)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    if ast.get_docstring(node, clean=False) is not None and len(node.body) > 1:
        del node.body[0]
    if rng.random() < 0.8:
        node.body.insert(0, ast.Expr(ast.Constant(f"Note {rng.randrange(99)} about memory and retrieve.")))
    return True


def _local(tree: ast.Module, rng: random.Random) -> bool:
    function = _pick(list(_functions(tree)), rng)
    assert isinstance(function, ast.FunctionDef)
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if not stored:
        return False
    old = rng.choice(sorted(stored))
    new = f"{old}_{rng.randrange(9)}"
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return True


def _reordered(tree: ast.Module, rng: random.Random) -> bool:
    bodies = [tree.body]
    memory = _class(tree, "Memory")
    if memory is not None:
        bodies.append(memory.body)
    body = rng.choice(bodies)
    movable = [i for i, s in enumerate(body) if isinstance(s, ast.FunctionDef | ast.Assign)]
    if len(movable) < 2:
        return False
    one, other = rng.sample(movable, 2)
    body[one], body[other] = body[other], body[one]
    return True


# Helpers


def _new_helper(tree: ast.Module, rng: random.Random) -> bool:
    """A function or member that one of the methods reaches in one of many ways, dynamic ones among them."""
    number = rng.randrange(6)
    helper, member = f"helper_{number}", f"_member_{number}"
    memory, user = _class(tree, "Memory"), _method(tree, rng.choice(["retrieve", "retrieve", "index", "__init__"]))
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
        return _wrap_return(user, way, rng)
    line = "self.notes = " if user.name == "__init__" else "raw_text = "
    user.body.append(ast.parse(line + way.replace("X", "'note'" if user.name == "__init__" else "raw_text")).body[0])
    retrieve = _method(tree, "retrieve")
    if user.name == "__init__" and retrieve is not None:
        return _wrap_return(retrieve, "(self.notes + X)", rng)
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
    functions = [f for f in _functions(tree) if not f.decorator_list and f.name != "__init__"]
    function = _pick(list(functions), rng)
    if not isinstance(function, ast.FunctionDef):
        return False
    number = rng.randrange(4)
    body = rng.choice(["return f(*a, **k)", "r = f(*a, **k)\n        return r[1:] if isinstance(r, str) else r"])
    source = f"def wrap_{number}(f):\n    def inner(*a, **k):\n        {body}\n    return inner"
    tree.body[0:0] = ast.parse(source).body
    function.decorator_list.append(ast.Name(f"wrap_{number}", ast.Load()))
    return True


def _helper_body(tree: ast.Module, rng: random.Random) -> bool:
    top = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    memory = _class(tree, "Memory")
    inner = [s for s in (memory.body if memory else []) if isinstance(s, ast.FunctionDef)]
    own = [s for s in inner if s.name not in ("__init__", "index", "retrieve")]
    function = _pick([*top, *own], rng)
    if not isinstance(function, ast.FunctionDef):
        return False
    return _wrap_return(function, rng.choice(["X[::-1]", "(X, X)[1]", "X[:3]", "(X or X)"]), rng)


def _special(tree: ast.Module, rng: random.Random) -> bool:
    memory, retrieve = _class(tree, "Memory"), _method(tree, "retrieve")
    if memory is None or retrieve is None:
        return False
    name = rng.choice(["__len__", "__getattr__", "__call__"])
    arguments = {"__len__": "self", "__getattr__": "self, name", "__call__": "self, *a"}[name]
    value = rng.randrange(9)
    memory.body.append(ast.parse(f"def {name}({arguments}):\n    return {value}").body[0])
    use = {"__len__": "str(len(self))", "__getattr__": "str(self.absent)", "__call__": "str(self())"}[name]
    return _wrap_return(retrieve, f"({use} + X)", rng)


def _inherited(tree: ast.Module, rng: random.Random) -> bool:
    memory, retrieve = _class(tree, "Memory"), _method(tree, "retrieve")
    if memory is None or retrieve is None:
        return False
    name = f"Base_{rng.randrange(3)}"
    source = f"class {name}:\n    def _given(self):\n        return {rng.choice(['', 'x', '> '])!r}"
    tree.body[0:0] = ast.parse(source).body
    memory.bases = [ast.Name(name, ast.Load()), *memory.bases]
    return _wrap_return(retrieve, "(self._given() + X)", rng)


def _shared_state(tree: ast.Module, rng: random.Random) -> bool:
    """Module-level state that statements change behind the back of their names."""
    retrieve = _method(tree, "retrieve")
    if retrieve is None:
        return False
    number, amount = rng.randrange(3), rng.randrange(1, 4)
    state = f"STATE_{number}"
    source = rng.choice(
        [
            f"{state} = ['a', 'b', 'c', 'd', 'e']\nDONE = [{state}.pop() for _ in range({amount})]",
            f"from collections import deque\n{state} = deque('abcdef')\nDONE = deque.rotate({state}, {amount})",
            f"import re\n{state} = re.finditer('.', 'abcdef')\nDONE = list(zip('xyz'[:{amount}], {state}))",
            f"{state} = []\nDONE = sorted('abcdef'[:{amount}], key={state}.append)",
            f"{state} = list('abc')\nDONE = {state}.__setitem__(0, '{amount}')",
            f"class Memory_:\n    size = {amount}\n{state} = 'abcdef'[:Memory_.size]",
        ]
    )
    tree.body[0:0] = ast.parse(source).body
    return _wrap_return(retrieve, f"(str([getattr(x, 'group', str)() or x for x in {state}]) + X)", rng)


# Schemas and instructions


def _schema(tree: ast.Module, rng: random.Random) -> bool:
    schema = _class(tree, rng.choice(["MemoryUnit", "Query"]))
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
    found = [s for s in tree.body if name in _targets(s)]
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


EDITS: dict[str, dict[str, Callable[[str, random.Random], str | None]]] = {
    "behavioural": {
        "number": _on_tree(_number),
        "text": _on_tree(_text),
        "operator": _on_tree(_operator),
        "slice": _on_tree(_slice),
        "sort": _on_tree(_sort),
        "statements": _on_tree(_statements),
        "default argument": _on_tree(_default),
        "class attribute": _on_tree(_attribute),
        "rebinding": _on_tree(_rebind),
        "returned value": _on_tree(_returned),
    },
    "cosmetic": {
        "comment": _comment,
        "blank lines": _blank,
        "layout": _relaid,
        "module docstring": _module_docstring,
        "docstring": _on_tree(_docstring),
        "local name": _on_tree(_local),
        "order": _on_tree(_reordered),
    },
    "helper": {
        "new helper": _on_tree(_new_helper),
        "unused helper": _on_tree(_unused_helper),
        "decorator": _on_tree(_decorated),
        "helper body": _on_tree(_helper_body),
        "special method": _on_tree(_special),
        "base class": _on_tree(_inherited),
        "shared state": _on_tree(_shared_state),
    },
    "schema": {"schema": _on_tree(_schema)},
    "instruction": {"instruction": _on_tree(_instruction)},
}
