"""The comparison of the modes of reuse: what it reads from runs, and that it notices what must not be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismem_core.bench import reuse
from prismem_core.bench.reuse import Cost
from prismem_core.roles.ledger import Ledger
from prismem_core.runs.events import Evaluated, IterationFinished, RunFinished
from prismem_core.runs.run import Manifest, Run, read_run


def make_run(directory: Path, paid: list[int], *, final: str = "n00") -> None:
    """A run whose iterations paid that many calls and embeddings each, the test questions one call more."""
    with Run.create(directory, Manifest("0", {}, {"digest": "d"}, {})) as run:
        ledger = Ledger(directory / "calls.jsonl")
        for iteration, calls in enumerate(paid):
            ledger.begin_iteration(iteration)
            for number in range(calls):
                ledger.record("chat", "answer", f"{iteration}-{number}", 10, 5)
                ledger.record("embedder", "embed", f"{iteration}-{number}", 3, 0)
            with ledger.scope(purpose="diagnostics"):
                ledger.record("chat", "plan", f"{iteration}-d", 1, 1)
            run.append(IterationFinished(iteration, "refinement", None, None, None, None, False, None, None, {}, "n00"))
        run.append(RunFinished(len(paid) - 1, final, "n00", "done"))
        for program in ("n00", final):
            run.append(Evaluated(len(paid) - 1, program, "test", {}))
        with ledger.scope(purpose="test"):
            ledger.record("chat", "answer", "t", 10, 5)
        ledger.close()


def test_costs_are_told_by_iteration_and_for_the_test_questions(tmp_path: Path) -> None:
    make_run(tmp_path / "off", [3, 2])
    seconds = tmp_path / "off.seconds.jsonl"
    seconds.write_text(
        "".join(json.dumps({"step": i, "wall": w, "cpu": w / 2}) + "\n" for i, w in enumerate((4.0, 6.0)))
    )
    found = reuse.costs(read_run(tmp_path / "off"), Ledger(tmp_path / "off/calls.jsonl", read_only=True), seconds)
    assert found == {
        "0": Cost(4, 47, 3, 4.0, 2.0),
        "1": Cost(3, 32, 2, 2.0, 1.0),
        "test": Cost(1, 15, 0, None, None),
    }


def test_runs_that_agree_are_compared_and_savings_are_shares_of_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode, paid in {"off": [9, 9], "paper": [9, 4], "content": [9, 1]}.items():
        make_run(tmp_path / mode, paid)
    assert reuse.main(["--run-root", str(tmp_path), "--only-table"]) == 0
    printed = capsys.readouterr().out
    assert "the journals agree in all 5 events" in printed
    assert "content saves 38.1% of the calls of the task model of off" in printed
    assert "content saves 41.0% of the calls, embedded texts included, of off" in printed
    assert "paper saves 23.8% of the calls of the task model of off" in printed


def test_a_mode_that_pays_for_more_than_it_may_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode, paid in {"off": [9, 9], "paper": [9, 4], "content": [9, 5]}.items():
        make_run(tmp_path / mode, paid)
    assert reuse.main(["--run-root", str(tmp_path), "--only-table"]) == 9
    assert "step 1: content paid 6 calls, paper 5" in capsys.readouterr().out


def test_journals_that_differ_are_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "off", [2])
    make_run(tmp_path / "content", [1], final="n01")
    assert reuse.main(["--run-root", str(tmp_path), "--only-table"]) == 9
    assert "the journals of content and off differ at event 1" in capsys.readouterr().out


def test_a_run_under_way_is_compared_as_far_as_it_came(tmp_path: Path) -> None:
    make_run(tmp_path / "off", [2, 2])
    make_run(tmp_path / "content", [2, 1])
    journal = tmp_path / "off" / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:1]))
    text, wrong = reuse.summarise(tmp_path, reuse.MODES)
    assert wrong == []
    assert "total to 0" in text
    assert "the journals agree in the first 1 events" in text


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    work = "sum(range(3 * 10**6))"
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]); print('done', flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the system has no /proc")
def test_cpu_time_counts_descendants_that_have_ended(busy: subprocess.Popen[bytes]) -> None:
    assert busy.stdout is not None
    assert busy.stdout.readline() == b"done\n"
    seconds = reuse.tree_cpu_seconds(busy.pid)
    assert seconds is not None
    assert 0.03 < seconds < 60


def test_seconds_go_on_where_an_earlier_process_ended(tmp_path: Path) -> None:
    run, seconds, log = tmp_path / "run", tmp_path / "s.jsonl", tmp_path / "log"
    run.mkdir()
    line = '{"event":"iteration_finished"}'
    code = f"open({str(run / 'journal.jsonl')!r}, 'a').write({line!r} + chr(10)); print('written')"
    seconds.write_text('{"step": 0, "wall": 100.0, "cpu": 50.0}\n')
    (run / "journal.jsonl").write_text(line + "\n")
    reuse.follow([sys.executable, "-c", code], run, seconds, log)
    entries = [json.loads(text) for text in seconds.read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [0, 1, 2]
    assert all(entry["wall"] >= 100.0 and entry["cpu"] >= 50.0 for entry in entries)
    assert log.read_text() == "written\n"
    with pytest.raises(reuse.Fault, match="ended with code 3"):
        reuse.follow([sys.executable, "-c", "raise SystemExit(3)"], run, tmp_path / "other.jsonl", log)
