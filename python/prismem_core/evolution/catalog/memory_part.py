"""Source of the `Memory` class of a catalogue program and of the helpers that turn units into lines and scores into
ranks.
"""

from __future__ import annotations

from prismem_core.evolution.catalog import lexical_part
from prismem_core.evolution.catalog.features import Features

SEED_MEMORY = """\
class Memory:
    def __init__(self, backend):
        self.backend = backend
        self.memories: list[str] = []

    def index(self, units: list[MemoryUnit], raw_text: str) -> None:
        self.memories.extend(unit.memory_text for unit in units)

    def retrieve(self, query: Query) -> str:
        return "\\n".join(self.memories)[:OUT_CHAR_BUDGET]
"""

STANDARD = '''\
def standard(scores: np.ndarray) -> np.ndarray:
    """Scores in standard deviations from their mean."""
    return (scores - scores.mean()) / (scores.std() + 1e-9)
'''

RECIPROCAL = '''\
def reciprocal(scores: np.ndarray) -> np.ndarray:
    """One over the softened rank of every score."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return 1 / (RANK_OFFSET + ranks)
'''

RANKS = '''\
def ranks(scores: np.ndarray) -> np.ndarray:
    """The place of every score, 1 for the best."""
    places = np.empty(len(scores))
    places[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return places
'''

SMOOTHED = '''\
def smoothed(scores: np.ndarray) -> np.ndarray:
    """Scores raised by a share of those of the units before and after: an answer stands beside its question."""
    padded = np.pad(scores, 1, mode="edge")
    return scores + SMOOTHING * (padded[:-2] + padded[2:])
'''

SPREAD = '''\
def spread(scores: np.ndarray, sessions: list[int]) -> np.ndarray:
    """Scores lowered for each better unit of the same session, so that several sessions have their say."""
    better: dict[int, int] = {}
    counts = np.zeros(len(scores))
    for position in np.argsort(-scores, kind="stable").tolist():
        counts[position] = better.get(sessions[position], 0)
        better[sessions[position]] = better.get(sessions[position], 0) + 1
    return scores - SESSION_PENALTY * scores.std() * counts
'''

WITH_NEIGHBOURS = {
    "first": '''\
def with_neighbours(ranking: list[int], total: int) -> list[int]:
    """The ranking with the units before and after each of the first hits around it, as they were said."""
    order: dict[int, None] = {}
    for rank, position in enumerate(ranking):
        around = (position - 1, position, position + 1) if rank < NEIGHBOURS_OF_FIRST else (position,)
        order.update((near, None) for near in around if 0 <= near < total)
    return list(order)
''',
    "all": '''\
def with_neighbours(ranking: list[int], total: int) -> list[int]:
    """The ranking with the units before and after every hit around it, as they were said."""
    order: dict[int, None] = {}
    for position in ranking:
        order.update((near, None) for near in (position - 1, position, position + 1) if 0 <= near < total)
    return list(order)
''',
}

PACK = '''\
    def _pack(self, ranking: list[int], budget: int) -> list[int]:
        """The best units whose lines fit the budget, line breaks included."""
        chosen, used = [], 0
        for position in ranking:
            cost = len(line(self.units[position])) + 1
            if used + cost <= budget:
                chosen.append(position)
                used += cost
            elif budget - used < SLACK:
                break
        return chosen
'''

DIVERSE = '''\
    def _diverse(self, ranking: list[int], scores: np.ndarray) -> list[int]:
        """Maximal marginal relevance over the best hits: what resembles a hit already taken waits."""
        pool = ranking[:MMR_POOL]
        vectors = np.concatenate(self.vectors)[pool]
        likeness = (1 - MMR_RELEVANCE) * vectors @ vectors.T
        relevance = (scores[pool] - scores[pool[-1]]) / (scores[pool[0]] - scores[pool[-1]] + 1e-9)
        worth, closest = MMR_RELEVANCE * relevance, np.zeros(len(pool))
        order = []
        for _ in pool:
            best = int(np.argmax(worth - closest))
            order.append(pool[best])
            worth[best] = -np.inf
            closest = np.maximum(closest, likeness[best])
        return order + ranking[MMR_POOL:]
'''

OUTLINE = '''\
    def _outline(self) -> list[str]:
        """One line a session with its commonest topics, as many as fit their budget."""
        lines, used = [], 0
        for session in dict.fromkeys(self.sessions):
            members = [unit for unit, own in zip(self.units, self.sessions) if own == session]
            topics = Counter(topic for unit in members for topic in unit.topics[:3])
            text = "Topics: " + ", ".join(" ".join(topic.split()) for topic, _ in topics.most_common(5))
            lines.append({text})
            used += len(lines[-1]) + 1
            if used > OUTLINE_BUDGET:
                return lines[:-1]
        return lines
'''


def functions(f: Features) -> list[str]:
    """Module-level helpers in the order in which they stand."""
    found = []
    if f.ranked or f.dates or f.anonymous or f.event_dates or f.outline:
        found.append(_line(f))
    if f.topics:
        found.append(MATCHED)
    if f.hybrid:
        found.append({"zscore": STANDARD, "reciprocal": RECIPROCAL, "best": RANKS}[f.fusion])
    if f.time_hint:
        found.append(SAME_TIME)
    if f.smoothing:
        found.append(SMOOTHED)
    if f.diversity == "sessions":
        found.append(SPREAD)
    if f.neighbours != "none":
        found.append(WITH_NEIGHBOURS[f.neighbours])
    return found


MATCHED = '''\
def matched(unit: MemoryUnit) -> str:
    """What queries are matched with: the text and its topics."""
    return " ".join([unit.memory_text, *unit.topics])
'''

SAME_TIME = '''\
def same_time(unit: MemoryUnit, hint: str) -> float:
    """Share of the hint's names of months and years that the unit's date holds."""
    words = re.findall(r"[a-z]{3,}|[0-9]+", hint.lower())
    dated = re.findall(r"[a-z]{3,}|[0-9]+", unit.session_date.lower())
    return sum(word in dated for word in words) / max(len(words), 1)
'''


def _line(f: Features) -> str:
    lines = ["def line(unit: MemoryUnit) -> str:", '    """The unit as one line of the retrieved text."""']
    lines.append('    text = " ".join(unit.memory_text.split())')
    if f.anonymous:
        lines.append('    text = text.partition(": ")[2] or text')
    if f.event_dates:
        lines.append('    if unit.event_date not in ("", unit.session_date):')
        lines.append('        text = f"{text} ({unit.event_date})"')
    lines.append(
        '    return f"[{unit.session_date}] {text}" if unit.session_date else text' if f.dates else "    return text"
    )
    return "\n".join(lines)


def memory(f: Features) -> str:
    """The `Memory` class of a design that is not the seed's."""
    parts = [_init(f), _index(f), _retrieve(f)]
    if f.ranked:
        parts.append(_scores(f))
    if f.dense:
        parts.append(_dense(f))
    if f.lexical != "none":
        parts.append(lexical_part.BM25)
        parts.append(lexical_part.STEMMED_TERMS if f.lexical == "stemmed" else lexical_part.PLAIN_TERMS)
    if f.diversity == "mmr":
        parts.append(DIVERSE)
    if f.outline:
        dated = 'f"[{members[0].session_date}] {text}"' if f.dates else "text"
        parts.append(OUTLINE.replace("{text}", dated))
    if f.ranked:
        parts.append(PACK)
    return "class Memory:\n" + "\n".join(parts)


def _init(f: Features) -> str:
    lines = ["    def __init__(self, backend):", "        self.backend = backend"]
    lines.append("        self.units: list[MemoryUnit] = []")
    if f.outline or f.diversity == "sessions":
        lines.append("        self.sessions: list[int] = []  # the number of each unit's session")
    if f.dense:
        lines.append("        self.vectors: list[np.ndarray] = []  # one matrix a call of index, a row for every unit")
    if f.lexical != "none":
        lines.append("        self.postings: dict[str, list[tuple[int, int]]] = {}  # term -> (unit, how often)")
        lines.append("        self.lengths: list[int] = []")
    if f.lexical == "stemmed":
        lines.append("        self.stems: dict[str, str] = {}")
    return "\n".join(lines) + "\n"


def _index(f: Features) -> str:
    lines = ["    def index(self, units: list[MemoryUnit], raw_text: str) -> None:"]
    text = "matched(unit)" if f.topics else "unit.memory_text"
    if f.lexical != "none":
        lines.append("        first = len(self.units)")
    if f.outline or f.diversity == "sessions":
        lines.append("        session = self.sessions[-1] + 1 if self.sessions else 0")
        lines.append("        self.sessions.extend(session for _ in units)")
    lines.append("        self.units.extend(units)")
    if f.ranked:
        lines.append(f"        texts = [{text} for unit in units]")
    if f.dense:
        lines.append("        if texts:")
        if f.window:
            lines.append("            # A reply is understood with the words before it.")
            lines.append(
                '            windows = [f"{before} {text}".strip() for before, text in zip(["", *texts], texts)]'
            )
            lines.append("            self.vectors.append(self.backend.embed(windows))")
        else:
            lines.append("            self.vectors.append(self.backend.embed(texts))")
    if f.lexical != "none":
        lines.append("        for position, text in enumerate(texts, first):")
        lines.append("            terms = self._terms(text)")
        lines.append("            self.lengths.append(len(terms))")
        lines.append("            for term, count in Counter(terms).items():")
        lines.append("                self.postings.setdefault(term, []).append((position, count))")
    return "\n".join(lines) + "\n"


def _retrieve(f: Features) -> str:
    lines = ["    def retrieve(self, query: Query) -> str:"]
    if not f.ranked:
        if f.outline:
            lines.append("        lines = [*self._outline(), *(line(unit) for unit in self.units)]")
            lines.append('        return "\\n".join(lines)[:OUT_CHAR_BUDGET]')
        else:
            lines.append('        return "\\n".join(line(unit) for unit in self.units)[:OUT_CHAR_BUDGET]')
        return "\n".join(lines) + "\n"
    lines += ["        if not self.units:", '            return ""', "        scores = self._scores(query)"]
    lines.append('        ranking = np.argsort(-scores, kind="stable").tolist()')
    if f.floor is not None:
        lines.append("        needed = scores.mean() + FLOOR * scores.std()")
        lines.append("        ranking = [position for position in ranking if scores[position] >= needed] or ranking")
    if f.diversity == "mmr":
        lines.append("        ranking = self._diverse(ranking, scores)")
    if f.neighbours != "none":
        lines.append("        ranking = with_neighbours(ranking, len(self.units))")
    if f.cap:
        lines.append("        ranking = ranking[:MOST_UNITS]")
    if f.standing:
        lines.append("        standing = [position for position in ranking if self.units[position].standing]")
        lines.append("        ranking = list(dict.fromkeys(self._pack(standing, STANDING_BUDGET) + ranking))")
    if f.outline:
        lines.append("        outline = self._outline()")
        lines.append("        left = OUT_CHAR_BUDGET - sum(len(text) + 1 for text in outline)")
        lines.append("        chosen = self._pack(ranking, left)")
    else:
        lines.append("        chosen = self._pack(ranking, OUT_CHAR_BUDGET)")
    if f.order == "time":
        lines.append("        chosen.sort()")
    units = (
        "[*outline, *(line(self.units[position]) for position in chosen)]"
        if f.outline
        else ("line(self.units[position]) for position in chosen")
    )
    lines.append(f'        return "\\n".join({units})')
    return "\n".join(lines) + "\n"


def _scores(f: Features) -> str:
    lines = [
        "    def _scores(self, query: Query) -> np.ndarray:",
        '        """How well every unit answers the query."""',
    ]
    many = f.sub_queries != "none" or f.negation
    if f.sub_queries != "none":
        lines.append("        texts = list(dict.fromkeys([query.query_text, *query.sub_queries]))[:MOST_QUERIES]")
        if f.negation:
            lines.append("        texts += [query.negated] if query.negated else []")
    elif f.negation:
        lines.append("        texts = [query.query_text, query.negated] if query.negated else [query.query_text]")
    reduce = "mean" if f.sub_queries == "mean" else "max"
    dense = "self._dense(texts)" if many else "self._dense(query.query_text)"
    words = '" ".join(query.keywords) or query.query_text' if f.keywords else "query.query_text"
    if many:
        extra = ', " ".join(query.keywords)' if f.keywords else ""
        listed = f"[*texts{extra}]" if f.keywords else "texts"
        lexical = f"np.{reduce}([self._lexical(text) for text in {listed}], axis=0)"
    else:
        lexical = f"self._lexical({words})"
    if f.hybrid:
        lines += [f"        dense = {dense}", f"        lexical = {lexical}"]
        fused = {
            "zscore": "DENSE_WEIGHT * standard(dense) + (1 - DENSE_WEIGHT) * standard(lexical)",
            "reciprocal": "reciprocal(dense) + reciprocal(lexical)",
            "best": "-np.minimum(ranks(dense), ranks(lexical))",
        }[f.fusion]
    else:
        fused = dense if f.dense else lexical
    lines.append(f"        scores = {fused}")
    lines += _boosts(f)
    if f.smoothing:
        lines.append("        scores = smoothed(scores)")
    if f.diversity == "sessions":
        lines.append("        scores = spread(scores, self.sessions)")
    if lines[-1].startswith("        scores = "):
        lines[-1] = lines[-1].replace("scores = ", "return ", 1)
    else:
        lines.append("        return scores")
    return "\n".join(lines) + "\n"


def _boosts(f: Features) -> list[str]:
    lines = []
    if f.people:
        lines.append("        people = {name.lower() for name in query.people}")
        lines.append("        said = np.array([unit.speaker.lower() in people for unit in self.units])")
        lines.append("        scores = scores + PEOPLE_BOOST * scores.std() * said")
    if f.time_hint:
        lines.append("        if query.time_hint:")
        lines.append("            timely = np.array([same_time(unit, query.time_hint) for unit in self.units])")
        lines.append("            scores = scores + TIME_BOOST * scores.std() * timely")
    if f.recency:
        lines.append("        scores = scores + RECENCY * scores.std() * np.linspace(0, 1, len(scores))")
    if f.advice:
        lines.append("        if query.asks_advice:")
        lines.append("            standing = np.array([unit.standing for unit in self.units])")
        lines.append("            scores = scores + ADVICE_BOOST * scores.std() * standing")
    return lines


def _dense(f: Features) -> str:
    if f.sub_queries == "none" and not f.negation:
        return (
            "    def _dense(self, text: str) -> np.ndarray:\n"
            '        """Cosine of every unit with the text."""\n'
            "        return np.concatenate(self.vectors) @ self.backend.embed([text])[0]\n"
        )
    reduce, word = ("mean", "mean") if f.sub_queries == "mean" else ("max", "best")
    return (
        "    def _dense(self, texts: list[str]) -> np.ndarray:\n"
        f'        """The {word} cosine of every unit with the texts."""\n'
        f"        return (np.concatenate(self.vectors) @ self.backend.embed(texts).T).{reduce}(axis=1)\n"
    )
