"""A world of the simulation: tasks, what a program scores on them and what an evaluation shows of that.

A program is a point, its skills (C,) in the canonical order of capabilities. Arrays of tasks are (n, ...) in task-list
order. docs/simulation.md states the model and where each number comes from.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prismem_core.errors import ArgumentError
from prismem_core.tasks.capability import CAPABILITIES
from prismem_core.tasks.task import Task

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TRAIN = (20, 43, 32, 33, 32)
VALID = (18, 32, 24, 22, 24)
POPULATION = (700, 2100, 1400, 1400, 1400)
SEED_SKILL = 0.35
LEAST, MOST = 0.01, 0.99
# Streams of chance; the engine's own begin with the seed instead, and the designer's come out of those.
_WORLD, _POPULATION, _NOISE = 1_000_001, 1_000_002, 1_000_003


@dataclass(frozen=True)
class Rates:
    """The parameters of the model; the defaults are those of the main study."""

    tradeoffs: float = 0.86
    success: float = 0.5
    smallest: float = 0.03
    largest: float = 0.14
    two_hurt: float = 0.5
    general: float = 0.0
    plain_share: float = 0.5
    secondaries: tuple[float, float, float] = (0.3, 0.5, 0.2)
    secondary_difficulty: float = -1.0
    difficulty_deviation: float = 1.0
    seed_deviation: float = 1.4
    noise: float = 0.1
    label_noise: float = 0.1
    misreading: float = 0.2
    least_fidelity: float = 0.5
    blind_factor: float = 0.5
    interference: float = 0.0

    def __post_init__(self) -> None:
        """ArgumentError for a share outside [0, 1] or chances of secondaries that do not add up to 1."""
        shares = ("tradeoffs", "success", "two_hurt", "general", "plain_share", "noise", "label_noise", "misreading")
        for name in (*shares, "least_fidelity", "blind_factor", "interference"):
            if not 0 <= getattr(self, name) <= 1:
                raise ArgumentError(f"{name}: expected a share in [0, 1], got {getattr(self, name)!r}")
        if min(self.secondaries) < 0 or abs(sum(self.secondaries) - 1) > 1e-9:
            raise ArgumentError(f"secondaries: expected three chances that add up to 1, got {self.secondaries}")


@dataclass(frozen=True)
class TaskSet:
    """Primaries (n,), needed capabilities (n, C) and difficulties (n, C), -inf where a capability is not needed."""

    primary: Ints
    needs: Bools
    difficulty: Floats

    def margins(self, skills: Floats) -> Floats:
        """How far each needed capability lies above its difficulty, in logits; inf where it is not needed; (n, C)."""
        return np.log(skills / (1.0 - skills)) - self.difficulty

    def expected(self, skills: Floats) -> Floats:
        """Expected scores: the capability that is met worst decides; (n,)."""
        return np.asarray(1.0 / (1.0 + np.exp(-self.margins(skills).min(axis=1))))

    def roots(self, skills: Floats) -> Ints:
        """The capability that decides each task's score; (n,)."""
        return np.asarray(self.margins(skills).argmin(axis=1))


class World:
    """The tasks of one seed, in an arrangement that only `rates` and `seed` decide."""

    def __init__(self, rates: Rates, seed: int) -> None:
        self.rates, self.seed = rates, seed
        rng = np.random.default_rng([_WORLD, seed])
        odds = np.log(SEED_SKILL / (1 - SEED_SKILL)) + rates.seed_deviation * rng.standard_normal(len(CAPABILITIES))
        self.seed_skills = readable(1.0 / (1.0 + np.exp(-odds)))
        self._partners = np.zeros((len(CAPABILITIES), len(CAPABILITIES)))
        for c in range(len(CAPABILITIES)):
            self._partners[c, np.arange(len(CAPABILITIES)) != c] = rng.dirichlet(np.ones(len(CAPABILITIES) - 1))
        both = np.concatenate([_primaries(TRAIN), _primaries(VALID)])
        self.labelled = self._tasks(both, rng)
        seen = self._labels(both, self.labelled.needs, rng)
        tasks = [_task(i, both[i], seen[i]) for i in range(len(both))]
        self.train, self.valid = tasks[: sum(TRAIN)], tasks[sum(TRAIN) :]
        self.position = {task.id: i for i, task in enumerate(tasks)}
        self.population = self._tasks(_primaries(POPULATION), np.random.default_rng([_POPULATION, seed]))

    def observed(self, source: str) -> Floats:
        """What an evaluation shows of a program on the training and validation tasks; the same on every call; (n,)."""
        expected = self.labelled.expected(skills_of(source))
        noise = self.rates.noise
        if noise == 0:
            return expected
        fingerprint = int.from_bytes(hashlib.sha256(source.encode()).digest()[:8], "big")
        rng = np.random.default_rng([_NOISE, self.seed, fingerprint])
        if noise == 1:
            return (rng.random(len(expected)) < expected).astype(np.float64)
        certainty = 1.0 / noise - 1.0
        return np.asarray(rng.beta(expected * certainty, (1.0 - expected) * certainty))

    def worth(self, skills: Floats) -> float:
        """The mean expected score over the fresh population."""
        return float(self.population.expected(skills).mean())

    def profile(self, skills: Floats) -> Floats:
        """The mean expected score of the population by primary capability; (C,)."""
        return _by_primary(self.population.expected(skills), self.population.primary)

    def routed_worth(self, skills: Sequence[Floats]) -> float:
        """The mean expected score if the program of its primary answers each question."""
        expected = np.array([self.population.expected(program) for program in skills])
        return float(expected[self.population.primary, np.arange(expected.shape[1])].mean())

    def _tasks(self, primary: Ints, rng: np.random.Generator) -> TaskSet:
        needs = self._secondaries(primary, rng)
        difficulty = self.rates.difficulty_deviation * rng.standard_normal(needs.shape)
        difficulty += self.rates.secondary_difficulty
        rows = np.arange(len(primary))
        difficulty[rows, primary] -= self.rates.secondary_difficulty
        needs[rows, primary] = True
        difficulty[~needs] = -np.inf
        return TaskSet(primary, needs, difficulty)

    def _secondaries(self, primary: Ints, rng: np.random.Generator) -> Bools:
        """0 to 2 distinct secondaries for each task, drawn by the partners of its primary; (n, C)."""
        counts = rng.choice(3, size=len(primary), p=self.rates.secondaries)
        # The largest perturbed log weights are a draw without replacement (Gumbel).
        with np.errstate(divide="ignore"):
            keys = np.log(self._partners[primary]) + rng.gumbel(size=(len(primary), len(CAPABILITIES)))
        ranks = (-keys).argsort(axis=1).argsort(axis=1)
        return np.asarray(ranks < counts[:, None])

    def _labels(self, primary: Ints, needs: Bools, rng: np.random.Generator) -> Bools:
        """The secondaries as the engine sees them: some rows are drawn anew; (n, C)."""
        seen = needs.copy()
        seen[np.arange(len(primary)), primary] = False
        wrong = rng.random(len(primary)) < self.rates.label_noise
        counts = rng.choice(3, size=len(primary), p=self.rates.secondaries)
        keys = rng.random(seen.shape)
        keys[np.arange(len(primary)), primary] = np.inf
        ranks = keys.argsort(axis=1).argsort(axis=1)
        seen[wrong] = (ranks < counts[:, None])[wrong]
        return seen


def readable(skills: Floats) -> Floats:
    """Skills as a source spells them: six decimals, inside the range where logits are tame."""
    return np.asarray(np.round(np.clip(skills, LEAST, MOST), 6), dtype=np.float64)


def source_of(skills: Floats) -> str:
    """The program with these skills: one line."""
    return f"SKILLS = ({', '.join(f'{skill:.6f}' for skill in skills)})\n"


def skills_of(source: str) -> Floats:
    """The skills of a program; (C,)."""
    return np.array(ast.literal_eval(source.partition("=")[2].strip()), dtype=np.float64)


def _by_primary(values: Floats, primary: Ints) -> Floats:
    sums = np.bincount(primary, values, len(CAPABILITIES))
    return np.asarray(sums / np.bincount(primary, minlength=len(CAPABILITIES)), dtype=np.float64)


def _primaries(counts: Sequence[int]) -> Ints:
    return np.repeat(np.arange(len(counts)), counts)


def _task(number: int, primary: int, secondary: Bools) -> Task:
    seen = tuple(CAPABILITIES[c] for c in np.flatnonzero(secondary))
    return Task(f"t{number:03d}", "h", f"question {number}", "", (), "", CAPABILITIES[primary], seen)
