"""Jobs run programs confined as they are asked to, refuse otherwise, and every result says what confined them."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import prismem_core
from prismem_core.digests import digest
from prismem_core.errors import ProgramError, SandboxError, SettingsError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.evolution_job import EvolutionJob, resume_run, start_run
from prismem_core.jobs.isolation import confine
from prismem_core.jobs.reports import load_report, write_markdown
from prismem_core.jobs.settings import JobSettings, build_job_settings, load_job_settings
from prismem_core.jobs.workbench import Workbench
from prismem_core.program import library
from prismem_core.program.program import Program
from prismem_core.program.sandbox import Sandbox
from prismem_core.runs.events import Event, IterationFinished
from prismem_core.runs.isolation import Isolation
from prismem_core.runs.report.terminal import render
from prismem_core.runs.run import read_manifest
from prismem_core.tasks.datasets import load

Make = Callable[..., EvolutionJob]
LeaveOff = Callable[..., None]
FAST = {"embedder": "hashing", "reranker": False}
SHORT = {"T1": 2, "T2": 0, "T3": 0}
SEED = library.source("seed")
# The static check refuses it; a sandbox without restricted names would run it.
UNCHECKED = SEED.replace("class Memory:\n", "import os\n\n\nclass Memory:\n", 1)


@pytest.fixture
def strict_here() -> None:
    with Sandbox() as sandbox:
        if sandbox.tier != "strict":
            pytest.skip("this machine lacks layers of the tier strict")


class Stops(SilentObserver):
    """Interrupts the job when its first iteration has ended."""

    def on_event(self, event: Event) -> None:
        if isinstance(event, IterationFinished) and event.iteration == 1:
            raise KeyboardInterrupt


def stopped(run: Path, job: EvolutionJob, **more: Any) -> Path:
    with pytest.raises(KeyboardInterrupt):
        start_run(run, job, Stops(), **more)
    return run


def history(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def isolation(run: Path) -> dict[str, Any]:
    return dict(read_manifest(run).isolation)


def shown(run: Path) -> str:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(load_report(run), 140, short=True))
    console.file.close()
    return console.export_text()


def test_manifest_and_reports_name_tier_and_layers_also_when_all_is_well(tmp_path: Path, make_job: Make) -> None:
    told: list[Isolation] = []
    run = start_run(
        tmp_path / "run", make_job(evolution={"T1": 0, "T2": 0, "T3": 0}), SilentObserver(), on_isolation=told.append
    )
    with confine() as here:
        expected = here.isolation
    assert told == [expected]
    found = isolation(run)
    assert found == expected.to_json() == load_report(run).data["isolation"]
    [seccomp] = [layer for layer in found["layers"] if layer["name"] == "seccomp"]
    assert seccomp["state"] == "witnessed" and seccomp["witness"]
    line = f"isolation: {expected.words()}"
    assert line in write_markdown(run, load_report(run)).read_text(encoding="utf-8")
    assert line in shown(run)
    assert not expected.marked and "UNSAFE" not in line


def test_a_run_keeps_the_weakest_tier_and_the_journal_does_not_change(
    tmp_path: Path, make_job: Make, leave_off: LeaveOff, strict_here: None
) -> None:
    job = make_job(evolution=SHORT)
    whole = start_run(tmp_path / "whole", job, SilentObserver())
    assert isolation(whole)["tier"] == "strict" and isolation(whole)["missing"] == []
    run = stopped(tmp_path / "run", job)
    leave_off("landlock")
    resume_run(run, SilentObserver())
    assert (isolation(run)["tier"], isolation(run)["missing"]) == ("standard", ["landlock"])
    assert history(run) == history(whole)
    assert "isolation: standard; layers missing: landlock" in write_markdown(run, load_report(run)).read_text()


def test_what_was_lowered_stays_low(tmp_path: Path, make_job: Make, leave_off: LeaveOff, strict_here: None) -> None:
    leave_off("landlock", "namespaces", "empty_root")
    run = stopped(tmp_path / "run", make_job(evolution=SHORT))
    before = isolation(run)
    assert before["tier"] == "standard" and set(before["missing"]) >= {"landlock", "namespaces", "empty_root"}
    leave_off()
    resume_run(run, SilentObserver())
    assert isolation(run) == before


def test_a_strict_run_goes_on_lower_only_when_told(
    tmp_path: Path, make_job: Make, leave_off: LeaveOff, strict_here: None
) -> None:
    run = stopped(tmp_path / "run", make_job({"sandbox_require": "strict"}, evolution=SHORT))
    before = (run / "run.json").read_bytes(), (run / "journal.jsonl").read_bytes()
    leave_off("landlock")
    with pytest.raises(SandboxError, match=r"'strict'.*tier is standard.*landlock.*--require standard") as refusal:
        resume_run(run, SilentObserver())
    assert refusal.value.exit_code == 8
    with pytest.raises(SettingsError, match="contradict"):
        resume_run(run, SilentObserver(), unsafe=True)
    assert ((run / "run.json").read_bytes(), (run / "journal.jsonl").read_bytes()) == before
    resume_run(run, SilentObserver(), require="standard")
    assert isolation(run)["tier"] == "standard"
    assert read_manifest(run).extra["job"]["sandbox_require"] == "strict", "the next session is asked again"


def test_without_seccomp_nothing_runs_and_nothing_is_left(
    tmp_path: Path, make_job: Make, leave_off: LeaveOff, small_data: Path
) -> None:
    leave_off("seccomp")
    ran: list[str] = []
    with pytest.raises(SandboxError, match=r"seccomp.*WSL2.*--unsafe-no-sandbox") as refusal:
        start_run(tmp_path / "run", make_job(), SilentObserver(), ran.append)
    assert refusal.value.exit_code == 8
    assert not (tmp_path / "run").exists() and ran == []
    with pytest.raises(SandboxError, match="seccomp"):
        evaluate_programs(["seed"], str(small_data), None, "all", build_job_settings(FAST))


def test_an_unconfined_run_is_marked_for_good(tmp_path: Path, make_job: Make, leave_off: LeaveOff) -> None:
    job = make_job(evolution=SHORT)
    whole = start_run(tmp_path / "whole", job, SilentObserver())
    leave_off("seccomp")
    run = stopped(tmp_path / "run", job, unsafe=True)
    assert (isolation(run)["tier"], isolation(run)["unsafe"]) == ("weak", True)
    with pytest.raises(SandboxError, match="seccomp"):
        resume_run(run, SilentObserver())  # each session is told anew
    leave_off()
    resume_run(run, SilentObserver())
    assert (isolation(run)["tier"], isolation(run)["unsafe"]) == ("weak", True)
    assert history(run) == history(whole)
    words = "WEAK: programs ran WITHOUT kernel confinement (--unsafe-no-sandbox)"
    lines = write_markdown(run, load_report(run)).read_text(encoding="utf-8").splitlines()
    assert lines[2].startswith(f"**{words}"), "before anything else"
    assert sum(words in line for line in lines) == 2
    assert load_report(run).data["isolation"]["tier"] == "weak"
    assert words in shown(run)


def test_an_evaluation_says_what_confined_it(
    tmp_path: Path, small_data: Path, leave_off: LeaveOff, strict_here: None
) -> None:
    rows = tmp_path / "rows.jsonl"
    settings = build_job_settings(FAST)
    for layers, unsafe, tier in (
        ((), False, "strict"),
        (("landlock",), False, "standard"),
        (("seccomp",), True, "weak"),
    ):
        leave_off(*layers)
        result = evaluate_programs(["seed"], str(small_data), None, "train", settings, None, rows, unsafe=unsafe)
        found = result["isolation"]
        assert (found["tier"], found["unsafe"], tuple(found["missing"][:1])) == (tier, unsafe, layers)
        assert {json.loads(line)["tier"] for line in rows.read_text(encoding="utf-8").splitlines()} == {tier}


def test_the_flag_marks_results_also_where_it_was_not_needed(small_data: Path) -> None:
    result = evaluate_programs(["seed"], str(small_data), None, "train", build_job_settings(FAST), unsafe=True)
    assert result["isolation"]["unsafe"] is True
    assert "seccomp" not in result["isolation"]["missing"]


def test_an_unconfined_session_fills_no_cache_of_others(tmp_path: Path, make_job: Make, small_data: Path) -> None:
    job = replace(make_job(evolution=SHORT), cache=str(tmp_path / "cache"))
    with pytest.raises(SettingsError, match="--cache"):
        start_run(tmp_path / "run", job, SilentObserver(), unsafe=True)
    with pytest.raises(SettingsError, match="--cache"):
        evaluate_programs(
            ["seed"], str(small_data), None, "all", build_job_settings(FAST), tmp_path / "cache", unsafe=True
        )
    assert list(tmp_path.iterdir()) == []


def test_no_setting_and_no_variable_turns_the_sandbox_off(
    tmp_path: Path, leave_off: LeaveOff, monkeypatch: pytest.MonkeyPatch, small_data: Path
) -> None:
    assert not [name for name in JobSettings.model_fields if "unsafe" in name]
    file = tmp_path / "settings.toml"
    for key in ("unsafe", "unsafe_no_sandbox"):
        file.write_text(f"[job]\n{key} = true\n", encoding="utf-8")
        with pytest.raises(SettingsError, match=key):
            load_job_settings(file, {}, {})
    with pytest.raises(SettingsError, match="sandbox_require"):
        build_job_settings({"sandbox_require": "weak"})
    leave_off("seccomp")
    for name in ("PRISMEM_UNSAFE", "PRISMEM_UNSAFE_NO_SANDBOX", "UNSAFE_NO_SANDBOX", "PRISMEM_SANDBOX_REQUIRE"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(SandboxError):
        evaluate_programs(["seed"], str(small_data), None, "train", build_job_settings(FAST))


@pytest.mark.parametrize("unsafe", [False, True])
def test_other_systems_are_refused_with_the_flag_too(monkeypatch: pytest.MonkeyPatch, unsafe: bool) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(SandboxError, match=r"Linux only.*--unsafe-no-sandbox does not help on darwin.*WSL2"):
        confine(unsafe=unsafe)


# What follows holds that without a confinement no program runs that the static check refuses.


def test_unconfined_programs_are_checked_at_every_door(tmp_path: Path, leave_off: LeaveOff, small_data: Path) -> None:
    leave_off("seccomp")
    with confine(unsafe=True) as confinement:
        with pytest.raises(ProgramError, match="os") as refusal:
            confinement.sandbox.describe(UNCHECKED)
        assert refusal.value.code == "forbidden_import"
        with pytest.raises(ProgramError, match="os"):
            confinement.sandbox.open(UNCHECKED, None)  # type: ignore[arg-type]
    file = tmp_path / "program.py"
    file.write_text(UNCHECKED, encoding="utf-8")
    with pytest.raises(ProgramError, match="os"):
        evaluate_programs([str(file)], str(small_data), None, "all", build_job_settings(FAST), unsafe=True)


def test_an_interface_that_is_known_already_opens_no_door(leave_off: LeaveOff, small_data: Path) -> None:
    """A stored interface spares `describe`, a revision may join its parent's memory: both are checked all the same."""
    leave_off("seccomp")
    dataset = load(str(small_data))
    settings = build_job_settings(FAST)
    revised = SEED.replace("        return ", "        print(query.__class__.__mro__)\n        return ", 1)
    with confine(unsafe=True) as confinement, Workbench(dataset, settings, confinement=confinement) as bench:
        pipeline = bench.evaluator.pipeline
        known = pipeline.interface(Program(SEED))
        assert bench.evaluator.evaluate(Program(SEED), [dataset.tasks[0].id]).failure is None
        for source, told in ((UNCHECKED, "os"), (revised, "__mro__")):
            bench.cache.put_json("interface", digest("interface", source), known.to_dict())
            with pytest.raises(ProgramError, match=told):
                bench.evaluator.evaluate(Program(source), [dataset.tasks[0].id])
            with pytest.raises(ProgramError, match=told):
                pipeline.extract(Program(source), dataset.histories)


def test_a_start_is_checked(tmp_path: Path, make_job: Make, leave_off: LeaveOff) -> None:
    leave_off("seccomp")
    with pytest.raises(ProgramError, match="os"):
        start_run(tmp_path / "run", replace(make_job(), start=UNCHECKED), SilentObserver(), unsafe=True)
    assert not (tmp_path / "run").exists()


def test_jobs_and_commands_have_one_door_to_a_sandbox() -> None:
    """Who opens a sandbox without `confine` could forget the check; the examination runs our own programs alone."""
    package = Path(prismem_core.__file__).parent
    opening = []
    for path in sorted(
        p for room in ("jobs", "cli", "evolution", "evaluation", "pipeline") for p in (package / room).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Sandbox":
                opening.append(path.relative_to(package).as_posix())
    assert {path for path in opening if not path.endswith("examination.py")} == {"jobs/isolation.py"}
