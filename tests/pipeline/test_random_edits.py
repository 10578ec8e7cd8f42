"""Thousands of random edits: whatever reuse shares, every stage gives what a run with an empty cache gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from prismem_core.errors import ProgramError
from prismem_core.pipeline import keys
from prismem_core.pipeline.explanation import explain_reuse
from prismem_core.program import library
from prismem_core.program.components import STAGES, restart_stage, stage_digests
from prismem_core.program.program import Program
from prismem_core.program.sandbox import Sandbox

from .conftest import World
from .edits import KINDS, random_edit
from .edits.dispatching import DISPATCHING
from .test_reuse import DENSE

BASES = (
    DISPATCHING,
    DENSE,
    *(library.source(name) for name in ("seed", "naive_rag_dates", "bm25_rag", "full_context")),
)
MODES = ("content", "paper")
GENERATION = 5
"""Edits on top of each other before a program starts again from its base."""


def outcome(world: World, source: str, reuse: str) -> tuple[Any, ...]:
    """Everything that the stages of a run gave, or why the program could not be run."""
    try:
        result = world.lasting(reuse).run(Program(source), world.histories, world.questions)
    except ProgramError as error:
        return error.code, str(error), error.line
    units = {name: history.units for name, history in result.histories.items()}
    return units, result.traces, result.usage.to_dict()


def paid(world: World) -> Counter[str]:
    """Work since the last look: model calls by purpose, texts embedded, memories and retrieved texts that are new."""
    done = Counter(world.calls())
    done.update({stage: world.cache.fresh[stage] for stage in ("index", "retrieve")})
    world.cache.fresh.clear()
    return +done


REUSED_PAYS_NOTHING_FOR = {
    "extraction": ("extract",),
    "indexing": ("index",),
    "planning": ("plan",),
    "retrieval": ("retrieve",),
    "answer": ("answer",),
}


def claims(world: World, parent: str, candidate: str) -> dict[str, list[str]]:
    """By mode, what the explanation says the candidate will not pay for."""
    programs = Program(parent), Program(candidate)
    shown = [world.pipeline().interface(program) for program in programs]
    explanation = explain_reuse(*programs, *shown, MODES)
    spared = {}
    for mode in explanation.modes:
        assert all(stage.why for stage in mode.stages)
        reused = [stage.stage for stage in mode.stages if stage.state == "reused" and stage.stage != "segmentation"]
        spared[str(mode.mode)] = [what for stage in reused for what in REUSED_PAYS_NOTHING_FOR[stage]]
        if mode.start is None:
            spared[str(mode.mode)].append("embed")
    return spared


class Trials:
    """Runs edit after edit with warm caches, one a mode, beside an empty one."""

    def __init__(self, sandbox: Sandbox, seed: int) -> None:
        self.sandbox = sandbox
        self.rng = random.Random(seed)
        self.warm = {mode: World(sandbox) for mode in MODES}
        self.work = {mode: Counter[str]() for mode in ("cold", *MODES)}
        self.kinds: Counter[str] = Counter()
        self.claims: Counter[str] = Counter()
        self.running = 0

    def run(self, count: int) -> None:
        """Try `count` edits, each kind as often as the others."""
        generation: list[tuple[str, str]] = []
        for number in range(count):
            if not generation:
                base = BASES[number // GENERATION % len(BASES)]
                for mode in MODES:
                    outcome(self.warm[mode], base, mode)
                    paid(self.warm[mode])
                generation = [("base", base)]
            edit = random_edit(generation[-1][1], self.rng, KINDS[number % len(KINDS)])
            self.kinds[edit.kind] += 1
            generation.append((f"{edit.kind}: {edit.name}", edit.source))
            sound = self.compare(generation)
            if not sound:
                generation.pop()
            if len(generation) > GENERATION:
                generation = []

    def compare(self, generation: list[tuple[str, str]]) -> bool:
        """Whether the newest program loads; its outcomes must not depend on what the caches hold."""
        source = generation[-1][1]
        story = " > ".join(name for name, _ in generation)
        cold = World(self.sandbox)
        expected = outcome(cold, source, "content")
        work = {"cold": paid(cold)}
        loads = len(expected) == 3 and isinstance(expected[0], dict)
        parent = generation[-2][1]
        self.check_table6(parent, source, story)
        spared = claims(cold, parent, source) if loads else {}
        for mode in MODES:
            found = outcome(self.warm[mode], source, mode)
            assert found == expected, f"stale in mode {mode} after {story}:\n{source}"
            work[mode] = paid(self.warm[mode])
            broken = [what for what in spared.get(mode, ()) if work[mode][what]]
            assert not broken, f"{broken} said to be reused in mode {mode} after {story}:\n{source}"
            self.claims[mode] += len(spared.get(mode, ()))
        for what in work["content"]:
            assert work["content"][what] <= work["paper"][what], f"{what} after {story}:\n{source}"
        for name, done in work.items():
            self.work[name].update(done)
        self.running += loads
        return loads

    def check_table6(self, parent: str, source: str, story: str) -> None:
        """Digests of paper mode are shared exactly before the stage at which Table 6 begins."""
        start = restart_stage(parent, source)
        before, after = stage_digests(parent), stage_digests(source)
        for stage in before:
            shared = start is None or STAGES.index(start) > STAGES.index(stage)
            assert shared == (before[stage] == after[stage]), f"{stage} after {story}:\n{source}"

    def summary(self) -> str:
        """Shares of the work of empty caches that each mode was spared."""
        lines = [f"{sum(self.kinds.values())} edits, {self.running} of them programs that load"]
        for what, whole in sorted(self.work["cold"].items()):
            shares = ", ".join(f"{mode} {1 - self.work[mode][what] / whole:.1%}" for mode in MODES)
            lines.append(f"{what}: {whole} without reuse; reused: {shares}")
        return "\n".join(lines)


def test_random_edits_give_what_a_cold_run_gives(shared_sandbox: Sandbox) -> None:
    trials = Trials(shared_sandbox, seed=1)
    trials.run(60)
    assert set(trials.kinds) == set(KINDS)
    assert trials.running > 30
    assert trials.claims["content"] > trials.claims["paper"] > 30
    assert trials.work["content"].total() < trials.work["paper"].total() < trials.work["cold"].total()


@pytest.fixture
def no_kept_keys() -> Iterator[None]:
    keys.stage_keys.cache_clear()
    yield
    keys.stage_keys.cache_clear()


@pytest.mark.usefixtures("no_kept_keys")
def test_keys_that_miss_a_part_of_the_code_would_be_noticed(
    shared_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "code_digest", lambda source, roots: "one for all")
    with pytest.raises(AssertionError, match="stale in mode content"):
        Trials(shared_sandbox, seed=2).run(60)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_random_edits_give_what_cold_runs_give(shared_sandbox: Sandbox, part: int) -> None:
    trials = Trials(shared_sandbox, seed=100 + part)
    trials.run(250)
    print(trials.summary())
    assert trials.work["content"].total() < trials.work["paper"].total() < trials.work["cold"].total()
