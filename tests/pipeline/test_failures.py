"""A failure names the stage that failed, and a role that fails is no failure of the program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from prismem_core.clients.offline.embedders import HashingEmbedder
from prismem_core.errors import RoleError
from prismem_core.pipeline.pipeline import Pipeline, PipelineSettings
from prismem_core.pipeline.trace import Failure
from prismem_core.program import library
from prismem_core.program.program import Program
from prismem_core.program.sandbox import Limits
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.protocols import ChatReply, ChatRequest

from .conftest import CountingChat, World


@pytest.mark.parametrize(
    ("stage", "old"), [("index", "self.memories.extend("), ("retrieve", 'return "\\n".join(self.memories)')]
)
def test_a_failure_names_its_stage(world: World, stage: str, old: str) -> None:
    source = library.source("seed")
    assert source.count(old) == 1
    result = world.pipeline().run(Program(source.replace(old, "1 / 0; " + old)), world.histories, world.questions)
    failures = [trace.failure for trace in result.traces if trace.failure is not None]
    assert failures
    assert all(isinstance(failure, Failure) and failure.stage == stage for failure in failures)
    assert all("ZeroDivisionError" in failure.message for failure in failures)


class Down(CountingChat):
    """The task model, down for requests of the purposes in `down`."""

    down: frozenset[str] = frozenset()

    def complete(self, requests: Sequence[ChatRequest]) -> Sequence[ChatReply]:
        if any(request.purpose in self.down for request in requests):
            raise RoleError("the provider is down")
        return super().complete(requests)


class DownEmbedder(HashingEmbedder):
    """The hashing embedder while its service is away."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise RoleError("the embedder is away")


@pytest.mark.parametrize("purpose", ["extract", "plan", "answer"])
def test_a_provider_that_fails_pauses_and_what_was_paid_is_kept(world: World, purpose: str) -> None:
    world.chat = chat = Down()
    program = Program(library.source("seed"))
    chat.down = frozenset([purpose])
    with pytest.raises(RoleError, match="the provider is down"):
        world.pipeline().run(program, world.histories, world.questions)
    before = dict(chat.calls)
    chat.down = frozenset()
    assert all(t.failure is None for t in world.pipeline().run(program, world.histories, world.questions).traces)
    whole = World(world.sandbox)
    whole.pipeline().run(program, whole.histories, whole.questions)
    assert chat.calls == whole.chat.calls, "nothing was paid twice"
    assert purpose not in before


def test_an_embedder_that_fails_inside_a_program_is_no_fault_of_the_program(world: World) -> None:
    pipeline = Pipeline(
        CachedChat(world.chat, world.cache, world.ledger),
        CachedEmbedder(DownEmbedder(), world.cache, world.ledger),
        world.cache,
        world.sandbox,
    )
    program = Program(library.source("naive_rag"))
    with pytest.raises(RoleError, match="the embedder is away"):
        pipeline.run(program, world.histories, world.questions)
    assert all(t.failure is None for t in world.pipeline().run(program, world.histories, world.questions).traces)


def test_a_limit_is_a_kind_of_its_own_and_ends_the_program_alone(world: World) -> None:
    source = library.source("seed")
    old = 'return "\\n".join(self.memories)'
    assert source.count(old) == 1
    program = Program(source.replace(old, f'while "Oslo" in str(self.memories): pass\n        {old}'))
    pipeline = Pipeline(
        CachedChat(world.chat, world.cache, world.ledger),
        CachedEmbedder(HashingEmbedder(), world.cache, world.ledger),
        world.cache,
        world.sandbox,
        PipelineSettings(limits=Limits(retrieve_cpu_seconds=0.3)),
    )
    result = pipeline.run(program, world.histories, world.questions)
    failures = [trace.failure for trace in result.traces]
    assert all(f is not None and (f.stage, f.kind) == ("retrieve", "limit:cpu") for f in failures)
    whole = pipeline.run(Program(source), world.histories, world.questions)
    assert all(trace.failure is None for trace in whole.traces)
