"""The maps from question types to capabilities, against the golden table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prismem_core.tasks.native_types import BEAM, LOCOMO, LOCOMO_CATEGORIES, LONGMEMEVAL, longmemeval_capability

Golden = Callable[[str], Any]


def test_locomo_and_beam_maps_are_the_golden_ones(golden: Golden) -> None:
    table = golden("question_types")
    assert {name: str(capability) for name, capability in LOCOMO.items()} == table["locomo"]
    assert {name: str(capability) for name, capability in BEAM.items()} == table["beam"]


def test_longmemeval_map_and_its_abstention_rule(golden: Golden) -> None:
    table = golden("question_types")["longmemeval"]
    abstention = table.pop("*_abs")
    assert {name: str(capability) for name, capability in LONGMEMEVAL.items()} == table
    for name, expected in table.items():
        assert longmemeval_capability("852ce960", name) == expected
        assert longmemeval_capability("852ce960_abs", name) == abstention


def test_locomo_category_1_is_multi_hop_and_4_is_single_hop() -> None:
    assert dict(LOCOMO_CATEGORIES) == {
        1: "multi_hop",
        2: "temporal",
        3: "open_domain",
        4: "single_hop",
        5: "adversarial",
    }
