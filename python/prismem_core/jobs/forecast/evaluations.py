"""What evaluating a program on a set of questions costs, stage by stage of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismem_core.jobs.forecast import assumptions as take
from prismem_core.jobs.forecast.amounts import Amount, Range
from prismem_core.jobs.forecast.counts import Prompts, Questions
from prismem_core.jobs.forecast.players import Player, possible
from prismem_core.program.interface import OUT_CHAR_BUDGET
from prismem_core.program.sandbox import Limits

Costs = dict[tuple[str, str], Amount]
"""Amounts by role and stage, in the ledger's names."""


@dataclass(frozen=True)
class Evaluating:
    """Who plays the roles of an evaluation. `judge` is None where no model judges; `embeds` and `asks` say whether the
    start program's text shows that it does so, `diagnoses` whether diagnostics embed with a model that is counted.
    """

    task: Player
    judge: Player | None
    limits: Limits
    embeds: bool
    asks: bool
    diagnoses: bool

    def start(self, questions: Questions) -> Costs:
        """The start program on questions it was not asked before."""
        costs = self._stages(questions, Range())
        whole = self._embedded(questions, len(questions.asked))
        costs["embedder", "embed"] = possible(whole, float(self.embeds), float(self.embeds))
        costs["chat", "ask"] = possible(self._asked(questions, len(questions.asked)), 0.5 * self.asks, float(self.asks))
        return costs

    def revision(self, questions: Questions, new: Mapping[str, float]) -> Costs:
        """A program that shares some of its stages with those before it: `new` is the share of those that are its
        own.
        """
        costs = self._stages(questions, Range(0.0, 0.0, take.MOST_INSTRUCTION_CHARS))
        shared = {key: possible(amount, new.get(key[1], 1.0)) for key, amount in costs.items()}
        embedded = self._embedded(questions, len(questions.asked))
        shared["embedder", "embed"] = possible(embedded, new["extract"] if self.embeds else 0.5 * new["extract"])
        shared["chat", "ask"] = possible(self._asked(questions, len(questions.asked)), 0.25 * self.asks)
        return shared

    def diagnostics(self, questions: Questions) -> Costs:
        """The evidence of all tasks as questions, and what Eq. 8-11 compare as embeddings."""
        found = questions.evidence_planning
        extra = Range(0.0, 0.0, take.MOST_INSTRUCTION_CHARS)
        costs: Costs = {("chat", "plan"): self.task.amount(found, self._output("plan"), extra_chars=extra)}
        costs["chat", "ask"] = possible(self._asked(None, found.count), 0.0)
        costs["embedder", "embed"] = possible(self._embedded(None, found.count), 0.5 * self.embeds)
        if self.diagnoses:
            retrieved = (found.count + len(questions.tasks)) * OUT_CHAR_BUDGET
            known = questions.dialogue.chars * take.MOST_UNITS + found.chars
            most = Prompts(0, int(retrieved + known), int((retrieved + known) * _width(questions)))
            costs["embedder", "embed"] += _texts(most, (found.chars + questions.dialogue.chars) / take.CHARS_A_TEXT)
        return costs

    def cases(self, count: float, snippets: Range) -> Costs:
        """`count` cases with so many pieces of evidence each, as a designer is shown them, mostly planned before."""
        prompts = Prompts(1, 2 * take.MOST_INSTRUCTION_CHARS, 4 * take.MOST_INSTRUCTION_CHARS)
        planned = self.task.amount(prompts, self._output("plan")).times(Range(0.0, 0.1, 1.0))
        costs: Costs = {("chat", "plan"): planned.times(Range.exactly(count).times(snippets))}
        costs["chat", "ask"] = possible(self._asked(None, int(count * snippets.high)), 0.0)
        costs["embedder", "embed"] = possible(self._embedded(None, int(count * snippets.high)), 0.0)
        if self.diagnoses:
            chars = count * (snippets.high + 2) * (2 * OUT_CHAR_BUDGET + 4 * 12_000)
            costs["embedder", "embed"] += possible(_texts(Prompts(0, int(chars), int(chars * 2)), chars / 1000), 0.5)
        return costs

    def _stages(self, questions: Questions, instruction: Range) -> Costs:
        texts = questions.extraction
        mean = questions.dialogue.chars * take.TOKENS_A_CHAR / max(1, texts.count)
        units = mean * take.EXTRACTED["offline" if self.task.offline else "model"]
        known = min(OUT_CHAR_BUDGET, questions.dialogue.chars)
        retrieved = Range(0.0, known, OUT_CHAR_BUDGET + instruction.high)
        longest = take.MOST_UNITS * questions.dialogue.chars * take.TOKENS_A_CHAR
        costs: Costs = {
            ("chat", "extract"): self.task.amount(
                texts, units, extra_chars=instruction, most_output=(longest + 100 * texts.count) / max(1, texts.count)
            ),
            ("chat", "plan"): self.task.amount(questions.planning, self._output("plan"), extra_chars=instruction),
            ("chat", "answer"): self.task.amount(questions.answering, self._output("answer"), extra_chars=retrieved),
        }
        # Two histories may have the same question, and then different answers.
        more = len(questions.asked) / max(1, questions.answering.count)
        costs["chat", "answer"] = costs["chat", "answer"].times(Range(1.0, more, more))
        if self.judge is not None:
            # An answer that says nothing is not judged.
            most = 4 * self.task.max_tokens << self.task.retries
            answers = Range(0.0, take.ANSWER_CHARS, most)
            judged = self.judge.amount(questions.judging, take.OUTPUT["judge"], extra_chars=answers)
            costs["judge", "judge"] = possible(judged, 1.0)
        return costs

    def _asked(self, questions: Questions | None, queries: int) -> Amount:
        """The calls that a program may make itself."""
        limits, groups = self.limits, 0 if questions is None else questions.groups
        calls = groups * limits.index_ask_calls + queries * limits.retrieve_ask_calls
        chars = groups * limits.index_ask_chars + queries * limits.retrieve_ask_chars
        read = Range(0.0, 0.05 * chars * take.TOKENS_A_CHAR, 4 * chars * take.MOST_TOKENS_A_BYTE)
        written = Range(0.0, calls * take.OUTPUT["ask"], float(calls * self.task.max_tokens))
        return Amount(Range(0.0, float(calls), float(calls)), read, written)

    def _embedded(self, questions: Questions | None, queries: int) -> Amount:
        """The texts that a program embeds: of the dialogues and what was extracted, and of queries."""
        limits = self.limits
        amount = Amount(
            Range(0.0, 1.5 * queries, float(queries * limits.retrieve_embed_texts)),
            Range(0.0, 20.0 * queries, 4.0 * queries * limits.retrieve_embed_chars * take.MOST_TOKENS_A_BYTE),
        )
        if questions is None:
            return amount
        chars = questions.dialogue.chars
        most = Prompts(0, int(chars * (1 + take.MOST_UNITS)), int(questions.dialogue.size * (1 + take.MOST_UNITS)))
        return amount + _texts(most, chars / take.CHARS_A_TEXT)

    def _output(self, stage: str) -> float:
        return take.OUTPUT_OFFLINE[stage] if self.task.offline else take.OUTPUT[stage]


def _texts(most: Prompts, expected: float) -> Amount:
    """Texts of an embedder whose characters are `most` at most."""
    return Amount(
        Range(0.0, expected, most.chars * take.MOST_TEXTS_A_CHAR + 1000),
        Range(0.0, expected * take.CHARS_A_TEXT * take.TOKENS_A_CHAR, float(most.size) + 1000),
    )


def _width(questions: Questions) -> float:
    return questions.dialogue.size / max(1, questions.dialogue.chars)
