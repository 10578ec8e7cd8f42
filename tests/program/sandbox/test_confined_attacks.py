"""Attack programs run without the static check: each ends as its header says, by the layers of docs/security.md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack_control import LEAK, LEAK_TOGETHER
from attack_runs import Configuration, Runs

USERS = ("root", "ordinary")
ALL_NAMES = Configuration("all names")
ALL_LAYERS = [
    *((ALL_NAMES, user) for user in USERS),
    (Configuration("restricted names", restrict_names=True), "root" if os.geteuid() == 0 else "ordinary"),
]
FEWER_LAYERS = [
    (Configuration("without " + " and ".join(missing), without=missing, brief=True), user)
    for missing in (
        ("landlock",),
        ("namespaces",),
        ("empty_root",),
        ("namespaces", "empty_root"),
        ("own_user",),
        ("copies",),
        ("landlock", "namespaces", "empty_root", "own_user"),
    )
    for user in USERS
    # An ordinary user has no other one to give a worker.
    if (missing, user) != (("own_user",), "ordinary")
]
CONTROL = Configuration(
    "no kernel layer", unsafe=True, without=("seccomp", "landlock", "namespaces", "empty_root", "own_user"), brief=True
)


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
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = [(found["configuration"], found["user"]) for found in parameters if "configuration" in found]
    made = Runs(programs(Path(request.config.getoption("--attacks-dir"))), asked)
    yield made
    made.close()


@pytest.mark.parametrize(("configuration", "user"), ALL_LAYERS, ids=str)
def test_an_attack_ends_as_its_header_says(attack: str, configuration: Configuration, user: str, runs: Runs) -> None:
    run = runs.get(configuration, user)
    expected = wanted(runs.programs[attack])
    if configuration.restrict_names:
        # The import or name that the attack starts with is refused before it gets further.
        expected |= {"contained"}
    assert attack in run.ended, run.broken
    assert run.ended[attack].wrong(expected) is None


@pytest.mark.parametrize(("configuration", "user"), ALL_LAYERS, ids=str)
def test_the_engine_outlives_the_attacks_and_leaves_nothing(
    configuration: Configuration, user: str, runs: Runs
) -> None:
    assert runs.get(configuration, user).broken is None


@pytest.mark.parametrize(("configuration", "user"), FEWER_LAYERS, ids=str)
def test_nothing_leaks_with_layers_missing(configuration: Configuration, user: str, runs: Runs) -> None:
    run = runs.get(configuration, user)
    assert run.broken is None
    assert {run.layers[name] for name in configuration.without} == {"off"}
    wrong = {name: run.ended[name].wrong(wanted(source)) for name, source in runs.of(configuration).items()}
    assert {name: why for name, why in wrong.items() if why} == {}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("configuration", [CONTROL], ids=str)
def test_without_kernel_layers_attacks_leak(configuration: Configuration, user: str, runs: Runs) -> None:
    present = runs.of(configuration).keys()
    if not present:
        pytest.skip("no program in this folder needs the kernel's confinement")
    run = runs.get(configuration, user)
    leaked = {name for name, ended in run.ended.items() if ended.bites()}
    assert leaked
    assert LEAK & present - leaked == set()
    for together in LEAK_TOGETHER[user]:
        assert leaked & together in (set(), together & present)


def test_the_table_says_of_every_program_what_its_header_says(attacks_dir: Path) -> None:
    if not (attacks_dir / "README.md").exists():
        pytest.skip(f"no README.md in {attacks_dir}")
    table = (attacks_dir / "README.md").read_text(encoding="utf-8")
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if re.match(r"\| \w+\.py \|", row)]
    headers = [
        [f"{name}.py", *(match.strip() for match in re.findall(r"^# (?:what|gate|runtime|must):(.*)$", text, re.M))]
        for name, text in programs(attacks_dir).items()
    ]
    assert sorted(rows) == sorted(headers)
