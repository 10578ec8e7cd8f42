"""How many memories and queries are under way: more where a model takes calls side by side, the same in every run."""

from __future__ import annotations

import pytest

from prismem_core.pipeline.windows import MEMORIES, SLOTS, under_way
from prismem_core.roles.meter import Meter


class Model:
    def __init__(self, slots: int, concurrent: bool = True) -> None:
        self.meter = Meter(slots)
        self.concurrent = concurrent


@pytest.mark.parametrize("models", [(), (object(),), (Model(64, concurrent=False),), (Model(1),)])
def test_without_slots_it_is_what_the_settings_say(models: tuple[object, ...]) -> None:
    assert under_way(9, 2, 8, *models) == (2, 8)
    assert under_way(1, 0, 3, *models) == (1, 3)


@pytest.mark.parametrize(
    ("histories", "workers", "copies", "slots", "expected"),
    [
        (1, 2, 8, 64, (1, 64)),
        (6, 2, 8, 64, (6, 11)),
        (100, 2, 8, 64, (MEMORIES, 8)),
        (100, 40, 8, 64, (40, 8)),
        (100, 2, 8, 4, (4, 8)),
        (100, 2, 1, 4096, (MEMORIES, SLOTS // MEMORIES)),
    ],
)
def test_programs_that_wait_fill_the_slots(
    histories: int, workers: int, copies: int, slots: int, expected: tuple[int, int]
) -> None:
    assert under_way(histories, workers, copies, object(), Model(slots)) == expected
