"""The ablation: what it reads from runs, its figures, and that it can be stopped and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismem_core.bench.ablation import command, plan, reading, work
from prismem_core.errors import ArgumentError
from prismem_core.runs.events import Evaluated, IterationFinished, ProgramAdded, RunFinished, RunStarted
from prismem_core.runs.run import Manifest, Run, RunRecord, read_run
from prismem_core.tasks.capability import Capability
from prismem_core.tasks.datasets import write_jsonl
from prismem_core.tasks.history import History
from prismem_core.tasks.task import Dataset, Task
from tests.jobs.conftest import slice_of_sample

F, T = Capability.FACTUAL_RETRIEVAL, Capability.TEMPORAL
ROOT = Path(__file__).resolve().parents[2]
PRIMARY = {"a": F, "b": F, "c": F, "d": T}


def dataset(digest: str = "d0") -> Dataset:
    """One conversation a part, each with three questions of F and one of T, `train/a` to `test/d`."""
    tasks = tuple(
        Task(f"{part}/{letter}", part, "?", "!", (), "type", primary)
        for part in reading.PARTS
        for letter, primary in PRIMARY.items()
    )
    histories = {part: History(part, ()) for part in reading.PARTS}
    return Dataset("made", histories, tasks, digest, {part: (part,) for part in reading.PARTS})


def scores(part: str, values: str) -> dict[str, float]:
    """A score for each letter: digits are tenths, a dash means that the question has none."""
    return {f"{part}/{t}": int(v) / 10 for t, v in zip(PRIMARY, values, strict=True) if v != "-"}


def overall(values: Mapping[str, float]) -> float:
    groups = [[v for t, v in values.items() if PRIMARY[t[-1]] is c] for c in (F, T)]
    means = [sum(group) / len(group) for group in groups if group]
    return sum(means) / len(means)


def make_run(
    root: Path,
    strategy: str,
    seed: int,
    result: str,
    *,
    settings: Mapping[str, Any] | None = None,
    routes: Mapping[str, str] | None = None,
    start: str = "0000",
    failure: Mapping[str, Any] | None = None,
    finished: bool = True,
    commit: str = "",
    overall_of: Callable[[Mapping[str, float]], float] = overall,
) -> Path:
    """A run whose result `n02` scores `result` on the test questions, a tenth more in training, a tenth less in
    validation.
    """
    directory = root / "made" / f"{strategy}-s{seed}"
    extra = {"provenance": {"commit": commit}} if commit else {}
    manifest = Manifest(
        "0",
        {"strategy": strategy, "seed": seed, "T1": 1, **(settings or {})},
        {"digest": "d0", "name": "made"},
        {},
        extra,
    )
    labels = {p: [[f"{p}/{t}", str(c), []] for t, c in PRIMARY.items()] for p in ("train", "valid")}

    def shifted(by: int) -> str:
        return "".join(str(int(v) + by) for v in result.replace("-", "5"))

    with Run.create(directory, manifest) as run:
        run.append(RunStarted(0, strategy, {}, "nobody", "", labels["train"], labels["valid"]))
        for program in ("n00", "n02", "n03"):
            run.append(ProgramAdded(0, program, None, "", f"{program}{result}", "", "", []))
        zero = {**scores("train", start), **scores("valid", start)}
        run.append(Evaluated(0, "n00", "full", zero))
        run.append(Evaluated(1, "n02", "target", {"train/a": 0.9}))
        run.append(Evaluated(1, "n02", "full", {**scores("train", shifted(1)), **scores("valid", shifted(-1))}))
        run.append(Evaluated(2, "n03", "full", {**scores("train", "9999"), **scores("valid", "9999")}))
        if finished:
            run.append(RunFinished(3, "n02", "n01", "done", routes or {}))
            measured = {"n00": "0000", "n02": result, **({"router": "7777"} if routes else {})}
            for program, values in measured.items():
                own = scores("test", values)
                details = {"overall": overall_of(own), "official": 0.5, "recall": None}
                if program == "n02" and failure is not None:
                    run.append(Evaluated(3, program, "test", {}, failure, details))
                else:
                    run.append(Evaluated(3, program, "test", own, None, details))
    return directory


def table(root: Path, *words: str) -> tuple[int, dict[str, Any]]:
    path = root / "results.json"
    given = ["--root", str(root), "--data", "made=made", "--only-table", "--results", str(path), *words]
    code = command.main(given)
    return code, json.loads(path.read_text()) if path.exists() else {}


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data set of the runs that are made up."""
    monkeypatch.setattr(command, "load", lambda path: dataset())


def test_means_run_over_seeds_and_capabilities_count_alike(tmp_path: Path) -> None:
    make_run(tmp_path, "prismem", 0, "3338")
    make_run(tmp_path, "prismem", 1, "5558")
    code, found = table(tmp_path, "--strategies", "prismem", "--seeds", "2")
    assert code == 0
    own = found["data"]["made"]["strategies"]["prismem"]
    assert own["measures"]["test"]["values"] == [0.425, 0.575]
    assert own["measures"]["test"]["mean"] == 0.5
    assert own["measures"]["test"]["deviation"] == pytest.approx(0.106066)
    assert own["measures"]["test_overall"]["values"] == [0.55, 0.65]
    assert own["measures"]["train-test"]["values"] == pytest.approx([0.1, 0.1])
    assert own["measures"]["valid-test_overall"]["values"] == pytest.approx([-0.1, -0.1])
    assert own["measures"]["official"]["mean"] == 0.5
    assert "recall" not in own["measures"]
    assert own["capabilities"]["test"][str(F)]["mean"] == 0.4
    assert own["runs"][0]["integrated"] is True
    assert [run["digests"] for run in own["runs"]] == [["n023338"], ["n025558"]]
    # Over questions each is first averaged over the seeds: 0.4, 0.4, 0.4 and 0.8.
    assert own["over_questions"]["score"]["mean"] == pytest.approx(0.5)
    assert own["over_questions"]["overall"]["mean"] == pytest.approx(0.6)
    assert own["over_questions"]["score"]["n"] == 4
    assert found["data"]["made"]["questions"]["test"] == {"all": 4, str(F): 3, str(T): 1}


def test_differences_pair_the_seeds_that_both_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, result in enumerate(("3338", "5558", "7778")):
        make_run(tmp_path, "prismem", seed, result)
    make_run(tmp_path, "holistic", 1, "4448")
    make_run(tmp_path, "holistic", 2, "8888")
    code, found = table(tmp_path, "--strategies", "holistic", "prismem", "--seeds", "3")
    assert code == 9
    difference = found["data"]["made"]["differences"]["holistic"]
    assert difference["seeds"] == [1, 2]
    assert difference["test"]["score"]["over_seeds"]["values"] == [0.075, -0.075]
    assert difference["test"]["overall"]["over_seeds"]["values"] == [0.05, -0.05]
    assert difference["test"]["score"]["over_questions"]["mean"] == pytest.approx(0)
    assert difference["train"]["score"]["over_seeds"]["values"] == [0.075, -0.075]
    printed = capsys.readouterr()
    assert "| holistic | +0.000 [-0.050, +0.050] |" in printed.out
    assert "1 / 1 of 2" in printed.out
    assert "not in the table: made/holistic-s0 (not started)" in printed.err
    assert found["absent"] == ["made/holistic-s0"]


def test_the_interval_over_questions_is_that_of_the_paired_differences(tmp_path: Path) -> None:
    make_run(tmp_path, "prismem", 0, "4565")
    make_run(tmp_path, "holistic", 0, "3333")
    _, found = table(tmp_path, "--strategies", "prismem", "holistic", "--seeds", "1")
    over_questions = found["data"]["made"]["differences"]["holistic"]["test"]["score"]["over_questions"]
    assert over_questions["mean"] == pytest.approx(0.2)
    assert 0.1 <= over_questions["low"] < 0.2 < over_questions["high"] <= 0.3
    over_seeds = found["data"]["made"]["differences"]["holistic"]["test"]["score"]["over_seeds"]
    assert (over_seeds["low"], over_seeds["high"], over_seeds["n"]) == (None, None, 1)


def test_a_question_without_a_score_is_left_out_of_its_pair(tmp_path: Path) -> None:
    make_run(tmp_path, "prismem", 0, "555-")
    make_run(tmp_path, "holistic", 0, "3337")
    _, found = table(tmp_path, "--strategies", "prismem", "holistic", "--seeds", "1")
    assert found["data"]["made"]["strategies"]["prismem"]["runs"][0]["questions_scored"] == 3
    over_questions = found["data"]["made"]["differences"]["holistic"]["test"]["score"]["over_questions"]
    assert (over_questions["mean"], over_questions["n"]) == (pytest.approx(0.2), 3)


def test_a_router_is_its_programs_together(tmp_path: Path) -> None:
    make_run(tmp_path, "router", 0, "3333", routes={str(T): "n03", str(F): "n02"})
    _, found = table(tmp_path, "--strategies", "router", "--seeds", "1")
    run = found["data"]["made"]["strategies"]["router"]["runs"][0]
    assert (run["result"], run["test"], run["integrated"]) == ("router", 0.7, False)
    assert run["digests"] == ["n023333", "n033333"]
    assert run["train"] == pytest.approx((3 * 0.4 + 0.9) / 4)
    assert run["valid"] == pytest.approx((3 * 0.2 + 0.9) / 4)


def test_a_run_whose_router_was_not_measured_is_not_finished(tmp_path: Path) -> None:
    directory = make_run(tmp_path, "router", 0, "3333", routes={str(T): "n03"})
    journal = directory / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert reading.is_finished(read_run(directory))
    journal.write_bytes(b"".join(line for line in lines if b'"program":"router"' not in line))
    assert not reading.is_finished(read_run(directory))


def test_unfinished_damaged_and_failed_runs_are_named_and_cost_the_others_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, "prismem", 0, "5555")
    make_run(tmp_path, "prismem", 1, "5555", finished=False)
    make_run(tmp_path, "prismem", 2, "5555", failure={"kind": "error", "message": "test/b: it broke", "line": 3})
    (make_run(tmp_path, "prismem", 3, "5555") / "journal.jsonl").write_text("{}\n{}\n")
    code, found = table(tmp_path, "--strategies", "prismem", "--seeds", "4")
    told = capsys.readouterr().err
    assert code == 9
    assert found["data"]["made"]["strategies"]["prismem"]["seeds"] == [0]
    assert "made/prismem-s1 (not finished)" in told
    assert "n02 has no scores on the test questions: test/b: it broke" in told
    assert "prismem-s3/journal.jsonl, line 1" in told


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"T1": 2}}, "they differ in setting T1: {'setting T1': 1} against {'setting T1': 2}"),
        ({"start": "1000"}, "score the same start differently on the train questions"),
        ({"overall_of": lambda own: 0.3}, "made with another map of types"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Mapping[str, Any], said: str
) -> None:
    make_run(tmp_path, "prismem", 0, "5555")
    make_run(tmp_path, "holistic", 0, "5551", **change)
    code, _ = table(tmp_path, "--strategies", "prismem", "holistic", "--seeds", "1")
    assert code in (4, 9)
    assert said in capsys.readouterr().err


def test_runs_of_other_data_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, "prismem", 0, "5555")
    monkeypatch.setattr(command, "load", lambda path: dataset("other"))
    assert table(tmp_path, "--strategies", "prismem", "--seeds", "1")[0] == 4
    assert "was made from other data (made, d0) than the given (made, other)" in capsys.readouterr().err


def test_a_directory_that_holds_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, "prismem", 0, "5555").rename(tmp_path / "made" / "holistic-s0")
    assert table(tmp_path, "--strategies", "holistic", "--seeds", "1")[0] == 4
    assert "holds the run prismem-s0" in capsys.readouterr().err


def test_settings_that_were_asked_for_must_be_those_of_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, "prismem", 0, "5555")
    words = ("--strategies", "prismem", "--seeds", "1", "--set")
    assert table(tmp_path, *words, "T1=1")[0] == 0
    assert table(tmp_path, *words, "T1=2")[0] == 4
    assert "was made with T1=1, not 2; name another --root" in capsys.readouterr().err


def test_without_a_finished_run_there_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert table(tmp_path) == (9, {})
    told = capsys.readouterr().err
    assert "none of the 30 runs can be read, so there is no table" in told
    assert "not in the table: made/prismem-s0 (not started)" in told


def test_a_run_that_failed_is_never_called_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail = [sys.executable, "-c", "print('all is lost'); raise SystemExit(7)", "x"]
    monkeypatch.setattr(work, "_command", lambda place, sets, more: fail)
    words = ["--root", str(tmp_path), "--data", "made=made", "--strategies", "prismem", "--seeds", "2"]
    assert command.main(words) == 9
    told = capsys.readouterr().err
    for seed in (0, 1):
        assert f"not in the table: made/prismem-s{seed} (exit code 7: all is lost" in told
    assert "not started" not in told


@pytest.mark.parametrize("option", ["--root", "--results"])
def test_a_place_that_cannot_be_written_is_told_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.setattr(command, "finish", lambda *given: pytest.fail("a run was started"))
    file = tmp_path / "file"
    file.write_text("")
    for place in (Path("/proc/ab"), file):
        words = {"--root": tmp_path / "root", option: place / "c.json" if option == "--results" else place}
        given = [word for name, value in words.items() for word in (name, str(value))]
        assert command.main([*given, "--data", "sample"]) == 2
        told = capsys.readouterr().err
        assert f"{option}: cannot write in {place}" in told and told.count("\n") == 1


def test_without_the_statistics_library_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "statistics_installed", lambda: False)
    assert table(tmp_path)[0] == 2
    assert "pip install 'prismem-core[statistics]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "splits"),
    [(["x"], []), (["a/b=x"], []), (["a="], []), (["a=x", "a=y"], []), (["a=x"], ["b=y"]), (["a=x"], ["a"])],
)
def test_words_that_name_no_data_are_refused(data: list[str], splits: list[str]) -> None:
    with pytest.raises(ArgumentError, match=r"--data|--split"):
        plan.sources(data, splits)


def test_the_runs_of_a_seed_stand_together_and_known_names_have_their_split(tmp_path: Path) -> None:
    known = plan.sources(["locomo=x.json", "sample"], [])
    assert [source.split for source in known] == ["locomo/dev", None]
    assert [source.path for source in known] == [str(Path("x.json").absolute()), "sample"]
    found = [place.title for place in plan.places(tmp_path, known[:1], ["prismem", "holistic"], 2)]
    assert found == ["locomo/prismem-s0", "locomo/holistic-s0", "locomo/prismem-s1", "locomo/holistic-s1"]


def test_results_hold_nothing_of_the_machine_and_are_compact(tmp_path: Path) -> None:
    make_run(tmp_path, "prismem", 0, "3338")
    table(tmp_path, "--strategies", "prismem", "--seeds", "1")
    text = (tmp_path / "results.json").read_text()
    assert str(tmp_path) not in text
    assert '"seeds": [0],' in text
    assert max(map(len, text.splitlines())) < 500


def test_results_name_the_code_of_their_runs(tmp_path: Path) -> None:
    for seed, commit in enumerate(("abc", "abc", "", "def")):
        make_run(tmp_path, "prismem", seed, "3338", commit=commit)
    _, found = table(tmp_path, "--strategies", "prismem", "--seeds", "4")
    assert found["data"]["made"]["provenance"] == [{"commit": "abc"}, {"commit": "def"}]


def place(root: Path) -> plan.Place:
    return plan.Place(plan.Source("made", "made", None), "prismem", 0, root)


def test_a_run_that_fails_costs_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter(["print('all is lost'); raise SystemExit(7)", "print('fine')"])
    monkeypatch.setattr(work, "_command", lambda place, sets, more: [sys.executable, "-c", next(codes), "x"])
    told: list[str] = []
    two = [place(tmp_path), replace(place(tmp_path), seed=1)]
    failed = work.finish(two, [], [], told.append)
    assert failed == {"made/prismem-s0": f"exit code 7: all is lost (log: {two[0].log})"}
    assert any("made/prismem-s1: finished in" in line for line in told)


def test_an_interrupt_is_handed_on_once_and_waited_for(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(
        "import signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "while not seen: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "print('ended in order after', len(seen), flush=True)\n"
    )
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import sys, tests.bench.conftest\n"
        "from pathlib import Path\n"
        "from prismem_core.bench.ablation import plan, work\n"
        "one = plan.Place(plan.Source('made', 'made', None), 'prismem', 0, Path(sys.argv[1]))\n"
        "try: work.follow([sys.executable, sys.argv[2]], one)\n"
        "except work.Stopped: print('stopped')\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(parent), str(tmp_path), str(child)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )
    log = place(tmp_path).log
    try:
        wait_for(lambda: log.exists() and "ready" in log.read_text(), process)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "stopped\n"
    finally:
        process.kill()
    assert log.read_text() == "ready\nended in order after 1\n"


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 300
    while not ready():
        assert process.poll() is None, "the process ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def cold_start(record: RunRecord) -> list[dict[str, Any]]:
    """The events after the first, up to the end of iteration 2."""
    last = next(n for n, e in enumerate(record.events) if isinstance(e, IterationFinished) and e.iteration == 2)
    return [event.to_json() for event in record.events[1 : last + 1]]


@pytest.mark.slow
def test_an_ablation_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    data, split, root = tmp_path / "slice.jsonl", tmp_path / "split.json", tmp_path / "runs"
    own = slice_of_sample()
    write_jsonl(own, data)
    split.write_text(json.dumps(dict(own.default_split)), encoding="utf-8")
    words = [sys.executable, "-m", "bench.ablation", "--root", str(root), "--data", f"slice={data}"]
    words += ["--split", f"slice={split}", "--strategies", "prismem", "random-case", "--seeds", "1"]
    for pair in ("embedder=hashing", "reranker=false", "T1=2", "T2=1", "T3=0"):
        words += ["--set", pair]
    words += ["--results", str(tmp_path / "results.json")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    journal = root / "slice" / "prismem-s0" / "journal.jsonl"
    first = start()
    try:
        wait_for(lambda: journal.exists() and b"iteration_finished" in journal.read_bytes(), first)
        first.send_signal(signal.SIGINT)
        _, told = first.communicate(timeout=300)
    finally:
        first.kill()
    assert first.returncode == 130, told
    assert "the same command goes on" in told
    assert not reading.is_finished(read_run(journal.parent))

    second = start()
    printed, told = second.communicate(timeout=600)
    assert second.returncode == 0, told
    assert "slice/prismem-s0: resume" in told
    assert "slice/random-case-s0: evolve" in told
    assert "| random-case | 1 |" in printed
    found = json.loads((tmp_path / "results.json").read_text())["data"]["slice"]
    assert list(found["strategies"]) == ["prismem", "random-case"]
    assert found["strategies"]["prismem"]["measures"]["test"]["mean"] > found["start"]["test"]

    # A seed's chance does not depend on the strategy: its runs share the cold start, and are pairs.
    one, other = (cold_start(read_run(root / "slice" / f"{name}-s0")) for name in ("prismem", "random-case"))
    assert one == other
    assert len(one) > 10

    third = start()
    again, told = third.communicate(timeout=300)
    assert told.count("finished before") == 2
    assert again == printed
