"""Every job in small: data, checks, timing, records and reports, with the peers that are installed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismem_core.bench import data, report, run, verdict
from prismem_core.bench.contest import (
    AT_MOST,
    BEST_EXACT,
    FP32_LIMIT,
    Competitor,
    Contest,
    Finding,
    Goal,
    Job,
    PeerMissing,
    Work,
)
from prismem_core.bench.limits import Limits
from prismem_core.bench.ops import JOBS
from prismem_core.errors import ArgumentError, DataError

QUICK = run.Settings(rounds=3, quick=True, budget_seconds=1.0)


def record_of(job: Job, settings: run.Settings = QUICK) -> dict[str, Any]:
    (record,) = run.measured([job], settings, lambda _: None)
    return record


@pytest.mark.parametrize(
    "name",
    [
        "top_k/q1-300k-384",
        "mmr_select/q1-n50-k10-384",
        "token_overlap/q16-20k",
        "cache/rows-1000x1024",
        "cache/get-100b",
        "cache/put-batch-4k",
        "cache/put-single-100b",
        "cache/beside-writer-4k",
        "cache/million",
        "sandbox/start",
        "sandbox/round-trip",
        "sandbox/retrieve-copy",
        "sandbox/attach",
        "sandbox/rows-320k",
        "sandbox/rows-320k-scaled",
        "sandbox/probe-dense",
        "sandbox/static-check",
    ],
)
def test_a_job_in_small(name: str) -> None:
    cores = os.sched_getaffinity(0)
    record = record_of(JOBS[name])
    assert os.sched_getaffinity(0) == cores
    assert record["faults"] == []
    assert record["goals"] == []
    ours = [result for result in record["results"] if result["ours"]]
    assert ours
    for result in record["results"]:
        assert 0 < result["seconds"]["best"] <= result["seconds"]["median"]
    for rate in ("dram", "l3", "l2", "flops"):
        assert record["limits"][rate] > 0
    # What did not take part says why.
    named = {entry["name"] for entry in record["results"]} | {entry["name"] for entry in record["absent"]}
    assert named == {competitor.name for competitor in JOBS[name].prepare(True).competitors}
    assert all(entry["reason"] for entry in record["absent"])
    assert json.loads(json.dumps(record)) == record


def invented(competitors: list[Competitor], work: Work) -> Job:
    def check(competitor: Competitor, found: Any) -> Finding:
        return Finding("" if found == 1 else "not 1", {"recall": 0.5})

    return Job(
        "invented/job",
        "a job of the tests",
        lambda quick: Contest("nothing", {"n": 1}, competitors, check, work),
        (Goal("ours", BEST_EXACT, 2.0), Goal("ours", "gone", 1.0), Goal("ours", FP32_LIMIT, 0.9)),
    )


def missing() -> Any:
    raise PeerMissing("it is not installed")


def broken() -> Any:
    raise RuntimeError("no\nluck")


def test_wrong_missing_and_broken_competitors_are_named_and_not_timed() -> None:
    job = invented(
        [
            Competitor("ours", "prismem-core", lambda: lambda: 1),
            Competitor("wrong", "numpy", lambda: lambda: 2),
            Competitor("lossy", "numpy", lambda: lambda: 2, "lossy"),
            Competitor("gone", "faiss-cpu", missing),
            Competitor("broken", "torch", broken),
            Competitor("late", "torch", lambda: broken),
        ],
        Work(1.0, 1.0),
    )
    record = record_of(job, run.Settings(rounds=3))
    assert {result["name"] for result in record["results"]} == {"ours", "lossy"}
    reasons = {entry["name"]: entry["reason"] for entry in record["absent"]}
    assert reasons == {
        "wrong": "wrong result: not 1",
        "gone": "it is not installed",
        "broken": "RuntimeError: no luck",
        "late": "RuntimeError: no luck",
    }
    assert record["faults"] == []
    first, second, third = record["goals"]
    # The lossy one is no exact peer, so the goal cannot be judged.
    assert (first["ratio"], first["reached"]) == (None, None)
    assert second["reached"] is None
    assert third["reached"] is False
    text = report.markdown([record])
    assert "lossy, recall 0.5000" in text
    assert "| gone |" in text
    assert "not judged: a side is absent" in text


def test_a_wrong_result_of_ours_and_an_impossible_rate_are_faults() -> None:
    job = invented(
        [
            Competitor("ours", "prismem-core", lambda: lambda: 2),
            Competitor("too fast", "numpy", lambda: lambda: 1, work=Work(flops=1e15)),
            Competitor("too wide", "numpy", lambda: lambda: 1, work=Work(bytes_read=1e15)),
        ],
        Work(1.0, 1.0),
    )
    record = record_of(job)
    assert len(record["faults"]) == 3
    assert record["faults"][0] == "ours: not 1"
    assert all("cannot do without" in fault for fault in record["faults"][1:])
    assert run.failures([record])[0] == "invented/job: ours: not 1"
    assert "FAULT: ours: not 1" in report.markdown([record])


def result(name: str, median: float, *, ours: bool = False, accuracy: str = "exact") -> dict[str, Any]:
    return {"name": name, "ours": ours, "accuracy": accuracy, "seconds": {"median": median}}


def test_goals_say_what_was_reached_and_by_how_much_not() -> None:
    limits = Limits("avx2", 1, dram=10e9, l3=1.0, l2=1.0, flops=100e9, products=0.0)
    contest = Contest("", {}, [], lambda c, r: Finding(), Work(bytes_read=20e9, flops=50e9))
    results = [
        result("ours", 0.5, ours=True),
        result("slow", 9.0),
        result("good", 4.0),
        result("rough", 1.0, accuracy="lossy"),
    ]
    goals = [
        Goal("ours", BEST_EXACT, 8.0),
        Goal("ours", BEST_EXACT, 10.0),
        Goal("ours", "rough", 4.0),
        Goal("ours", FP32_LIMIT, 6.0),
        Goal("ours", "absent", 1.0),
    ]
    found = verdict.judged(goals, results, contest, limits)
    assert [(goal["ratio"], goal["reached"]) for goal in found] == [
        (8.0, True),
        (8.0, False),
        (2.0, False),
        (4.0, False),
        (None, None),
    ]
    assert [verdict.reached_text(goal) for goal in found] == [
        "8.00x (good)",
        "8.00x (good), 20 % short",
        "2.00x, 50 % short",
        "400 %, 33 % short",
        "not judged: a side is absent",
    ]
    assert verdict.wanted_text(found[0]) == ">= 8x best exact peer"
    assert verdict.wanted_text(found[3]) == ">= 600 % of the float32 limit"


def test_goals_of_costs_compare_costs_and_those_at_most_name_the_most() -> None:
    def check(competitor: Competitor, found: Any) -> Finding:
        own = competitor.name == "ours"
        return Finding(
            "", costs={"disk_bytes": 2e6 if own else 3e6, "reopen_seconds": 0.0025} if own else {"disk_bytes": 3e6}
        )

    finished: list[str] = []
    job = Job(
        "invented/costs",
        "a job of the tests",
        lambda quick: Contest(
            "nothing",
            {"n": 1},
            [
                Competitor(name, "prismem-core" if name == "ours" else "lmdb", lambda: lambda: 1)
                for name in ("ours", "lmdb")
            ],
            check,
            Work(),
            lambda: finished.append("once"),
        ),
        (
            Goal("ours", "lmdb", 1.0, cost="disk_bytes"),
            Goal("ours", BEST_EXACT, 2.0, cost="disk_bytes"),
            Goal("ours", AT_MOST, 0.0015, cost="reopen_seconds"),
            Goal("ours", AT_MOST, 0.003, cost="reopen_seconds"),
            Goal("ours", "lmdb", 1.0, cost="reopen_seconds"),
            Goal("ours", AT_MOST, 1e-12),
            Goal("ours", AT_MOST, 100.0),
        ),
    )
    record = record_of(job, run.Settings(rounds=3))
    assert finished == ["once"]
    *goals, too_slow, fast_enough = record["goals"]
    assert too_slow["ratio"] == fast_enough["ratio"] == record["results"][0]["seconds"]["median"]
    assert (too_slow["reached"], fast_enough["reached"]) == (False, True)
    assert verdict.wanted_text(fast_enough) == "at most 100 s"
    assert verdict.reached_text({**fast_enough, "ratio": 0.0123}) == "12.3 ms"
    assert verdict.reached_text({**too_slow, "wanted": 0.01, "ratio": 0.0123}) == "12.3 ms, 23 % over"
    assert [(goal["ratio"], goal["reached"]) for goal in goals] == [
        (1.5, True),
        (1.5, False),
        (0.0025, False),
        (0.0025, True),
        (None, None),
    ]
    assert [verdict.wanted_text(goal) for goal in goals] == [
        "at most 1x the disk bytes of lmdb",
        "at most 0.5x the disk bytes of best exact peer",
        "at most reopen 1.5 ms",
        "at most reopen 3 ms",
        "at most 1x the reopen seconds of lmdb",
    ]
    assert [verdict.reached_text(goal) for goal in goals] == [
        "0.67x",
        "0.67x, 33 % over",
        "reopen 2.5 ms, 67 % over",
        "reopen 2.5 ms",
        "not judged: a side is absent",
    ]
    assert "disk 2 MB, reopen 2.5 ms" in report.markdown([record])
    assert json.loads(json.dumps(record)) == record


def test_jobs_are_chosen_by_op_and_by_name() -> None:
    assert run.select([], []) == list(JOBS.values())
    chosen = run.select(["similarity"], ["top_k/q1-300k-384"])
    assert [job.name for job in chosen] == ["top_k/q1-300k-384", "similarity/2k-2k-384"]
    with pytest.raises(ArgumentError, match=r"'topk' is no op that is measured; there is top_k, "):
        run.select(["topk"], [])
    with pytest.raises(ArgumentError, match=r"did you mean top_k/q1-300k-384\?"):
        run.select([], ["top_k/q1-300k-385"])
    with pytest.raises(ArgumentError, match="--list"):
        run.select([], ["nothing like it"])


def test_job_names_and_goals_fit_their_competitors() -> None:
    for name, job in JOBS.items():
        assert name == job.name
        names = {competitor.name for competitor in job.prepare(True).competitors}
        for goal in job.goals:
            assert goal.ours in names, name
            assert goal.against in names | {AT_MOST, BEST_EXACT, FP32_LIMIT}, name


def test_results_are_lines_and_the_newest_of_each_job_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for job, value in (("a", 1), ("b", 2), ("a", 3)):
        report.append(path, {"job": job, "value": value})
    assert report.newest(path) == [{"job": "b", "value": 2}, {"job": "a", "value": 3}]
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 1: expected a record"):
        report.newest(path)


def test_data_is_the_same_each_time_and_of_length_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "TEXTS", 20)
    for kind in ("mixture", "isotropic", "sentences"):
        made = data.rows(kind, 500, 384)
        assert made.keys.shape == (500, 384)
        assert made.queries.shape == (data.QUERIES, 384)
        np.testing.assert_allclose(np.linalg.norm(made.keys, axis=1), 1.0, atol=1e-5)
        first = made.keys.copy()
        data.rows.cache_clear()
        np.testing.assert_array_equal(data.rows(kind, 500, 384).keys, first)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (45.6e-6, "45.6 us"), (1e-8, "10 ns"), (4321.0, "4321 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert report.duration(seconds) == text
