"""Golden vectors as parameters: one test a vector, whatever folder `--golden-dir` names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

VECTORS = {
    "selection_vector": ("selection", None),
    "case_vector": ("case_selection", None),
    "algorithm_vector": ("algorithm", None),
    "specialists_vector": ("gates", "specialists"),
    "target_gate_vector": ("gates", "target_gate"),
    "integration_vector": ("gates", "integration"),
    "paired_vector": ("gates", "paired"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument, (name, part) in VECTORS.items():
        if argument not in metafunc.fixturenames:
            continue
        path = Path(metafunc.config.getoption("--golden-dir")) / f"{name}.json"
        if not path.exists():
            reason = f"no golden vectors {path.name} in {path.parent}"
            metafunc.parametrize(argument, [pytest.param(None, marks=pytest.mark.skip(reason=reason))])
            continue
        vectors = json.loads(path.read_text(encoding="utf-8"))
        vectors = vectors[part] if part else vectors
        metafunc.parametrize(argument, vectors, ids=[str(v.get("name", i)) for i, v in enumerate(vectors)])
