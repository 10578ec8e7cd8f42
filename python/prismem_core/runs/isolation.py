"""What confined the programs of a job: the tier and its layers, as a run's manifest and every result hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prismem_core.errors import RunError

TIERS = ("strict", "standard", "weak")
"""From the strongest to the weakest; what each needs stands in docs/security.md."""

FLAG = "--unsafe-no-sandbox"
_UNRECORDED = "a session recorded no layers"


@dataclass(frozen=True)
class Isolation:
    """The tier of the weakest session, whether one was told to do without the sandbox, and layers by name.

    `layers` maps a name to `{"state", "witness"}`; `missing` names those that were not witnessed where they could be.
    """

    tier: str
    unsafe: bool
    layers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that stands in run.json and in results."""
        return {
            "tier": self.tier,
            "unsafe": self.unsafe,
            "missing": list(self.missing),
            "layers": [{"name": name, **layer} for name, layer in self.layers.items()],
        }

    @property
    def marked(self) -> bool:
        """Whether results must carry a warning."""
        return self.unsafe or self.tier == "weak"

    def words(self) -> str:
        """One sentence for reports and terminals."""
        missing = f"missing: {', '.join(self.missing) if self.missing else 'none'}"
        if self.tier == "weak":
            how = FLAG if self.unsafe else _UNRECORDED
            return (
                f"WEAK: programs ran WITHOUT kernel confinement ({how}) and could do whatever the user can; "
                f"layers {missing}"
            )
        told = f"; begun or resumed with {FLAG}, which was not needed" if self.unsafe else ""
        return f"{self.tier}; layers {missing}{told}"


def weakest(sessions: Iterable[Isolation]) -> Isolation:
    """What can be said of several sessions together: a layer counts only where each of them had it."""
    first, *others = sessions
    result = first
    for other in others:
        layers = dict(result.layers)
        for name, layer in other.layers.items():
            if name not in layers or layer["state"] != "witnessed":
                layers[name] = layer
        result = Isolation(
            max(result.tier, other.tier, key=TIERS.index),
            result.unsafe or other.unsafe,
            layers,
            tuple(name for name in layers if name in (*result.missing, *other.missing)),
        )
    return result


def isolation_from_json(value: Mapping[str, Any]) -> Isolation:
    """The isolation in a manifest; an empty one is weak: nobody tried its layers. RunError for a damaged one."""
    if value == {}:
        return Isolation("weak", False, {"seccomp": {"state": "missing", "witness": _UNRECORDED}}, ("seccomp",))
    try:
        layers = {one["name"]: {"state": one["state"], "witness": one["witness"]} for one in value["layers"]}
        found = Isolation(value["tier"], value["unsafe"], layers, tuple(value["missing"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"the run's isolation is damaged ({error}); restore run.json from a copy") from None
    if found.tier not in TIERS or type(found.unsafe) is not bool:
        raise RunError(f"the run's isolation is damaged (tier {found.tier!r}); restore run.json from a copy")
    return found
