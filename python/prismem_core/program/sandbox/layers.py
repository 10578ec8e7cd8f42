"""The layers that confine a worker, as they were witnessed, and the tier they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

State = Literal["witnessed", "missing", "off"]
Tier = Literal["strict", "standard", "weak"]
Required = Literal["strict", "standard"]

LAYERS = ("seccomp", "landlock", "namespaces", "empty_root", "own_user", "limits", "copies")
"""`own_user` is for engines that are root; `copies` means that the engine decides about each fork of a worker."""

STANDARD = ("seccomp", "limits")
STRICT = (*STANDARD, "landlock", "namespaces", "empty_root")


@dataclass(frozen=True)
class Layer:
    """One layer: `witness` tells what was tried and seen, or why the layer is missing."""

    name: str
    state: State
    witness: str


def tier_of(layers: Iterable[Layer]) -> Tier:
    """`strict` with seccomp, Landlock, namespaces and an empty root, `standard` with seccomp, else `weak`."""
    witnessed = {layer.name for layer in layers if layer.state == "witnessed"}
    if witnessed.issuperset(STRICT):
        return "strict"
    return "standard" if witnessed.issuperset(STANDARD) else "weak"


def read_layers(told: object) -> tuple[Layer, ...]:
    """The layers in a zygote's first frame; ValueError if it is of another form."""
    if not isinstance(told, Sequence) or isinstance(told, str):
        raise ValueError("no list of layers")
    found = []
    for entry in told:
        name, state, witness = entry
        if name not in LAYERS or state not in get_args(State) or type(witness) is not str:
            raise ValueError(f"a layer of an unknown form: {entry!r}"[:200])
        found.append(Layer(name, state, witness))
    if tuple(layer.name for layer in found) != LAYERS:
        raise ValueError("the layers are not those that are known")
    return tuple(found)
