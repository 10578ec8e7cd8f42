"""Settings: defaults, TOML and overrides, and refusals that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import SettingsError
from prismem_core.evolution.settings import EvolutionSettings, build_settings, load_settings


def test_defaults_are_those_of_the_papers() -> None:
    assert EvolutionSettings().model_dump() == {
        "T1": 5,
        "T2": 12,
        "T3": 3,
        "delta": 0.8,
        "K": 5,
        "theta": 0.1,
        "overall_set": "valid",
        "repair_attempts": 2,
        "measured_retries": 0,
        "strategy": "prismem",
        "router": "question",
        "reallocate_budget": True,
        "seed": 0,
    }


def test_overrides_win_over_the_file_and_none_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[evolution]\nT1 = 3\ntheta = 0\nseed = 4\n[cache]\nsize = 1\n", encoding="utf-8")
    settings = load_settings(path, {"T1": 7, "seed": None}, other_tables=("cache",))
    assert (settings.T1, settings.theta, settings.seed, settings.T2) == (7, 0.0, 4, 12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"detla": 0.5}, "unknown setting 'detla'; did you mean delta"),
        ({"t1": 5}, "unknown setting 't1'; did you mean T1"),
        ({"strategey": "prismem"}, "did you mean strategy"),
        ({"T1": -1}, r"T1 = -1 \(iterations of the cold start\): .*greater than or equal to 0"),
        ({"T1": "5"}, "T1 = '5'"),
        ({"T1": True}, "T1 = True"),
        ({"delta": 1.5}, "delta = 1.5"),
        ({"K": 0}, "K = 0"),
        ({"strategy": "routed"}, "strategy = 'routed'.*'prismem', 'holistic'.*or 'router'"),
        ({"router": "native"}, "router = 'native'.*'question' or 'oracle'"),
    ],
)
def test_refusals_name_the_setting_and_what_was_expected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build_settings(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("T1 = 5\n", r"unknown key 'T1'; it belongs into the table \[evolution\]"),
        ("[evolutoin]\nT1 = 5\n", "unknown key 'evolutoin'; did you mean evolution"),
        ("[cache]\nsize = 1\n", "unknown key 'cache'"),
        ("[evolution\n", "not valid TOML"),
        ("evolution = 3\n", r"must be a table, written \[evolution\]"),
    ],
)
def test_files_are_refused_with_their_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=message) as caught:
        load_settings(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no settings file at"):
        load_settings(tmp_path / "absent.toml")
