"""Attack programs run without the static check: each ends as its header says, by the layers of docs/security.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attack_control import BITE_AS_ORDINARY_USER, BITE_AS_ROOT
from attack_runs import Configuration, Runs

USERS = ("root", "ordinary")
SLOW = {"limit:cpu", "limit:wall", "limit:memory"}
RESTRICTED = Configuration("restricted", restrict_names=True)
ALL_NAMES = Configuration("all names")
CONTROL = Configuration(
    "no kernel layer", unsafe=True, without=("seccomp", "landlock", "namespaces", "empty_root", "own_user")
)
FEWER_LAYERS = [
    Configuration("without " + " and ".join(missing), without=missing)
    for missing in (
        ("landlock",),
        ("namespaces",),
        ("empty_root",),
        ("namespaces", "empty_root"),
        ("own_user",),
        ("copies",),
        ("landlock", "namespaces", "empty_root", "own_user"),
    )
]


def programs(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_bytes().decode("utf-8", "surrogateescape") for path in sorted(folder.glob("*.py"))}


def wanted(source: str) -> set[str]:
    header = re.search(r"^# runtime:(.*)$", source, re.MULTILINE)
    assert header, "no line '# runtime:'"
    return {word.strip() for word in header[1].split(",")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attack" in metafunc.fixturenames:
        metafunc.parametrize("attack", programs(Path(metafunc.config.getoption("--attacks-dir"))))


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Runs:
    return Runs(programs(Path(request.config.getoption("--attacks-dir"))))


@pytest.fixture(scope="module")
def quick_runs(request: pytest.FixtureRequest) -> Runs:
    """Without the programs that only a limit ends: limits are no layer of the kernel's confinement."""
    every = programs(Path(request.config.getoption("--attacks-dir")))
    return Runs({name: source for name, source in every.items() if wanted(source) - SLOW})


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("configuration", [RESTRICTED, ALL_NAMES], ids=str)
def test_an_attack_ends_as_its_header_says(
    attack: str, configuration: Configuration, user: str, attacks_dir: Path, runs: Runs
) -> None:
    run = runs.get(configuration, user)
    expected = wanted(programs(attacks_dir)[attack])
    if configuration.restrict_names:
        # The import or name that the attack starts with is refused before it gets further.
        expected |= {"contained"}
    assert attack in run.ended, run.broken
    assert run.ended[attack].wrong(expected) is None


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("configuration", [RESTRICTED, ALL_NAMES], ids=str)
def test_the_engine_outlives_the_attacks_and_leaves_nothing(
    configuration: Configuration, user: str, runs: Runs
) -> None:
    assert runs.get(configuration, user).broken is None


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("configuration", FEWER_LAYERS, ids=str)
def test_nothing_leaks_with_a_layer_missing(
    configuration: Configuration, user: str, attacks_dir: Path, quick_runs: Runs
) -> None:
    run = quick_runs.get(configuration, user)
    assert run.broken is None
    assert {name: state for name, state in run.layers.items() if name in configuration.without} == dict.fromkeys(
        configuration.without, "off"
    )
    wrong = {name: run.ended[name].wrong(wanted(source)) for name, source in quick_runs.programs.items()}
    assert {name: why for name, why in wrong.items() if why} == {}


@pytest.mark.parametrize(("user", "named"), [("root", BITE_AS_ROOT), ("ordinary", BITE_AS_ORDINARY_USER)])
def test_without_kernel_layers_the_attacks_bite(user: str, named: set[str], quick_runs: Runs) -> None:
    run = quick_runs.get(CONTROL, user)
    present = named & quick_runs.programs.keys()
    if not present:
        pytest.skip("none of the programs named in attack_control.py is in this folder")
    assert {name: run.ended[name].bites() for name in present if not run.ended[name].bites()} == {}
