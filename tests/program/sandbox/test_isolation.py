"""What a program can see and change: its own copy of the state, and nothing of the engine."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from prismem_core.errors import ArgumentError, CandidateError, RoleError, SandboxError
from prismem_core.program.sandbox import InvalidResult, MemoryWorker, Sandbox, frames

Build = Callable[..., str]


def test_units_and_query_arrive_and_calls_are_counted(sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(
        index="self.vectors = self.backend.embed([u.memory_text for u in units]); self.raw = raw_text",
        retrieve=(
            "answer = self.backend.ask('p', 's', True)\n"
            "return f'{self.vectors.tolist()} {self.raw} {query.query_text} {answer}'"
        ),
    )
    with sandbox.open(source, backend) as worker:
        report = worker.index([{"memory_text": "ab"}, {"memory_text": "\U0001f600"}], "raw \ud800")
        assert (report.ask_calls, report.embed_calls, report.embed_texts) == (0, 1, 2)
        text, report = worker.retrieve({"query_text": "who?"})
        assert text == "[[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]] raw \ufffd who? stub"
        assert (report.ask_calls, report.embed_calls, report.embed_texts) == (1, 0, 0)
        assert 0 < report.cpu_seconds < 1
        assert 0 < report.wall_seconds < 10
    assert backend.texts == ["ab", "\U0001f600"]


def test_embed_of_no_text_has_no_rows(sandbox: Sandbox, program: Build, backend: Any) -> None:
    with sandbox.open(program(retrieve="return str(self.backend.embed([]).shape)"), backend) as worker:
        assert worker.retrieve({"query_text": ""})[0] == "(0, 3)"


def test_every_query_sees_the_state_as_index_left_it(sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(retrieve="self.texts.append(query.query_text)\nreturn ' '.join(self.texts)")
    with sandbox.open(source, backend) as worker:
        worker.index([{"memory_text": "one"}], "")
        assert [worker.retrieve({"query_text": q})[0] for q in "ab"] == ["one a", "one b"]
        worker.index([{"memory_text": "two"}], "")
        assert worker.retrieve({"query_text": "c"})[0] == "one two c"


def test_in_place_a_query_sees_what_the_one_before_did(sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(retrieve="self.texts.append(query.query_text)\nreturn ' '.join(self.texts)")
    with sandbox.open(source, backend) as worker:
        assert [worker.retrieve({"query_text": q}, in_place=True)[0] for q in "ab"] == ["a", "a b"]


def test_four_threads_retrieve_at_the_same_time(sandbox: Sandbox, program: Build) -> None:
    barrier = threading.Barrier(4, timeout=30)

    class Meeting:
        """Answers only once all four queries are being served."""

        def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
            barrier.wait()
            return prompt.upper()

        def embed(self, texts: list[str]) -> Any:
            raise AssertionError("not asked for")

    source = program(retrieve="self.texts.append(self.backend.ask(query.query_text))\nreturn ' '.join(self.texts)")
    with sandbox.open(source, Meeting()) as worker, ThreadPoolExecutor(4) as pool:
        worker.index([{"memory_text": "unit"}], "")
        found = pool.map(lambda text: worker.retrieve({"query_text": text})[0], ["a", "b", "c", "d"] * 3)
        assert list(found) == ["unit A", "unit B", "unit C", "unit D"] * 3


def test_each_thread_is_served_by_its_own_backend(sandbox: Sandbox, program: Build, backend: Any) -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
            return self.name

        def embed(self, texts: list[str]) -> Any:
            raise AssertionError("not asked for")

    source = program(retrieve="return self.backend.ask('who')")
    with sandbox.open(source, backend) as worker, ThreadPoolExecutor(4) as pool:
        names = [f"handler {number}" for number in range(12)]
        assert list(pool.map(lambda n: worker.retrieve({"query_text": ""}, Named(n))[0], names)) == names
    assert backend.prompts == []


def test_writing_into_embeddings_reaches_neither_engine_nor_another_query(sandbox: Sandbox, program: Build) -> None:
    kept = np.ones((1, 2), dtype=np.float32)

    class Caching:
        def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
            raise AssertionError("not asked for")

        def embed(self, texts: list[str]) -> Any:
            return kept

    source = program(retrieve="a = self.backend.embed(['x'])\nbefore = a.tolist()\na *= 7\nreturn str(before)")
    with sandbox.open(source, Caching()) as worker:
        assert [worker.retrieve({"query_text": ""})[0] for _ in range(2)] == ["[[1.0, 1.0]]"] * 2
    assert kept.tolist() == [[1.0, 1.0]]


def test_units_are_the_programs_own(sandbox: Sandbox, program: Build, backend: Any) -> None:
    units = [{"memory_text": "kept"}]
    source = program(index="units[0].memory_text = 'changed'\nself.texts.append(units.pop().memory_text)")
    with sandbox.open(source, backend) as worker:
        worker.index(units, "")
    assert units == [{"memory_text": "kept"}]


def test_state_need_not_be_picklable(sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(
        imports="from collections import defaultdict",
        index=(
            "self.table = defaultdict(lambda: defaultdict(list))\nself.table['a']['b'].append(lambda: (i for i in [5]))"
        ),
        retrieve="return str(next(self.table['a']['b'][0]()))",
    )
    with sandbox.open(source, backend) as worker:
        worker.index([], "")
        assert worker.retrieve({"query_text": ""})[0] == "5"


def test_a_large_embedding_block_arrives_whole(sandbox: Sandbox, program: Build) -> None:
    block = np.random.default_rng(0).standard_normal((3000, 768), dtype=np.float32)

    class Large:
        def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
            raise AssertionError("not asked for")

        def embed(self, texts: list[str]) -> Any:
            return np.asfortranarray(block)

    source = program(
        imports="import hashlib",
        index="a = self.backend.embed(['t'] * 3000)\nself.found = hashlib.sha256(a.tobytes()).hexdigest()",
        retrieve="return self.found",
    )
    with sandbox.open(source, Large()) as worker:
        worker.index([], "")
        assert worker.retrieve({"query_text": ""})[0] == hashlib.sha256(block.tobytes()).hexdigest()


def test_two_workers_compute_the_same_whatever_they_draw_or_hash(
    sandbox: Sandbox, program: Build, backend: Any
) -> None:
    source = program(
        imports="import numpy as np",
        retrieve="return f'{np.random.rand()} {hash(query.query_text)} {list({*\"abcdef\"})}'",
    )
    found = set()
    for _ in range(2):
        with Sandbox() as fresh, fresh.open(source, backend) as worker:
            found.update(worker.retrieve({"query_text": "text"})[0] for _ in range(2))
    assert len(found) == 1


def test_nothing_of_the_environment_arrives(program: Build, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("PYTHONPATH", "/somewhere/secret")
    source = program(imports="import os", retrieve="return repr(dict(os.environ))")
    with Sandbox(restrict_names=False) as fresh, fresh.open(source, backend) as worker:
        text = worker.retrieve({"query_text": ""})[0]
    assert "secret" not in text
    assert "'OPENBLAS_CORETYPE': 'Haswell'" in text
    assert "'PYTHONHASHSEED': '0'" in text


def test_a_worker_holds_one_socket_and_no_other_descriptor(bare_sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(
        imports="import select",
        retrieve=(
            "found = []\nfor number in range(16):\n    poll = select.poll()\n    poll.register(number, 0)\n"
            "    if not any(event & select.POLLNVAL for _, event in poll.poll(0)):\n        found.append(number)\n"
            "return str(found)"
        ),
    )
    with bare_sandbox.open(source, backend) as worker:
        assert worker.retrieve({"query_text": ""}, in_place=True)[0] == "[0, 1, 2, 3]"
        assert worker.retrieve({"query_text": ""})[0] == "[0, 1, 2, 3]"


def test_names_that_reach_files_or_code_are_absent(sandbox: Sandbox, program: Build, backend: Any) -> None:
    names = ["open", "eval", "exec", "compile", "globals", "locals", "vars", "input", "breakpoint", "exit", "help"]
    source = program(
        retrieve="\n".join(
            [
                "found = []",
                *(f"try:\n    {name}\n    found.append({name!r})\nexcept NameError:\n    pass" for name in names),
                "return str(found)",
            ]
        )
    )
    with sandbox.open(source, backend) as worker:
        assert worker.retrieve({"query_text": ""})[0] == "[]"


@pytest.mark.parametrize("name", ["os", "sys", "numpy.lib", "collections.os", "subprocess", "prismem_core", "time"])
def test_an_import_that_is_not_allowed_names_the_allowed_ones(
    sandbox: Sandbox, program: Build, backend: Any, name: str
) -> None:
    with pytest.raises(CandidateError, match=f"import of '{name}' is not allowed.*allowed are json, re") as caught:
        sandbox.open(program(imports=f"import {name}"), backend)
    assert (caught.value.kind, caught.value.line) == ("error", 2)


def test_allowed_imports_and_what_they_load_late_work(sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(
        imports=(
            "import json, re, math, hashlib, collections.abc, typing, textwrap, datetime as dt\n"
            "import numpy as np, numpy.linalg\nfrom numpy.typing import NDArray\n"
            "from collections import Counter, namedtuple\nPair = namedtuple('Pair', 'a b')"
        ),
        retrieve=(
            "day = dt.datetime.strptime('3 May 2024', '%d %B %Y').strftime('%A')\n"
            "norm = np.linalg.norm(np.ones((2, 2)), axis=1).round(3).tolist()\n"
            "return json.dumps([day, norm, Pair(1, 2).b, Counter('aab').most_common(1), textwrap.shorten('a b c', 20)])"
        ),
    )
    with sandbox.open(source, backend) as worker:
        assert worker.retrieve({"query_text": ""})[0] == '["Friday", [1.414, 1.414], 2, [["a", 2]], "a b c"]'


def test_an_exception_tells_the_programs_own_lines(sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(
        imports="def helper(x):\n    return 1 / x",
        retrieve="return str(helper(0))",
    )
    with sandbox.open(source, backend) as worker:
        with pytest.raises(CandidateError) as caught:
            worker.retrieve({"query_text": ""})
        assert (caught.value.kind, caught.value.line) == ("error", 3)
        assert str(caught.value).startswith("ZeroDivisionError: division by zero; line ")
        assert str(caught.value).endswith("in retrieve: return str(helper(0)); line 3, in helper: return 1 / x")
        assert "prismem" not in str(caught.value)
        with pytest.raises(CandidateError):
            worker.retrieve({"query_text": ""})


def test_no_message_names_a_folder_of_the_host(bare_sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(imports="import numpy", retrieve="raise ValueError(numpy.__file__ + ' ' + json_file())\n")
    source += "\n\ndef json_file():\n    import json\n    return json.__file__\n"
    with bare_sandbox.open(source, backend) as worker, pytest.raises(CandidateError) as caught:
        worker.retrieve({"query_text": ""})
    assert sys.prefix not in str(caught.value)
    assert sys.base_prefix not in str(caught.value)
    assert "<host>/" in str(caught.value)


@pytest.mark.parametrize(
    ("index", "retrieve", "code"),
    [
        ("return units", "return ''", "index_return"),
        ("pass", "return ['a']", "retrieve_type"),
        ("pass", "return None", "retrieve_type"),
        ("pass", "return 'x' * (OUT_CHAR_BUDGET + 1)", "retrieve_length"),
    ],
)
def test_a_result_against_the_contract_names_the_rule(
    sandbox: Sandbox, program: Build, backend: Any, index: str, retrieve: str, code: str
) -> None:
    with sandbox.open(program(index, retrieve), backend) as worker, pytest.raises(InvalidResult) as caught:
        worker.index([], "")
        worker.retrieve({"query_text": ""})
    assert (caught.value.kind, caught.value.code) == ("invalid", code)


def test_sixteen_thousand_characters_outside_the_basic_plane_fit(
    sandbox: Sandbox, program: Build, backend: Any
) -> None:
    with sandbox.open(program(retrieve="return '\\U0001f600' * OUT_CHAR_BUDGET"), backend) as worker:
        assert worker.retrieve({"query_text": ""})[0] == "\U0001f600" * 16000


def test_a_handlers_failure_reaches_the_caller_and_not_the_program(sandbox: Sandbox, program: Build) -> None:
    class Failing:
        def ask(self, prompt: str, system_prompt: str | None, json_object: bool) -> str:
            raise RoleError("the model is away")

        def embed(self, texts: list[str]) -> Any:
            return np.ones((len(texts) + 1, 2), dtype=np.float32)

    swallow = "try:\n    self.backend.{}\nexcept BaseException:\n    pass\nreturn 'fine'"
    with (
        sandbox.open(program(retrieve=swallow.format("ask('p')")), Failing()) as worker,
        pytest.raises(RoleError, match="the model is away"),
    ):
        worker.retrieve({"query_text": ""})
    with (
        sandbox.open(program(retrieve=swallow.format("embed(['p'])")), Failing()) as worker,
        pytest.raises(SandboxError, match=r"shape \(1, d\)"),
    ):
        worker.retrieve({"query_text": ""})


@pytest.mark.parametrize(
    "call", ["embed('text')", "embed([1])", "embed(('a',))", "ask(5)", "ask('p', system_prompt=[1])"]
)
def test_arguments_of_the_wrong_kind_are_the_programs_error(
    sandbox: Sandbox, program: Build, backend: Any, call: str
) -> None:
    with (
        sandbox.open(program(retrieve=f"return str(self.backend.{call})"), backend) as worker,
        pytest.raises(CandidateError, match="TypeError: backend"),
    ):
        worker.retrieve({"query_text": ""})
    assert backend.prompts == backend.texts == []


def test_units_that_no_frame_can_carry_are_the_callers_error(
    sandbox: Sandbox, program: Build, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "TO_WORKER_BYTES", 1 << 20)
    with sandbox.open(program(retrieve="return str(len(self.texts))"), backend) as worker:
        for value in (float("nan"), {1}, "x" * (2 << 20)):
            with pytest.raises(ArgumentError, match=r"index\(\): the message"):
                worker.index([{"memory_text": value}], "")
        with pytest.raises(ArgumentError, match=r"retrieve\(\): the message"):
            worker.retrieve({"query_text": float("inf")})
        worker.index([{"memory_text": "fine"}], "")
        assert worker.retrieve({"query_text": ""})[0] == "1"


def test_text_for_the_model_has_no_lone_surrogates(sandbox: Sandbox, program: Build, backend: Any) -> None:
    source = program(retrieve="self.backend.embed(['e\\udfff'])\nreturn self.backend.ask('p\\ud800') + '\\ud800'")
    with sandbox.open(source, backend) as worker:
        assert worker.retrieve({"query_text": ""})[0] == "stub\ufffd"
    assert (backend.prompts, backend.texts) == (["p\ufffd"], ["e\ufffd"])


def test_an_answer_given_twice_does_not_stand_for_the_next(bare_sandbox: Sandbox, program: Build, backend: Any) -> None:
    # Loading is order 1, so this answers order 2 before index() returns and the honest answer follows.
    forged = (
        "import os, struct\nbody = b'{\"done\":null,\"serial\":2}'\nos.write(3, struct.pack('<I', len(body)) + body)"
    )
    with bare_sandbox.open(program(index=forged), backend) as worker:
        worker.index([], "")
        with pytest.raises(CandidateError, match="no order") as caught:
            worker.index([], "")
        assert caught.value.kind == "protocol"
        with pytest.raises(CandidateError, match=r"the worker ended earlier: .*no order"):
            worker.retrieve({"query_text": ""})


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"done":"x","serial":1}', "belongs to no order"),
        (b'{"done":"x"}', "belongs to no order"),
        (b'{"done":5,"serial":2}', "an answer that is none"),
        (b'{"failed":"x","serial":2}', "told in the wrong form"),
        (b'{"failed":"x","message":"m","serial":2}', "of an unknown kind"),
        (b'{"done":NaN,"serial":2}', "not finite"),
        (b'{"call":"exec"}', "that does not exist"),
        (b'{"call":"embed","texts":[1]}', "a list of texts"),
        (b'{"call":"ask","prompt":1}', "of the wrong kind"),
        (b"[]", "no JSON object"),
    ],
)
def test_a_malformed_message_is_a_breach(
    bare_sandbox: Sandbox, program: Build, backend: Any, body: bytes, told: str
) -> None:
    forged = f"import os, struct\nos.write(3, struct.pack('<I', {len(body)}) + {body!r})\nreturn 'x'"
    with bare_sandbox.open(program(retrieve=forged), backend) as worker, pytest.raises(CandidateError, match=told) as e:
        worker.retrieve({"query_text": ""})
    assert e.value.kind == "protocol"


def test_a_frame_beyond_the_cap_is_not_taken_in(bare_sandbox: Sandbox, program: Build, backend: Any) -> None:
    forged = "import os, struct\nos.write(3, struct.pack('<I', 1 << 30))\nreturn 'x'"
    with (
        bare_sandbox.open(program(retrieve=forged), backend) as worker,
        pytest.raises(CandidateError, match="1073741824 bytes") as caught,
    ):
        worker.retrieve({"query_text": ""})
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize(
    "hear", ["os.read(4, 1)", "os.readv(4, [bytearray(1)])", "channel.recv(1, socket.MSG_DONTWAIT)"]
)
def test_a_process_hears_nothing_but_its_own_channel(
    bare_sandbox: Sandbox, program: Build, backend: Any, hear: str
) -> None:
    # The parent could read what its copies are asked, and a copy its parent's orders.
    source = program(
        imports="import os, socket",
        index="os.close = lambda kept: None",
        retrieve=(
            "channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=4)\n"
            f"try:\n    return repr({hear})\nexcept PermissionError:\n    return 'refused'\n"
        ),
    )
    with bare_sandbox.open(source, backend) as worker:
        worker.index([], "")
        assert worker.retrieve({"query_text": ""})[0] == "refused"


def test_a_process_forked_in_place_of_a_copy_ends_the_worker(
    bare_sandbox: Sandbox, program: Build, backend: Any
) -> None:
    source = program(
        imports="import ctypes, os, time",
        index="os.register_at_fork(before=lambda: ctypes.CDLL(None).fork() or time.sleep(600))",
    )
    with bare_sandbox.open(source, backend) as worker:
        worker.index([], "")
        with pytest.raises(CandidateError, match="a process of its own in place of a copy") as caught:
            worker.retrieve({"query_text": ""})
        assert caught.value.kind == "protocol"
        with pytest.raises(CandidateError, match="ended earlier"):
            worker.retrieve({"query_text": ""})


def silent(worker: MemoryWorker) -> bool:
    try:
        worker._process.channel.expect_silence()
    except frames.FrameError:
        return False
    return True


def test_descriptors_that_nobody_receives_keep_no_other_worker_from_starting(program: Build, backend: Any) -> None:
    # The kernel counts those of all processes of a user together.
    flood = (
        "def flood(channel):\n"
        "    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=3)\n"
        "    try:\n"
        "        socket.send_fds(own, [b'x'], [0, 1, 2] * 80)\n"
        "    finally:\n"
        "        os.write(3, b'x')\n"
        "        time.sleep(600)\n"
        "sys.modules['prismem_core.program.sandbox.blocking_channel'].BlockingChannel.receive = flood"
    )
    with (
        Sandbox(restrict_names=False, without=("own_user",)) as sandbox,
        sandbox.open(program(imports="import os, socket, sys, time", index=flood), backend) as worker,
    ):
        worker.index([], "")
        while silent(worker):
            time.sleep(0.01)
        with sandbox.open(program(retrieve="return 'started'"), backend) as other:
            assert other.retrieve({"query_text": ""})[0] == "started"


def test_orders_on_their_way_keep_no_other_worker_from_starting(program: Build, backend: Any) -> None:
    source = program(retrieve="return query.query_text")
    with Sandbox(without=("own_user",)) as sandbox, sandbox.open(source, backend) as worker:
        gate = worker._process._gate
        assert gate is not None
        with ThreadPoolExecutor(12) as pool:
            worker.freeze()
            asked = [pool.submit(worker.retrieve, {"query_text": str(number)}) for number in range(12)]
            while gate._allowed[worker.pid] < 12:
                time.sleep(0.01)
            with sandbox.open(source, backend) as other:
                assert other.retrieve({"query_text": "other"})[0] == "other"
            worker.thaw()
            assert [answer.result()[0] for answer in asked] == [str(number) for number in range(12)]
