"""The result of a run as one file: a program like any other, with all that should be known of it and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismem_core.errors import RunError, SettingsError
from prismem_core.evolution.laboratory import SilentObserver
from prismem_core.jobs.evaluation_job import evaluate_programs
from prismem_core.jobs.evolution_job import EvolutionJob, start_run, start_source
from prismem_core.jobs.export_job import export_program, exported
from prismem_core.jobs.reports import load_report
from prismem_core.program.manifest import split_manifest
from prismem_core.program.program import Program
from prismem_core.program.sandbox import Sandbox
from prismem_core.program.syntax import MAX_BYTES
from prismem_core.program.validation import validate
from prismem_core.runs.events import ProgramAdded, RunFinished
from prismem_core.runs.run import read_run

Make = Callable[..., EvolutionJob]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make_job: Make) -> Path:
    return start_run(tmp_path_factory.mktemp("runs") / "whole", make_job(), SilentObserver())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    return export_program(finished, tmp_path_factory.mktemp("exports") / "result.py")


def cut(finished: Path, directory: Path, keep: Callable[[dict[str, Any]], bool]) -> Path:
    """A run with the events before the first that is not to be kept."""
    shutil.copytree(finished, directory, ignore=shutil.ignore_patterns("cache"))
    lines = []
    for line in (finished / "journal.jsonl").read_bytes().splitlines(keepends=True):
        if not keep(json.loads(line)):
            break
        lines.append(line)
    (directory / "journal.jsonl").write_bytes(b"".join(lines))
    return directory


def test_the_manifest_says_what_the_report_says(finished: Path, file: Path) -> None:
    report = load_report(finished)
    values, source = split_manifest(file.read_text(encoding="utf-8"))
    assert values is not None
    final = report.final
    assert values["program"] == final == values["run"]["result"]
    assert values["digest"] == Program(source).digest
    assert source == (finished / "programs" / f"{final}-{values['digest'][:8]}.py").read_text(encoding="utf-8")
    assert values["prismem_core"] == report.data["version"]
    assert values["run"]["data"]["digest"] == report.data["data"]["digest"]
    assert values["roles"] == report.data["roles"]
    assert values["settings"]["embedder"] == "hashing"
    assert values["settings"]["segment_chars"] == 12_000
    assert values["scored_by"] == "offline score"
    for part in ("train", "valid", "test"):
        known = report.data["scores"][part][final]
        assert values["scores"][part]["score"] == known["score"]
        assert values["scores"][part]["questions"] == known["questions"] > 0
        capabilities = values["scores"][part]["capabilities"]
        assert {c: own["score"] for c, own in capabilities.items()} == {
            c: own["score"] for c, own in known["capabilities"].items()
        }
    measured = report.data["scores"]["test"][final]
    assert {key: values["scores"]["test"][key] for key in ("scored", "left_out", "over", "recall")} == {
        key: measured[key] for key in ("scored", "left_out", "over", "recall")
    }
    line = [one["program"] for one in values["lineage"]]
    assert (line[0], line[-1]) == ("n00", final)
    parents = {entry["program"]: entry["parent"] for entry in report.data["lineage"]}
    assert [parents[name] for name in line[1:]] == line[:-1]


def test_the_bytes_depend_on_the_run_alone(finished: Path, file: Path, make_job: Make, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "whole"
    shutil.copytree(finished, moved)
    again = export_program(moved, tmp_path / "again.py")
    assert again.read_bytes() == file.read_bytes()
    repeated = start_run(tmp_path / "whole", make_job(), SilentObserver())
    assert export_program(repeated, tmp_path / "repeated.py").read_bytes() == file.read_bytes()


def test_no_place_of_the_machine_stands_in_it(finished: Path, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert str(finished.parent) not in text
    assert "/tmp" not in text and str(Path.home()) not in text


def test_servers_are_not_named(finished: Path) -> None:
    record = read_run(finished)
    named = {**record.manifest.roles, "chat": "openai:big/model@http://inner.host:8000/v1#0123456789ab"}
    extra = {**record.manifest.extra, "scoring": "judge score (openai:m@https://other.host/v1/judge-1)"}
    text = exported(replace(record, manifest=replace(record.manifest, roles=named, extra=extra)), "n00")
    values, _ = split_manifest(text)
    assert values is not None
    assert values["roles"]["chat"] == "openai:big/model#0123456789ab"
    assert "host" not in text.split("# end of the manifest")[0]


def test_it_is_a_program_like_any_other(
    finished: Path, file: Path, make_job: Make, small_data: Path, tmp_path: Path
) -> None:
    values, source = split_manifest(file.read_text(encoding="utf-8"))
    assert values is not None
    with Sandbox() as sandbox:
        assert validate(start_source(str(file)), sandbox=sandbox).code == "ok"
    job = make_job()
    result = evaluate_programs([str(file)], str(small_data), job.parts, "test", job.job)
    assert result["programs"][str(file)]["score"] == pytest.approx(values["scores"]["test"]["score"], abs=1e-12)
    # Its scores, those on test questions among them, are not shown to whoever goes on from it.
    further = replace(make_job(evolution={"T1": 1, "T2": 0, "T3": 0}), start=start_source(str(file)))
    run = start_run(tmp_path / "further", further, SilentObserver())
    start = next(e for e in read_run(run).events if isinstance(e, ProgramAdded))
    assert start.source == source


def test_a_file_that_is_there_is_kept_unless_it_is_to_be_replaced(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("precious", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"mine.py is there already; .*--force"):
        export_program(finished, path)
    assert path.read_text(encoding="utf-8") == "precious"
    assert export_program(finished, path, force=True).stat().st_size > 1000
    assert [one.name for one in tmp_path.iterdir()] == ["mine.py"]


def test_a_place_that_cannot_be_written(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        export_program(finished, tmp_path / "missing" / "a.py")
    with pytest.raises(SettingsError, match="is a folder"):
        export_program(finished, tmp_path)


def test_the_default_name(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = export_program(finished, program="n00")
    assert path == Path("whole-n00.py")
    assert split_manifest(path.read_text(encoding="utf-8"))[1] == start_source(None)


def test_other_programs_of_a_run(finished: Path, tmp_path: Path) -> None:
    values, _ = split_manifest(export_program(finished, tmp_path / "start.py", "n00").read_text(encoding="utf-8"))
    assert values is not None
    assert [one["program"] for one in values["lineage"]] == ["n00"]
    assert values["run"]["result"] != "n00"
    with pytest.raises(RunError, match=r"no program 'n99'; it has: n00, n01"):
        export_program(finished, tmp_path / "a.py", "n99")


def test_a_run_without_a_result(finished: Path, tmp_path: Path) -> None:
    begun = cut(finished, tmp_path / "begun", lambda event: event["event"] != "run_finished")
    with pytest.raises(RunError, match=r"no result yet: go on with `prismem resume .*--program n\d\d"):
        export_program(begun, tmp_path / "a.py")
    values, _ = split_manifest(export_program(begun, tmp_path / "a.py", "n01").read_text(encoding="utf-8"))
    assert values is not None
    assert values["run"]["finished"] is False
    assert values["scores"]["test"] is None
    empty = cut(finished, tmp_path / "empty", lambda event: False)
    with pytest.raises(RunError, match=r"no result yet: go on with `prismem resume [^`]*`$"):
        export_program(empty, tmp_path / "b.py")
    with pytest.raises(RunError, match="it has: none yet"):
        export_program(empty, tmp_path / "b.py", "n00")


def test_a_run_that_ends_with_a_program_a_capability(finished: Path, tmp_path: Path) -> None:
    directory = cut(finished, tmp_path / "routed", lambda event: event["event"] != "run_finished")
    last = max(json.loads(line)["index"] for line in (directory / "journal.jsonl").read_bytes().splitlines())
    event = RunFinished(9, "n01", "n01", "done", {"factual_retrieval": "n00", "temporal": "n01"})
    line = json.dumps({**event.to_json(), "index": last + 1, "time": "2026-01-01T00:00:00Z"})
    with (directory / "journal.jsonl").open("a", encoding="utf-8") as journal:
        journal.write(line + "\n")
    with pytest.raises(RunError, match=r"factual_retrieval: n00, temporal: n01.*--program n01"):
        export_program(directory, tmp_path / "a.py")
    assert export_program(directory, tmp_path / "a.py", "n01").exists()


def test_a_program_of_the_greatest_length_stays_a_program(finished: Path) -> None:
    record = read_run(finished)
    source = start_source(None)
    source += "#" * (MAX_BYTES - 12_000 - len(source))
    events = [
        replace(e, source=source, summary="long " * 3000) if isinstance(e, ProgramAdded) and e.program == "n00" else e
        for e in record.events
    ]
    text = exported(replace(record, events=tuple(events)), "n00")
    values, body = split_manifest(text)
    assert values is not None and values["lineage_shortened"]
    assert body == source
    assert len(text.encode()) <= MAX_BYTES
