"""What `prismem doctor` says of the sandbox: each layer as it was seen, what its lack means, and the tier."""

from __future__ import annotations

from typing import Any

import pytest

from prismem_core.errors import SandboxError
from prismem_core.jobs import sandbox_examination
from prismem_core.jobs.sandbox_examination import layer_state, sandbox_parts, tier_state
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.sandbox.layers import LAYERS, STANDARD, STRICT, Layer


def _layers(*missing: str) -> tuple[Layer, ...]:
    return tuple(Layer(name, "missing" if name in missing else "witnessed", f"seen {name}") for name in LAYERS)


def test_the_parts_are_those_of_a_sandbox_here() -> None:
    with Sandbox(unsafe=True) as sandbox:
        layers, tier = sandbox.layers(), sandbox.tier
    found = {part: attempt() for part, attempt in sandbox_parts()}
    assert list(found) == ["worker processes", *(f"sandbox: {name}" for name in LAYERS), "sandbox tier"]
    assert found["worker processes"] == ("ok", "the packaged seed program was loaded in a worker")
    for layer in layers:
        state, message = found[f"sandbox: {layer.name}"]
        assert (state == "witnessed") == (layer.state == "witnessed")
        assert message.startswith(layer.witness)
    assert found["sandbox tier"][1].split(";")[0] == tier


@pytest.mark.parametrize("name", LAYERS)
def test_a_missing_layer_says_why_and_what_to_do(name: str) -> None:
    state, message = layer_state(Layer(name, "missing", "Operation not permitted"))
    assert state == "missing"
    why, rest = message.split(". Without it ")
    means, remedy = rest.split(": ", 1)
    assert why == "Operation not permitted" and len(means) > 20 and len(remedy) > 20


def test_a_witnessed_layer_says_what_was_seen() -> None:
    assert layer_state(Layer("landlock", "witnessed", "refused: open a folder")) == (
        "witnessed",
        "refused: open a folder",
    )


@pytest.mark.parametrize(
    ("missing", "require", "expected"),
    [
        ((), "strict", ("ok", "strict")),
        (("own_user", "copies"), "strict", ("ok", "strict")),
        (("landlock",), "standard", ("ok", "standard; strict needs landlock")),
        (
            ("landlock", "empty_root"),
            "strict",
            ("broken", "standard, but strict is required and needs landlock, empty_root too (docs/security.md)"),
        ),
        (
            ("seccomp",),
            "standard",
            ("broken", "weak, but standard is required and needs seccomp too (docs/security.md)"),
        ),
        (("limits",), "standard", ("broken", "weak, but standard is required and needs limits too (docs/security.md)")),
    ],
)
def test_a_tier_below_the_required_one_is_broken(missing: tuple[str, ...], require: Any, expected: object) -> None:
    assert tier_state(_layers(*missing), require) == expected


def test_a_sandbox_that_does_not_start_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    def fail(**_: object) -> Sandbox:
        starts.append(1)
        raise SandboxError("memory programs run in a sandbox that needs Linux")

    monkeypatch.setattr(sandbox_examination, "Sandbox", fail)
    found = {part: attempt() for part, attempt in sandbox_parts()}
    assert len(starts) == 1
    assert found["worker processes"] == ("broken", "SandboxError: memory programs run in a sandbox that needs Linux")
    assert {found[f"sandbox: {name}"] for name in LAYERS} == {("missing", "not tried: the sandbox does not start")}
    assert found["sandbox tier"][0] == "broken"
    assert set(STANDARD) < set(STRICT)


def test_a_worker_that_cannot_load_a_program_leaves_the_layers_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SandboxError("no worker process could be made")

    monkeypatch.setattr(Sandbox, "describe", fail)
    found = {part: attempt() for part, attempt in sandbox_parts()}
    assert found["worker processes"] == ("broken", "SandboxError: no worker process could be made")
    assert found["sandbox: limits"][0] == "witnessed"
