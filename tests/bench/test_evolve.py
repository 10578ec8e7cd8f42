"""The simulation of the search: its model, that the real engine searches, the null world, and its command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench import evolve
from bench.simulation import report, search, study
from bench.simulation.kept import Kept
from bench.simulation.search import Budget, SimulatedDesigner, SimulatedLaboratory
from bench.simulation.world import (
    POPULATION,
    SEED_SKILL,
    TRAIN,
    Rates,
    TaskSet,
    World,
    readable,
    skills_of,
    source_of,
)

from prismem_core.errors import ArgumentError
from prismem_core.evaluation.cases import Case
from prismem_core.evaluation.diagnostics_table import Lengths
from prismem_core.evaluation.intervals import statistics_installed
from prismem_core.evolution import engine
from prismem_core.evolution.designer import ParentBrief
from prismem_core.tasks.capability import CAPABILITIES, Capability

ROOT = Path(__file__).resolve().parents[2]
F, T, P, M, A = CAPABILITIES
NULL = next(iter(study.NULL_WORLDS.values())).rates
needs_statistics = pytest.mark.skipif(not statistics_installed(), reason="the extra statistics is not installed")


def test_the_capability_that_is_met_worst_decides_a_score() -> None:
    tasks = TaskSet(
        np.array([0, 0, 1]),
        np.ones((3, 5), dtype=bool),
        np.array([[0, -np.inf, -np.inf, -np.inf, -np.inf], [0, 1, -np.inf, -np.inf, 0], [-np.inf, -2.0, 0, 0, 0]]),
    )
    skills = np.array([0.5, 0.6, 0.7, 0.8, 0.2])
    odds = np.log(skills / (1 - skills))
    worst = [odds[0], odds[4], odds[4]]
    assert tasks.expected(skills) == pytest.approx(1 / (1 + np.exp(-np.array(worst))))
    assert tasks.roots(skills).tolist() == [0, 4, 4]


def test_a_world_has_the_papers_task_counts_and_follows_from_its_seed_alone() -> None:
    world, again, other = World(Rates(), 3), World(Rates(), 3), World(Rates(), 4)
    assert [sum(task.primary == c for task in world.train) for c in CAPABILITIES] == list(TRAIN)
    assert len(world.valid) == 120
    assert np.bincount(world.population.primary).tolist() == list(POPULATION)
    assert world.train == again.train
    assert world.train != other.train
    source = source_of(world.seed_skills)
    assert (world.observed(source) == again.observed(source)).all()
    assert (world.observed(source) != world.observed(source_of(readable(world.seed_skills * 1.01)))).all()


def test_tasks_need_their_primary_and_as_many_others_as_the_rates_say() -> None:
    world = World(Rates(), 0)
    needs, primary = world.population.needs, world.population.primary
    assert needs[np.arange(len(primary)), primary].all()
    counts = np.bincount(needs.sum(axis=1) - 1, minlength=3) / len(primary)
    assert counts == pytest.approx((0.3, 0.5, 0.2), abs=0.03)
    assert np.isneginf(world.population.difficulty[~needs]).all()
    assert np.isfinite(world.population.difficulty[needs]).all()


def test_label_noise_changes_what_the_engine_sees_and_not_what_tasks_need() -> None:
    clean, noisy = World(replace(Rates(), label_noise=0.0), 5), World(replace(Rates(), label_noise=1.0), 5)
    assert (clean.labelled.needs == noisy.labelled.needs).all()
    for i, task in enumerate([*clean.train, *clean.valid]):
        named = {task.primary, *task.secondary}
        assert named == {c for j, c in enumerate(CAPABILITIES) if clean.labelled.needs[i, j]}
    assert [t.secondary for t in clean.train] != [t.secondary for t in noisy.train]
    assert all(t.primary not in t.secondary for t in noisy.train)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 1.0])
def test_observed_scores_have_the_expected_mean_and_the_stated_variance(noise: float) -> None:
    rates = replace(Rates(), noise=noise)
    surprises, spread = [], []
    for seed in range(30):
        world = World(rates, seed)
        mean = world.labelled.expected(world.seed_skills)
        seen = world.observed(source_of(world.seed_skills))
        assert ((seen >= 0) & (seen <= 1)).all()
        surprises.append(seen - mean)
        spread.append(mean * (1 - mean))
    deviation = np.concatenate(surprises)
    wanted = noise * np.concatenate(spread).mean()
    assert deviation.mean() == pytest.approx(0, abs=4 * np.sqrt(wanted / deviation.size) + 1e-12)
    assert (deviation**2).mean() == pytest.approx(wanted, rel=0.1, abs=1e-12)


def test_skills_survive_being_written_down() -> None:
    skills = readable(np.array([0.0, 0.123456789, 0.5, 0.999999, 1.0]))
    assert skills_of(source_of(skills)).tolist() == skills.tolist() == [0.01, 0.123457, 0.5, 0.99, 0.99]


def moves(rates: Rates, root: int, count: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(0)
    start = np.full(5, SEED_SKILL)
    designer = SimulatedDesigner(rates, 0.8)
    return np.array([designer.moved(start, root, rng) - start for _ in range(count)])


def test_trade_offs_help_one_capability_by_3_to_14_points_and_hurt_one_or_two() -> None:
    found = moves(replace(Rates(), tradeoffs=1.0), root=1)
    up, down = found > 0, found < 0
    assert (up.sum(axis=1) == 1).all()
    assert set(down.sum(axis=1)) == {1, 2}
    gains = found[up]
    assert (gains.min(), gains.max()) == pytest.approx((0.03, 0.14), abs=1e-3)
    assert (-found[down].max(), -found[down].min()) == pytest.approx((0.03, 0.14), abs=1e-3)
    assert up[:, 1].mean() == pytest.approx(Rates().success, abs=0.03)
    assert up[:, [0, 2, 3, 4]].mean(axis=0) == pytest.approx(np.full(4, (1 - Rates().success) / 4), abs=0.02)


def test_revisions_without_a_trade_off_are_aimed() -> None:
    found = moves(replace(Rates(), tradeoffs=0.0), root=1)
    assert ((found != 0).sum(axis=1) == 1).all()
    assert (found[:, 1] > 0).mean() == pytest.approx(Rates().success, abs=0.03)
    assert (found[:, [0, 2, 3, 4]] <= 0).all(), "a revision that fails helps nothing"


def test_general_revisions_move_all_capabilities_alike() -> None:
    found = moves(replace(Rates(), tradeoffs=0.0, general=1.0), root=1)
    assert (np.sign(found) == np.sign(found[:, :1])).all()
    assert (np.ptp(found, axis=1) < 2e-6).all()
    assert (found > 0).mean() == pytest.approx(Rates().success, abs=0.03)
    assert np.abs(found).max() == pytest.approx(0.14 * Rates().plain_share, abs=1e-3)


def test_gains_shrink_with_what_is_missing() -> None:
    designer = SimulatedDesigner(replace(Rates(), tradeoffs=1.0, success=1.0), 0.8)
    low, high = np.full(5, 0.35), np.full(5, 0.675)
    gains = [designer.moved(start, 2, np.random.default_rng(7))[2] - start[2] for start in (low, high)]
    assert gains[1] == pytest.approx(gains[0] / 2, abs=1e-5)


def brief(target: Capability | None, cases: list[tuple[Capability, float, Capability]], seed: int = 0) -> ParentBrief:
    shown = tuple(
        Case(f"t{i}", primary, (), "", "", "", score, None, {}, "", (), {search.ROOT: str(root)})
        for i, (primary, score, root) in enumerate(cases)
    )
    accuracy = {F: 0.5, T: 0.4, P: 0.3, M: 0.6, A: 0.7}
    source = source_of(np.full(5, 0.5))
    lengths = Lengths(0.0, 0.0)
    return ParentBrief(
        "refinement", 7, "n00", source, target, accuracy, 0.5, None, lengths, shown, (), (), seed, "paper"
    )


@pytest.mark.parametrize(
    ("target", "cases", "expected"),
    [
        (F, [(F, 0.1, M), (F, 0.2, M), (F, 0.3, F)], M),
        (F, [(F, 0.9, M), (T, 0.1, T)], F),
        (F, [], F),
        (None, [(F, 0.1, F), (A, 0.1, A), (M, 0.9, A)], F),
        (None, [(F, 0.1, A), (A, 0.1, A), (M, 0.1, F)], A),
        (None, [], P),
    ],
    ids=["most named", "no telling case", "no case", "a tie goes to the weaker", "all capabilities", "nothing at all"],
)
def test_a_diagnosis_names_what_the_telling_cases_name_most(
    target: Capability | None, cases: list[tuple[Capability, float, Capability]], expected: Capability
) -> None:
    designer = SimulatedDesigner(replace(Rates(), misreading=0.0), 0.8)
    assert designer.diagnose(brief(target, cases)).capability == expected


def test_readings_are_wrong_as_often_as_the_rates_say_and_the_same_when_asked_again() -> None:
    designer = SimulatedDesigner(Rates(), 0.8)
    read = [designer.diagnose(brief(F, [(F, 0.1, M)], seed)).capability for seed in range(800)]
    assert read == [designer.diagnose(brief(F, [(F, 0.1, M)], seed)).capability for seed in range(800)]
    assert sum(c != M for c in read) / len(read) == pytest.approx(Rates().misreading, abs=0.05)
    assert set(read) == set(CAPABILITIES)


def test_the_real_engine_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert search.evolve is engine.evolve
    world = World(Rates(), 1)
    result = search.search(world, "prismem", Budget())
    archive, laboratory = result.archive, SimulatedLaboratory(world)
    finished = [r.finished for n, r in sorted(archive.iterations.items()) if n and r.finished]
    assert [f.stage for f in finished[:17]] == ["cold_start"] * 5 + ["refinement"] * 12
    refined = [f for f in finished if f.stage == "refinement" and f.program]
    assert refined
    for f in refined:
        assert f.program is not None and f.parent is not None and f.target is not None
        tasks = archive.train_by_capability()[f.target]
        after, before = (laboratory.scores(archive.program(p).source) for p in (f.program, f.parent))
        assert f.retained == (round(sum(after[t] - before[t] for t in tasks) / len(tasks), 9) > 0)
    assert search.found(world, result).final == pytest.approx(world.worth(skills_of(result.source)))


def test_a_merge_takes_gains_by_fidelity_and_losses_by_interference() -> None:
    rates = replace(Rates(), least_fidelity=1.0, interference=0.5, noise=0.0)
    merged = 0
    for seed in range(20):
        world = World(rates, seed)
        archive = search.search(world, "prismem", Budget()).archive
        if archive.plan is None:
            continue
        base = skills_of(archive.program(archive.plan.base).source)
        differences = [skills_of(archive.program(archive.specialists[c]).source) - base for c in archive.plan.pairs]
        laboratory = SimulatedLaboratory(world)
        factors = []
        for c, task in archive.plan.pairs.items():
            scores = [
                laboratory.scores(archive.program(p).source)[task] for p in (archive.specialists[c], archive.plan.base)
            ]
            factors.append(1.0 if scores[0] > scores[1] else rates.blind_factor)
        gain = np.max([f * d for f, d in zip(factors, differences, strict=True)] + [np.zeros(5)], axis=0)
        loss = np.max([-0.5 * d for d in differences] + [np.zeros(5)], axis=0)
        first = archive.iterations[archive.plan.iteration].attempts[0]
        assert first.program is not None
        assert skills_of(archive.program(first.program).source) == pytest.approx(base + gain - loss, abs=2e-6)
        merged += 1
    assert merged >= 5


def test_in_the_null_world_without_noise_no_strategy_differs() -> None:
    for seed in range(4):
        world = World(replace(NULL, noise=0.0), seed)
        finals = {s: search.found(world, search.search(world, s, Budget(T3=0))).final for s in study.STRATEGIES}
        assert len(set(finals.values())) == 1, finals
        assert finals["prismem"] > world.worth(world.seed_skills)


def test_in_the_null_world_with_noise_aiming_gains_nothing() -> None:
    gains = []
    for seed in range(12):
        world = World(NULL, seed)
        runs = [search.found(world, search.search(world, s, Budget(T3=0))).final for s in ("prismem", "holistic")]
        gains.append(100 * (runs[0] - runs[1]))
    # With a deviation of about 3 points a seed, twelve seeds show an advantage of 3 points beyond doubt.
    assert np.mean(gains) < 2


def test_results_do_not_depend_on_the_number_of_processes() -> None:
    wanted = {study.Setting(budget=Budget(1, 2, 1)): 12, study.Setting(NULL, Budget(1, 1, 0)): 3}
    with study.processes(1) as one, study.processes(2) as two:
        first, second = study.simulate(one, wanted), study.simulate(two, wanted)
    assert first == second
    assert [len(runs["holistic"]) for runs in first.values()] == [12, 3]


def test_what_was_kept_is_not_simulated_again_and_a_damaged_part_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, kept = {study.Setting(budget=Budget(1, 1, 0)): 11}, Kept(tmp_path)
    with study.processes(1) as pool:
        first = study.simulate(pool, wanted, kept=kept)
        files = sorted(tmp_path.iterdir())
        assert len(files) == 2
        monkeypatch.setattr(pool, "submit", lambda *work: pytest.fail(f"{work} was simulated again"))
        assert study.simulate(pool, wanted, kept=Kept(tmp_path)) == first
        monkeypatch.undo()
        before = files[0].read_bytes()
        files[0].write_bytes(before[: len(before) // 2])
        assert study.simulate(pool, wanted, kept=Kept(tmp_path)) == first
    assert files[0].read_bytes() == before
    assert kept.read(study.Setting(), range(10)) is None


def test_the_share_of_trade_offs_is_the_calibrated_one() -> None:
    with study.processes(1) as pool:
        counts = study.count_revisions(pool, study.MAIN.rates, range(500, 520))
    assert counts.all == 400
    assert counts.share == pytest.approx(study.CALIBRATED_SHARE, abs=0.08)
    assert counts.idle_helpful <= counts.idle <= counts.all


@pytest.mark.parametrize("bad", [{"tradeoffs": 1.5}, {"noise": -0.1}, {"secondaries": (0.5, 0.5, 0.5)}])
def test_rates_that_cannot_be_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(bad))}: expected"):
        replace(Rates(), **bad)  # type: ignore[arg-type]


@needs_statistics
def test_the_command_writes_a_record_that_its_tables_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "simulation.json"
    assert evolve.main(["--quick", "--seeds", "2", "--workers", "1", "--results", str(file)]) == 0
    printed = capsys.readouterr().out
    record = json.loads(file.read_text())
    assert printed == report.markdown(record)
    assert record["null"]["no noise, T3 = 0"]["prismem_minus"]["holistic"]["mean"] == 0.0
    assert evolve.main(["--table", str(file)]) == 0
    assert capsys.readouterr().out == printed
    assert [path.name for path in tmp_path.iterdir()] == ["simulation.json"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--table", "absent.json"], "absent.json"),
        (["--table", str(Path(__file__))], "no record of this program"),
        (["--quick", "--results", "absent/simulation.json"], "there is no directory absent"),
        (["--quick", "--keep", str(Path(__file__))], "is a file; name a directory"),
        (["--seeds", "0"], "a whole number above 0"),
        (["--seeds", "many"], "a whole number above 0"),
    ],
)
def test_wrong_arguments_are_told_before_anything_runs(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = evolve.main(arguments)
    except SystemExit as end:
        code = int(str(end.code))
    assert code != 0
    assert said in capsys.readouterr().err


def test_a_record_of_a_thousand_brackets_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep.json").write_text("[" * 2000)
    assert evolve.main(["--table", str(tmp_path / "deep.json")]) != 0
    assert "no record of this program" in capsys.readouterr().err


@needs_statistics
def test_an_interrupt_ends_the_study_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "simulation.json"
    command = [sys.executable, "-m", "bench.evolve", "--quick", "--seeds", "400", "--results", str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, start_new_session=True)
    assert process.stderr is not None
    process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"interrupted; nothing was written" in said
    assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("a worker outlived the study")


def test_the_document_shows_the_committed_results() -> None:
    record = json.loads((ROOT / "bench" / "results" / "simulation.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    assert report.markdown(record).strip() in text
    assert record["rates"] == json.loads(json.dumps(vars(study.MAIN.rates)))
    assert record["worlds"]["main"]["seeds"] >= 1000
