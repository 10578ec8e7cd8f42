"""What confines programs on this machine, layer by layer: each is tried, and told with what its lack means."""

from __future__ import annotations

import functools
from collections.abc import Callable

from prismem_core.errors import PrismemError
from prismem_core.program import library
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.sandbox.layers import LAYERS, STANDARD, STRICT, Layer, Required, Tier, tier_of

State = tuple[str, str]

# What a missing layer means, and what gives it.
_LACK = {
    "seccomp": (
        "nothing keeps a program from files, network and other processes, so programs are refused",
        "use Linux 5.5 or newer on x86-64 or aarch64, and a container or outer sandbox that allows seccomp filters",
    ),
    "landlock": (
        "one wall less around files and network; the seccomp filter still keeps programs from both",
        "use Linux 5.13 or newer with landlock among its security modules (/sys/kernel/security/lsm), and a container "
        "that allows its calls",
    ),
    "namespaces": (
        "workers are in the namespaces of the engine; only the seccomp filter and Landlock keep them from its network",
        "let this user make user namespaces (sysctl user.max_user_namespaces; on Ubuntu "
        "kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile), or start the container with a seccomp "
        "profile that allows unshare",
    ),
    "empty_root": (
        "workers have the engine's file system as root; only the seccomp filter and Landlock keep them from it",
        "it needs namespaces and the right to mount in them (containers: an AppArmor profile that allows mount)",
    ),
    "own_user": (
        "workers have the engine's user; the seccomp filter keeps them from signals and files",
        "nothing needs doing; as root, with the right to change users, each worker gets a user of its own",
    ),
    "limits": (
        "a program can take the machine's memory, so programs are refused",
        "use Linux, and no outer sandbox that takes setrlimit away",
    ),
    "copies": (
        "every query builds its memory again, with the same results and more time",
        "use Linux 5.5 or newer, and no outer sandbox that takes seccomp's user notification away (gVisor does)",
    ),
}


def sandbox_parts(require: Required = "standard") -> list[tuple[str, Callable[[], State]]]:
    """Names of the parts and what tries them: a worker, each layer, and the tier they make against `require`."""
    tried = functools.cache(_try)

    def worker() -> State:
        trouble = tried()[1]
        return ("broken", trouble) if trouble else ("ok", "the packaged seed program was loaded in a worker")

    def layer(place: int) -> State:
        layers = tried()[0]
        return layer_state(layers[place]) if layers else ("missing", "not tried: the sandbox does not start")

    def tier() -> State:
        return tier_state(tried()[0], require)

    return [
        ("worker processes", worker),
        *((f"sandbox: {name}", functools.partial(layer, place)) for place, name in enumerate(LAYERS)),
        ("sandbox tier", tier),
    ]


def _try() -> tuple[tuple[Layer, ...], str]:
    """The layers, none where the sandbox does not start, and what kept a worker from loading the seed program."""
    layers: tuple[Layer, ...] = ()
    try:
        # With `unsafe` a machine without seccomp shows the other layers too; the packaged program does no harm.
        with Sandbox(unsafe=True) as sandbox:
            layers = sandbox.layers()
            sandbox.describe(library.source("seed"))
    except PrismemError as error:
        return layers, f"{type(error).__name__}: {error}"
    return layers, ""


def layer_state(layer: Layer) -> State:
    """`witnessed` with what was seen, or `missing` with why, what that means and what to do."""
    if layer.state == "witnessed":
        return "witnessed", layer.witness
    means, remedy = _LACK[layer.name]
    return "missing", f"{layer.witness}. Without it {means}: {remedy}"


def tier_state(layers: tuple[Layer, ...], require: Required) -> State:
    """`ok` where the layers make the required tier, else `broken` with those that it lacks."""
    tier: Tier = tier_of(layers)
    needed = STRICT if require == "strict" else STANDARD
    witnessed = {layer.name for layer in layers if layer.state == "witnessed"}
    lacking = [name for name in needed if name not in witnessed]
    if lacking:
        return "broken", f"{tier}, but {require} is required and needs {', '.join(lacking)} too (docs/security.md)"
    further = (
        "" if tier == "strict" else f"; strict needs {', '.join(name for name in STRICT if name not in witnessed)}"
    )
    return "ok", f"{tier}{further}"
