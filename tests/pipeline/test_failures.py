"""A failure names the stage that failed."""

from __future__ import annotations

import pytest

from prismem_core.pipeline.trace import Failure
from prismem_core.program import library
from prismem_core.program.program import Program

from .conftest import World


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
