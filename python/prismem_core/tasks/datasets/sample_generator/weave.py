"""Weaves a story and small talk into the conversation and questions of the sample set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prismem_core.tasks.capability import CAPABILITIES, Capability
from prismem_core.tasks.datasets.jsonl import write_jsonl
from prismem_core.tasks.datasets.labels import secondary_labels
from prismem_core.tasks.datasets.sample_generator.grammar import Draw, Exchange, parse_exchanges
from prismem_core.tasks.datasets.sample_generator.story import Story, parse_story, spelled_time
from prismem_core.tasks.datasets.splits import PARTS
from prismem_core.tasks.history import History, Session, Turn
from prismem_core.tasks.task import Dataset, Task

HERE = Path(__file__).parent
# Small talk is added until a session has this many turns; which one is drawn for each session.
TURNS = (27, 28, 29, 30)


def generate() -> Dataset:
    """The sample set, the same on every machine."""
    exchanges = [
        exchange
        for name in ("smalltalk.txt", "hearsay.txt")
        for exchange in parse_exchanges((HERE / name).read_text(encoding="utf-8"))
    ]
    stories = [parse_story(path.read_text(encoding="utf-8")) for path in sorted((HERE / "stories").glob("*.txt"))]
    stories.sort(key=lambda story: PARTS.index(story.part))
    histories: dict[str, History] = {}
    tasks: list[Task] = []
    for story in stories:
        history, ids = weave(story, exchanges)
        histories[story.id] = history
        tasks += _tasks(story, history, ids)
    split = {part: tuple(story.id for story in stories if story.part == part) for part in PARTS}
    return Dataset("sample", histories, tuple(tasks), digest="", default_split=split)


def write(path: Path) -> None:
    """Write the sample set as JSON Lines."""
    write_jsonl(generate(), path)


def weave(story: Story, exchanges: Sequence[Exchange]) -> tuple[History, Mapping[str, str]]:
    """The history of a story and the turn id of each tag; a bit of small talk is used at most once in it."""
    draw = Draw(story.id)
    bits = draw.shuffled([bit for bit in exchanges if bit.kind == "bit" and bit.name not in story.avoid])
    opens = _Rota(draw, [exchange for exchange in exchanges if exchange.kind == "open"])
    closes = _Rota(draw, [exchange for exchange in exchanges if exchange.kind == "close"])
    sessions: list[Session] = []
    ids: dict[str, str] = {}
    for number, told in enumerate(story.sessions, 1):
        goal = draw.choice(TURNS) - 4
        length = sum(len(scene) for scene in told.scenes)
        gaps: list[list[tuple[str, str]]] = [[] for _ in range(len(told.scenes) + 1)]
        # Gaps are filled in drawn order, so that small talk may lead, part or follow the scenes.
        order = draw.shuffled(range(len(gaps)))
        while length < goal and bits:
            if not order:
                order = draw.shuffled(range(len(gaps)))
            said = bits.pop().render(draw, *_pair(draw, story.people))
            gaps[order.pop()] += said
            length += len(said)
        lines = [(speaker, text, None) for speaker, text in opens.next().render(draw, *_pair(draw, story.people))]
        turns: list[tuple[str, str, str | None]] = [*lines]
        for position, gap in enumerate(gaps):
            turns += [(speaker, text, None) for speaker, text in gap]
            if position < len(told.scenes):
                turns += [(line.speaker, line.text, line.tag) for line in told.scenes[position]]
        turns += [(speaker, text, None) for speaker, text in closes.next().render(draw, *_pair(draw, story.people))]
        for index, (_, _, tag) in enumerate(turns, 1):
            if tag:
                ids[tag] = f"D{number}:{index}"
        sessions.append(
            Session(
                str(number),
                spelled_time(told.time),
                tuple(Turn(f"D{number}:{index}", speaker, text) for index, (speaker, text, _) in enumerate(turns, 1)),
            )
        )
    return History(story.id, tuple(sessions)), ids


class _Rota:
    """Draws exchanges so that each is used before one is used again."""

    def __init__(self, draw: Draw, exchanges: Sequence[Exchange]) -> None:
        self._draw = draw
        self._exchanges = exchanges
        self._left: list[Exchange] = []

    def next(self) -> Exchange:
        self._left = self._left or self._draw.shuffled(self._exchanges)
        return self._left.pop()


def _pair(draw: Draw, people: tuple[str, str]) -> tuple[str, str]:
    """The two people, the one who begins first."""
    first = draw.below(2)
    return people[first], people[1 - first]


def _tasks(story: Story, history: History, ids: Mapping[str, str]) -> list[Task]:
    texts = {turn.id: turn.text for session in history.sessions for turn in session.turns}
    tasks = []
    for position, question in enumerate(story.questions):
        cited = tuple(sorted((ids[tag] for tag in question.tags), key=_place))
        listed = question.capability is Capability.MULTI_SESSION_SYNTHESIS
        sessions = [turn_id.partition(":")[0] for turn_id in cited]
        implied = secondary_labels(question.text, sessions, question.capability)
        metric = "abstention" if question.answer is None else "f1_multi" if listed else "f1"
        tasks.append(
            Task(
                id=f"{story.id}/q{position:03d}",
                history_id=story.id,
                question=question.text,
                reference=question.answer or "",
                evidence=tuple(texts[turn_id] for turn_id in cited),
                native_type=question.capability.value,
                primary=question.capability,
                secondary=_canonical(dict.fromkeys((*question.secondary, *implied))),
                metric=metric,
                evidence_ids=cited,
                labelled=True,
            )
        )
    return tasks


def _canonical(labels: Iterable[Capability]) -> tuple[Capability, ...]:
    """The first two labels, in canonical order."""
    chosen = list(labels)[:2]
    return tuple(capability for capability in CAPABILITIES if capability in chosen)


def _place(turn_id: str) -> tuple[int, int]:
    """Sort key of `D3:12`: session, then turn."""
    session, _, turn = turn_id[1:].partition(":")
    return int(session), int(turn)
