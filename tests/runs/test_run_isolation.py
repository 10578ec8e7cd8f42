"""What stands in a manifest of what confined the programs: the weakest of all sessions, whole or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismem_core.errors import RunError
from prismem_core.runs.isolation import Isolation, isolation_from_json, weakest
from prismem_core.runs.run import MANIFEST, Manifest, Run, read_manifest

SEEN, GONE = {"state": "witnessed", "witness": "tried"}, {"state": "missing", "witness": "the kernel has none"}
STRICT = Isolation("strict", False, {"seccomp": SEEN, "landlock": SEEN, "namespaces": SEEN})
NO_LANDLOCK = Isolation("standard", False, {**STRICT.layers, "landlock": GONE}, ("landlock",))
NO_NAMESPACES = Isolation("standard", False, {**STRICT.layers, "namespaces": GONE}, ("namespaces",))
UNCONFINED = Isolation("weak", True, {**STRICT.layers, "seccomp": GONE}, ("seccomp",))


def manifest(isolation: Isolation) -> Manifest:
    return Manifest("0", {}, {"digest": "d"}, {}, {}, isolation.to_json())


def test_a_layer_counts_where_every_session_had_it() -> None:
    both = weakest((NO_LANDLOCK, STRICT, NO_NAMESPACES))
    assert both.tier == "standard" and both.missing == ("landlock", "namespaces")
    assert both.layers == {"seccomp": SEEN, "landlock": GONE, "namespaces": GONE}
    assert weakest((STRICT, UNCONFINED, STRICT)) == UNCONFINED
    assert weakest((UNCONFINED, NO_LANDLOCK)) == Isolation(
        "weak", True, {"seccomp": GONE, "landlock": GONE, "namespaces": SEEN}, ("seccomp", "landlock")
    )
    assert weakest((STRICT,)) == STRICT


@pytest.mark.parametrize("isolation", [STRICT, NO_LANDLOCK, UNCONFINED])
def test_it_comes_back_from_json(isolation: Isolation) -> None:
    assert isolation_from_json(json.loads(json.dumps(isolation.to_json()))) == isolation


def test_a_run_keeps_the_weakest_and_its_journal_stays(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", manifest(NO_LANDLOCK)):
        pass
    for session, tier, missing in (
        (STRICT, "standard", ["landlock"]),
        (NO_NAMESPACES, "standard", ["landlock", "namespaces"]),
        (UNCONFINED, "weak", ["seccomp", "landlock", "namespaces"]),
        (STRICT, "weak", ["seccomp", "landlock", "namespaces"]),
    ):
        with Run.open(tmp_path / "run") as run:
            run.confine(session)
            assert run.manifest == read_manifest(tmp_path / "run")
        found = read_manifest(tmp_path / "run").isolation
        assert (found["tier"], found["missing"]) == (tier, missing)
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == b""
    assert not list((tmp_path / "run").glob("*.tmp"))


def test_an_equal_session_writes_nothing(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", manifest(NO_LANDLOCK)) as run:
        path = tmp_path / "run" / MANIFEST
        before = path.stat().st_ino
        run.confine(NO_LANDLOCK)
        assert path.stat().st_ino == before


def test_a_run_that_recorded_nothing_is_weak(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", Manifest("0", {}, {"digest": "d"}, {})):
        pass
    path = tmp_path / "run" / MANIFEST
    value = json.loads(path.read_bytes())
    del value["isolation"]
    path.write_text(json.dumps(value), encoding="utf-8")
    found = isolation_from_json(read_manifest(tmp_path / "run").isolation)
    assert found.tier == "weak" and "recorded no layers" in found.words() and "--unsafe" not in found.words()
    with Run.open(tmp_path / "run") as run:
        run.confine(STRICT)
    assert read_manifest(tmp_path / "run").isolation["tier"] == "weak"


@pytest.mark.parametrize(
    "damage",
    [{"tier": "safe"}, {"unsafe": 0}, {"layers": ["seccomp"]}, {"layers": [{"name": "seccomp"}]}, {"missing": None}],
)
def test_a_damaged_one_is_refused(damage: dict[str, object], tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", manifest(STRICT)):
        pass
    path = tmp_path / "run" / MANIFEST
    value = json.loads(path.read_bytes())
    value["isolation"] |= damage
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(RunError, match="isolation is damaged"):
        read_manifest(tmp_path / "run")


def test_words_name_the_tier_and_what_is_missing() -> None:
    assert STRICT.words() == "strict; layers missing: none"
    assert NO_LANDLOCK.words() == "standard; layers missing: landlock"
    assert UNCONFINED.words().startswith("WEAK: programs ran WITHOUT kernel confinement (--unsafe-no-sandbox)")
    assert "seccomp" in UNCONFINED.words()
    told = Isolation("strict", True, STRICT.layers)
    assert told.marked and "--unsafe-no-sandbox" in told.words()
    assert not STRICT.marked and not NO_LANDLOCK.marked
