"""What `prismem doctor` says of models beyond the embedded default."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from prismem_core.jobs import examination


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name in ("tenacity", "vllm") else known(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    monkeypatch.setattr(examination, "sandbox_parts", lambda require: [])
    found = {finding.part: finding for finding in examination.examine()}
    for part, said in (("model servers", "prismem-core[openai]"), ("models in process", "prismem-core[vllm]")):
        assert found[part].state == "missing"
        assert said in found[part].message
    monkeypatch.setattr(importlib.util, "find_spec", known)
    assert {finding.part: finding for finding in examination.examine()}["model servers"].state == "ok"
