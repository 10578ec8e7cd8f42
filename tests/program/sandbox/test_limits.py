"""Limits: each ends the right process, with the right name, and nothing of the engine's own time is charged."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest

from prismem_core.errors import CandidateError, LimitError
from prismem_core.program.sandbox import Limits, Sandbox

Build = Callable[..., str]

LOOP = "while True:\n    pass"
SWALLOW = "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        continue"
REGEX = "import re\nreturn str(re.match(r'(a+)+$', 'a' * 64 + '!'))"


@pytest.mark.parametrize("body", [LOOP, SWALLOW, REGEX], ids=["loop", "swallow", "regex"])
def test_processor_time_in_retrieve_ends_the_copy_alone(
    sandbox: Sandbox, program: Build, backend: Any, tight: Limits, body: str
) -> None:
    indented = body.replace("\n", "\n    ")
    source = program(retrieve=f"if query.query_text == 'loop':\n    {indented}\nreturn 'still here'")
    with sandbox.open(source, backend, tight) as worker:
        with pytest.raises(LimitError, match=r"retrieve\(\) used more than 1 s") as caught:
            worker.retrieve({"query_text": "loop"})
        assert caught.value.kind == "limit:cpu"
        assert worker.retrieve({"query_text": ""})[0] == "still here"


def test_processor_time_in_index_ends_the_worker(sandbox: Sandbox, program: Build, backend: Any, tight: Limits) -> None:
    with sandbox.open(program(index=LOOP), backend, tight) as worker:
        with pytest.raises(LimitError) as caught:
            worker.index([], "")
        assert caught.value.kind == "limit:cpu"
        with pytest.raises(CandidateError, match=r"ended earlier: index\(\) used more than 1 s"):
            worker.retrieve({"query_text": ""})


@pytest.mark.parametrize("where", ["module", "init"])
def test_processor_time_while_loading(
    sandbox: Sandbox, program: Build, backend: Any, tight: Limits, where: str
) -> None:
    source = program() + LOOP if where == "module" else program().replace("self.texts = []", "while True: pass")
    with pytest.raises(LimitError, match="loading the program") as caught:
        sandbox.open(source, backend, tight)
    assert caught.value.kind == "limit:cpu"


def test_each_call_has_its_own_processor_time(sandbox: Sandbox, program: Build, backend: Any, tight: Limits) -> None:
    burn = "import numpy as np\nfor _ in range({}):\n    np.sort(np.arange(200_000)[::-1] % 1000)"
    with sandbox.open(program(index=burn.format(60)), backend, tight) as worker:
        spent = 0.0
        while spent < 1.5:
            used = worker.index([], "").cpu_seconds
            assert 0 < used < 1
            spent += used


def test_wall_time_ends_a_program_that_sleeps(
    bare_sandbox: Sandbox, program: Build, backend: Any, tight: Limits
) -> None:
    limits = dataclasses.replace(tight, retrieve_wall_seconds=0.3)
    with bare_sandbox.open(program(retrieve="import time\ntime.sleep(60)"), backend, limits) as worker:
        start = time.monotonic()
        with pytest.raises(LimitError, match=r"took longer than 0.3 s") as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "limit:wall"
        assert time.monotonic() - start < 10


def test_a_slow_backend_is_not_charged(sandbox: Sandbox, program: Build, tight: Limits) -> None:
    class Slow:
        def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
            time.sleep(0.8)
            return "late"

        def embed(self, texts: list[str]) -> Any:
            raise AssertionError("not asked for")

    limits = dataclasses.replace(tight, retrieve_wall_seconds=0.7)
    with sandbox.open(program(retrieve="return self.backend.ask('p')"), Slow(), limits) as worker:
        text, report = worker.retrieve({"query_text": ""})
        assert (text, report.ask_calls) == ("late", 1)
        assert report.wall_seconds < 0.7


@pytest.mark.parametrize(
    "body", ["keep = []\nwhile True:\n    keep.append(bytearray(1 << 24))", "import numpy as np\nnp.ones(1 << 40)"]
)
def test_memory(sandbox: Sandbox, program: Build, backend: Any, tight: Limits, body: str) -> None:
    with sandbox.open(program(retrieve=body), backend, dataclasses.replace(tight, memory_bytes=600 << 20)) as worker:
        with pytest.raises(LimitError) as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "limit:memory"
        assert caught.value.line is not None


def test_memory_of_one_worker_leaves_another_alone(
    sandbox: Sandbox, program: Build, backend: Any, tight: Limits
) -> None:
    hungry = program(index="import numpy as np\nself.kept = np.ones(1 << 26)\nself.more = np.ones(1 << 27)")
    with (
        sandbox.open(program(retrieve="return 'fine'"), backend, tight) as other,
        sandbox.open(hungry, backend, tight) as worker,
    ):
        with pytest.raises(LimitError):
            worker.index([], "")
        assert other.retrieve({"query_text": ""})[0] == "fine"


def test_calls_are_counted_by_the_engine_and_ended_past_the_budget(
    sandbox: Sandbox, program: Build, backend: Any, tight: Limits
) -> None:
    ask = "for _ in range({}):\n    try:\n        self.backend.ask('p')\n    except BaseException: pass\nreturn ''"
    with sandbox.open(program(retrieve=ask.format(1)), backend, tight) as worker:
        assert worker.retrieve({"query_text": ""})[1].ask_calls == 1
    with sandbox.open(program(retrieve=ask.format(2)), backend, tight) as worker:
        with pytest.raises(LimitError, match=r"more than 1 calls of backend.ask") as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "limit:calls"
    assert len(backend.prompts) == 2


@pytest.mark.parametrize(
    ("call", "limited"),
    [
        ("embed(['a'] * 3)", False),
        ("embed(['a'] * 4)", True),
        ("embed([]) for _ in range(3)", False),
        ("embed([]) for _ in range(4)", True),
    ],
)
def test_embedded_texts_and_embed_calls_are_bounded(
    sandbox: Sandbox, program: Build, backend: Any, tight: Limits, call: str, limited: bool
) -> None:
    with sandbox.open(program(retrieve=f"list(self.backend.{call})\nreturn ''"), backend, tight) as worker:
        if not limited:
            assert worker.retrieve({"query_text": ""})[0] == ""
            return
        with pytest.raises(LimitError) as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "limit:calls"


def test_a_flood_of_output_goes_nowhere(sandbox: Sandbox, program: Build, backend: Any, tight: Limits) -> None:
    source = program(retrieve="for _ in range(100):\n    print('x' * 1_000_000)\nreturn 'done'")
    with sandbox.open(source, backend, tight) as worker:
        assert worker.retrieve({"query_text": ""})[0] == "done"


def test_a_request_beyond_a_frame_is_the_programs_error(
    sandbox: Sandbox, program: Build, backend: Any, tight: Limits
) -> None:
    source = program(retrieve="return self.backend.ask('x' * (9 << 20))")
    with sandbox.open(source, backend, tight) as worker:
        with pytest.raises(CandidateError, match="at most 8388608 fit into a frame") as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "error"
    assert backend.prompts == []


@pytest.mark.parametrize("body", ["os._exit(0)", "os.abort()", "os.execv('/bin/true', ['true'])"])
def test_a_death_is_reported_and_the_next_query_runs(
    bare_sandbox: Sandbox, program: Build, backend: Any, tight: Limits, body: str
) -> None:
    source = program(imports="import os", retrieve=f"if query.query_text:\n    {body}\nreturn 'fine'")
    with bare_sandbox.open(source, backend, tight) as worker:
        with pytest.raises(CandidateError, match=r"ended (by itself )?during retrieve\(\)") as caught:
            worker.retrieve({"query_text": "die"})
        assert caught.value.kind == "died"
        assert worker.retrieve({"query_text": ""})[0] == "fine"


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("os._exit(3)", "exit status 3"),
        ("os.execv('/bin/true', ['true'])", "a system call that memory programs may not make"),
        # The C library ends by a forbidden instruction where it may not send itself a signal.
        ("os.abort()", "SIGSEGV"),
    ],
)
def test_the_way_a_worker_died_is_told(
    bare_sandbox: Sandbox, program: Build, backend: Any, tight: Limits, body: str, how: str
) -> None:
    with bare_sandbox.open(program(imports="import os", index=body), backend, tight) as worker:
        with pytest.raises(CandidateError, match=rf"during index\(\): .*{how}") as caught:
            worker.index([], "")
        assert caught.value.kind == "died"


@pytest.mark.parametrize("error", ["SystemExit(0)", "KeyboardInterrupt", "GeneratorExit", "RecursionError"])
def test_leaving_by_an_exception_is_the_programs_error(
    sandbox: Sandbox, program: Build, backend: Any, tight: Limits, error: str
) -> None:
    with sandbox.open(program(retrieve=f"raise {error}"), backend, tight) as worker:
        with pytest.raises(CandidateError, match=error.partition("(")[0]) as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "error"


def test_memory_and_bytes_are_measured_by_the_engine(sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(
        imports="import numpy as np", index="self.kept = np.ones((64 << 20) // 8)", retrieve="return 'x' * 9"
    )
    with sandbox.open(source, backend) as worker:
        small = worker.retrieve({"query_text": ""})[1]
        built = worker.index([], "y" * 5000)
        large = worker.retrieve({"query_text": ""})[1]
    assert 64 << 20 <= large.memory_bytes - small.memory_bytes <= 80 << 20
    assert built.memory_bytes >= 64 << 20
    assert 5000 < built.bytes_to_program < 5500
    assert 9 < large.bytes_from_program < 200


def test_a_message_cannot_move_the_cursor_or_look_like_another_line(
    sandbox: Sandbox, program: Build, backend: Any
) -> None:
    source = program(retrieve="raise ValueError('\\x1b[2J\\x07\\u202e\\u2028 a\\nb: ok')")
    with sandbox.open(source, backend) as worker, pytest.raises(CandidateError) as caught:
        worker.retrieve({"query_text": ""})
    told = str(caught.value)
    assert told.isprintable()
    assert r"ValueError: \x1b[2J\x07\u202e\u2028 a\nb: ok" in told


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("self.backend.embed(['x' * 300_000, 'y' * 300_000])", "more than 500000 characters for backend.embed"),
        ("self.backend.ask('x' * 90_000, 'y' * 20_000)", "more than 100000 characters of prompts"),
    ],
)
def test_what_the_engine_is_given_to_read_is_bounded(
    sandbox: Sandbox, program: Build, backend: Any, tight: Limits, body: str, told: str
) -> None:
    limits = dataclasses.replace(tight, retrieve_embed_chars=500_000)
    with sandbox.open(program(retrieve=f"{body}\nreturn ''"), backend, limits) as worker:
        with pytest.raises(LimitError, match=told) as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "limit:calls"
    assert backend.texts == backend.prompts == []
