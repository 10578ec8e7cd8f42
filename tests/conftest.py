"""Fixtures every room shares: golden vectors, attacks and real data, each from a folder the command line may name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
FOLDERS = {"--golden-dir": HERE / "golden", "--attacks-dir": HERE / "attacks"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir", default=str(FOLDERS["--golden-dir"]), help="folder with golden vectors (default: tests/golden)"
    )
    parser.addoption(
        "--attacks-dir",
        default=str(FOLDERS["--attacks-dir"]),
        help="folder with attack programs (default: tests/attacks)",
    )


def pytest_configure(config: pytest.Config) -> None:
    for option, own in FOLDERS.items():
        path = Path(config.getoption(option))
        if path != own and not path.is_dir():
            raise pytest.UsageError(f"{option}: there is no folder {path}; name one that exists")


def load_golden(config: pytest.Config, name: str) -> Any:
    """The parsed vectors `name`.json; skips where the folder given by --golden-dir lacks that file."""
    path = Path(config.getoption("--golden-dir")) / f"{name}.json"
    if not path.exists():
        pytest.skip(f"no golden vectors {path.name} in {path.parent}")
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    return lambda name: load_golden(request.config, name)


@pytest.fixture
def attacks_dir(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.getoption("--attacks-dir"))


@pytest.fixture
def data_dir() -> Path:
    """Real benchmark records; their licences forbid packing them, so tests skip where they are absent."""
    path = Path(os.environ.get("PRISMEM_DATA") or HERE.parent.parent / "shared" / "data")
    if not path.is_dir():
        pytest.skip(f"benchmark data not found at {path}; set PRISMEM_DATA to their folder")
    return path
