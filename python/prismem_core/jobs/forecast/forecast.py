"""A forecast of a run: what each part of it asks of each model, and how many proposals a budget allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from prismem_core.clients.model_settings import ModelSettings
from prismem_core.evolution.recipes import RECIPES
from prismem_core.evolution.settings import EvolutionSettings
from prismem_core.jobs.forecast import assumptions as take
from prismem_core.jobs.forecast.amounts import Amount, Range, total
from prismem_core.jobs.forecast.counts import Prompts, Questions
from prismem_core.jobs.forecast.evaluations import Costs, Evaluating
from prismem_core.jobs.forecast.players import Player, possible
from prismem_core.jobs.model_tables import MAX_TOKENS, spec_of
from prismem_core.jobs.models import job_models, ledger_role
from prismem_core.jobs.settings import JobSettings
from prismem_core.program.interface import ProgramInterface
from prismem_core.roles.budget import Price
from prismem_core.tasks.task import Dataset, Split, Task

START, COLD_START, REFINEMENT, INTEGRATION, TEST = "start", "cold start", "refinement", "integration", "test"


@dataclass(frozen=True)
class Forecast:
    """Amounts by part of the run, role and stage; `iterations` by part. `kinds` says who plays a role, `prices` what
    it costs. `cached` says that an execution cache may hold some of the calls already.
    """

    amounts: Mapping[tuple[str, str, str], Amount]
    iterations: Mapping[str, int]
    kinds: Mapping[str, str]
    prices: Mapping[str, Price]
    cached: bool

    def of(self, *, part: str | None = None, role: str | None = None, stage: str | None = None) -> Amount:
        """The sum over everything that is not named."""
        return total(
            amount
            for (own_part, own_role, own_stage), amount in self.amounts.items()
            if part in (None, own_part) and role in (None, own_role) and stage in (None, own_stage)
        )

    def money(self, *, part: str | None = None, role: str | None = None) -> Range:
        """What the models cost, where prices are set."""
        whole = Range()
        for name in {own_role for _, own_role, _ in self.amounts}:
            if role in (None, name):
                price, amount = self.prices.get(name, Price()), self.of(part=part, role=name)
                whole += amount.input_tokens.times(price.input_per_million / 1e6)
                whole += amount.output_tokens.times(price.output_per_million / 1e6)
        return whole

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The roles and stages that may be called, in their order."""
        found = dict.fromkeys((role, stage) for _, role, stage in self.amounts)
        return [(role, stage) for role, stage in found if self.of(role=role, stage=stage).calls.high > 0]

    @property
    def parts(self) -> list[str]:
        """The parts of the run in their order."""
        return list(dict.fromkeys(part for part, _, _ in self.amounts))


def forecast(
    job: JobSettings,
    evolution: EvolutionSettings,
    dataset: Dataset,
    split: Split,
    interface: ProgramInterface,
    source: str,
    *,
    cached: bool = False,
) -> Forecast:
    """The forecast of a run that starts from the program `source` with that interface; nothing is called for it.

    Bounds hold where models are as well as one asks them: tries that a server failed are not foreseen. With `cached`
    nothing need be paid for at least.
    """
    return _Foreseen(job, evolution, dataset, split, interface, source, cached).forecast()


class _Foreseen:
    def __init__(
        self,
        job: JobSettings,
        evolution: EvolutionSettings,
        dataset: Dataset,
        split: Split,
        interface: ProgramInterface,
        source: str,
        cached: bool,
    ) -> None:
        self._job, self._evolution, self._source, self._cached = job, evolution, source, cached
        self._models = job_models(job)
        kinds = {role: spec_of(role, model).kind for role, model in self._models.items()}
        self._kinds = kinds
        self._recipe = RECIPES[evolution.strategy]
        judged = kinds["judge"] != "offline" and job.score != "offline"
        twins = job.score == "offline" or (job.score == "auto" and kinds["judge"] == "offline")
        self._evaluating = Evaluating(
            self._player("task"),
            self._player("judge") if judged else None,
            job.pipeline().limits,
            ".embed(" in source or "collection(" in source,
            ".ask(" in source,
            kinds["embedding"] != "offline",
        )
        self._new = take.NEW[job.reuse]
        by_id = {task.id: task for task in dataset.tasks}

        def questions(*ids: str, known: frozenset[str] = frozenset()) -> Questions:
            tasks: list[Task] = [by_id[i] for i in ids]
            return Questions(dataset, interface, tasks, twins=twins, segment_chars=job.segment_chars, known=known)

        self._train = questions(*split.train)
        self._both = questions(*split.train, *split.valid)
        self._test = questions(*split.test) if split.test else None
        self._first_test = questions(*split.test, known=self._both.segments) if split.test else None
        primaries = [by_id[i].primary for i in split.train]
        sizes = sorted({c: primaries.count(c) for c in set(primaries)}.values())
        share = [size / len(primaries) for size in sizes] if self._recipe.name != "holistic" else [1.0]
        self._target = Range(share[0], sum(share) / len(share), share[-1])

    def forecast(self) -> Forecast:
        """All parts together."""
        evolution, recipe = self._evolution, self._recipe
        refinements = recipe.refinements(evolution)
        rounds = evolution.T3 if recipe.integrates else 0
        parts: dict[str, Costs] = {
            START: _joined(self._annotated(), self._evaluating.start(self._both), self._probes())
        }
        iterations = {COLD_START: evolution.T1, REFINEMENT: refinements, INTEGRATION: rounds}
        makers = {COLD_START: self._cold_start, REFINEMENT: self._refinement, INTEGRATION: self._integration}
        for part, count in iterations.items():
            if count:
                parts[part] = makers[part](count)
        if self._test is not None:
            parts[TEST] = self._tested()
        amounts = {
            (part, role, stage): amount.times(Range(0.0, 1.0, 1.0)) if self._cached else amount
            for part, costs in parts.items()
            for (role, stage), amount in costs.items()
        }
        prices = {ledger_role(role): model.price for role, model in self._models.items()}
        names = {ledger_role(role): kind for role, kind in self._kinds.items()}
        return Forecast(amounts, iterations, names, prices, self._cached)

    def _player(self, role: str) -> Player:
        model: ModelSettings = self._models[role]
        tokens = model.max_tokens or (self._job.task_tokens if role == "task" else MAX_TOKENS[role])
        return Player(spec_of(role, model).kind == "offline", tokens, self._job.output_retries)

    @property
    def _attempts(self) -> int:
        return 1 + self._evolution.repair_attempts + self._evolution.measured_retries

    def _revisions(self, count: float, share: Range) -> Costs:
        """`count` iterations, each with a program that is measured on that share of the questions."""
        costs = self._evaluating.revision(self._both, self._new)
        whole = Range(0.0, count * share.expected, count * self._attempts * share.high)
        return {key: amount.times(whole) for key, amount in costs.items()}

    def _cold_start(self, count: int) -> Costs:
        once = self._evaluating.diagnostics(self._train)
        again = {key: possible(amount, self._new["plan"] * (count - 1), count - 1.0) for key, amount in once.items()}
        return _joined(
            self._revisions(count, Range(0.0, 1.0, 1.0)), once, again, self._designed(count, Range.exactly(1.0), 5)
        )

    def _refinement(self, count: int) -> Costs:
        # A program that passes the gate is measured on all questions, those of the target included.
        expected = self._target.expected * (1 - take.PASSES_GATE) + take.PASSES_GATE
        cases = self._evaluating.cases(count * self._evolution.K, self._snippets(self._evolution.K))
        designed = self._designed(count, Range(0.0, 1.0, 1.0), self._evolution.K)
        return _joined(self._revisions(count, Range(0.0, expected, 1.0)), cases, designed)

    def _integration(self, count: int) -> Costs:
        versions = 11 + count * self._attempts
        cases = self._evaluating.cases(5 * versions, self._snippets(5))
        shown = {key: possible(amount, 6 / versions) for key, amount in cases.items()}
        designed = self._designed(count, Range(0.0, take.ROUNDS, 1.0), 10, plans=1)
        return _joined(self._revisions(count * 1.0, Range(0.0, take.ROUNDS, 1.0)), shown, designed)

    def _snippets(self, most: int) -> Range:
        """Pieces of evidence of a case."""
        counts = self._train.snippets
        largest = counts[:most] or [0]
        return Range(0.0, sum(counts) / max(1, len(counts)), sum(largest) / len(largest))

    def _designed(self, count: int, happens: Range, cases: int, plans: int | None = None) -> Costs:
        """Calls of the designer's models in `count` iterations; `plans` is how often the reflection model is asked in
        all.
        """
        if "offline" in (self._kinds["reflection"], self._kinds["coding"]):
            return {}
        costs: Costs = {}
        most = self._job.prompt_chars
        asked = {
            ("reflection", "reflect"): Range.exactly(count if plans is None else plans).times(
                happens if plans is None else Range(0.0, 1.0, 1.0)
            ),
            ("coding", "code"): Range(
                count * happens.low, count * happens.expected * take.ATTEMPTS, count * happens.high * self._attempts
            ),
        }
        for (role, stage), times in asked.items():
            base = len(self._source)
            extra = Range(0.0, 8000.0 + cases * take.CASE_CHARS, max(0.0, 2.0 * most - base))
            once = self._player(role).amount(Prompts(1, base, base), take.OUTPUT[stage], extra_chars=extra)
            costs[role, stage] = once.times(times)
        return costs

    def _tested(self) -> Costs:
        assert self._test is not None and self._first_test is not None
        start = self._evaluating.start(self._first_test)
        result = self._evaluating.revision(self._test, take.NEW_RESULT)
        if self._recipe.ending != "route":
            return _joined(start, result)
        # The best program, then each question by the program of its capability, of five at most.
        routed = {key: possible(amount, 1.0, 5.0) for key, amount in result.items()}
        costs = _joined(start, result, routed)
        if self._evolution.router == "question":
            costs["chat", "route"] = self._evaluating.task.amount(self._test.routing, take.LABEL)
        return costs

    def _annotated(self) -> Costs:
        """The labels of the training and validation questions."""
        if self._kinds["annotator"] == "offline":
            return {}
        annotator = replace(self._player("annotator"), retries=self._job.annotation_retries)
        return {("annotator", "annotate"): annotator.amount(self._both.annotating, take.LABEL)}

    def _probes(self) -> Costs:
        """What clients of servers find out for themselves."""
        costs: Costs = {}
        for role, kind in self._kinds.items():
            if kind == "offline":
                continue
            if role == "embedding":
                costs["embedder", "probe"] = Amount(Range(0, 1, 2), Range(0, 4, 200))
                costs["embedder", "check"] = Amount(Range(0, 2, 40), Range(0, 500, 40 * 3 * self._job.segment_chars))
            elif kind == "openai" and self._models[role].structured == "auto":
                costs[ledger_role(role), "probe"] = Amount(Range(0, 1, 8), Range(0, 60, 4000), Range(0, 40, 20_000))
        return costs


def _joined(*costs: Costs) -> Costs:
    joined: Costs = {}
    for one in costs:
        for key, amount in one.items():
            joined[key] = joined.get(key, Amount()) + amount
    return joined
