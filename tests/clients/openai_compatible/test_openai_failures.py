"""Faults of a server: which are tried again and how, which are final, and the line that each one ends with."""

from __future__ import annotations

import socket
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.clients.openai_compatible.asking import ask, failure

from prismem_core.clients.openai_compatible import attempts
from prismem_core.clients.openai_compatible.endpoint import is_local
from prismem_core.clients.openai_compatible.failures import retry_after
from prismem_core.clients.openai_compatible.pace import Pace
from prismem_core.clients.openai_compatible.server_text import message_of, quoted
from prismem_core.errors import RoleError, SettingsError
from prismem_core.roles.account import Account
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.protocols import ChatRequest


@pytest.mark.parametrize(
    "do",
    [
        {"status": 408}, {"status": 409}, {"status": 429}, {"status": 500}, {"status": 502, "html": True},
        {"status": 503}, {"status": 529}, {"close": "before"}, {"close": "before", "reset": True}, {"close": "head"},
        {"close": "body"}, {"body": '{"choices": [{"mess'}, {"body": '{"choices": []}'},
        {"body": '{"error": {"message": "busy", "code": 503}}'},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_what_may_pass_is_tried_again(make: Any, scripted_server: Any, do: dict[str, Any], stream: bool) -> None:
    scripted_server.play({"times": 2, "do": do})
    assert make.chat(scripted_server, stream=stream).complete(ask())[0].text
    assert len(scripted_server.requests()) == 3


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422, 501])
def test_what_will_not_pass_is_not_tried_again(make: Any, scripted_server: Any, status: int) -> None:
    scripted_server.play(default={"status": status})
    failure(make.chat(scripted_server))
    assert len(scripted_server.requests()) == 1


def test_tries_end_and_say_how_many_they_were(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"status": 503, "error": "the model is loading"})
    text = failure(make.chat(scripted_server, retries=3))
    assert "answered 503: the model is" in text
    assert "tried 4 times" in text
    assert len(scripted_server.requests()) == 4


def test_a_spent_quota_is_not_tried_again(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"status": 429, "code": "insufficient_quota", "error": "You exceeded your quota."})
    assert "no quota left" in failure(make.chat(scripted_server))
    assert len(scripted_server.requests()) == 1


@pytest.mark.parametrize("header", ["retry-after", "retry-after-ms"])
def test_the_hint_of_the_server_is_honoured_by_all_calls(make: Any, scripted_server: Any, header: str) -> None:
    value = {"retry-after": "0.4", "retry-after-ms": "400"}[header]
    scripted_server.play({"times": 1, "do": {"status": 429, "headers": {header: value}}})
    chat = make.chat(scripted_server, concurrency=1)
    chat.complete(ask() + ask("Grade the other."))
    times = [entry["at"] for entry in scripted_server.requests()]
    assert times[1] - times[0] >= 0.39


@pytest.mark.parametrize("hint", ["0", "Wed, 21 Oct 2015 07:28:00 GMT"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_hint_of_no_wait_leaves_the_waits_as_they_are(
    make: Any, scripted_server: Any, monkeypatch: pytest.MonkeyPatch, status: int, hint: str
) -> None:
    monkeypatch.setattr(attempts, "FIRST_WAIT_SECONDS", 0.2)
    scripted_server.play(default={"status": status, "headers": {"retry-after": hint}})
    failure(make.chat(scripted_server, retries=3))
    times = [entry["at"] for entry in scripted_server.requests()]
    assert len(times) == 4
    assert times[-1] - times[0] >= 0.1 + 0.2 + 0.4


def test_refusals_for_the_rate_are_borne_while_others_are_answered(make: Any, scripted_server: Any) -> None:
    busy = {"status": 429, "headers": {"retry-after-ms": "20"}}
    scripted_server.play({"contains": "first", "times": 5, "do": busy}, {"contains": "second", "times": 6, "do": busy})
    chat = make.chat(scripted_server, concurrency=2, retries=2)
    others = [ChatRequest("ask", "", f"Grade {i}.") for i in range(80)]
    assert "tried 3 times" in failure(chat, ask("Grade the first."))
    scripted_server.play({"contains": "second", "times": 6, "do": busy}, default={"latency": 0.005})
    assert len(chat.complete([*ask("Grade the second."), *others])) == 81
    assert len([e for e in scripted_server.requests() if "second" in e["body"]["messages"][-1]["content"]]) == 7


@pytest.mark.parametrize(("silent", "retries", "told"), [(0.0, 3, 1), (0.0, 0, 0), (60.0, 3, 0)])
def test_tries_are_told_once_and_only_where_they_take_long(
    make: Any,
    scripted_server: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    silent: float,
    retries: int,
    told: int,
) -> None:
    monkeypatch.setattr(attempts, "SILENT_SECONDS", silent)
    scripted_server.play(default={"status": 503})
    failure(make.chat(scripted_server, retries=retries))
    assert len([r for r in caplog.records if "are tried again" in r.message]) == told == len(caplog.records)


def test_a_hint_beyond_the_deadline_ends_the_call(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"status": 429, "headers": {"retry-after": "900"}})
    begun = time.monotonic()
    text = failure(make.chat(scripted_server, deadline_seconds=30.0))
    assert "asks to wait 900 s" in text
    assert time.monotonic() - begun < 20


def test_many_slots_find_the_pace_of_a_limited_server(make: Any, scripted_server: Any) -> None:
    scripted_server.play(rate={"per_second": 40, "burst": 5})
    chat = make.chat(scripted_server, concurrency=64, retries=8)
    requests = [ChatRequest("ask", "", f"Grade {i}.") for i in range(150)]
    assert len(chat.complete(requests)) == 150
    assert len(scripted_server.requests()) < 2 * 150


def test_a_pace_slows_once_for_calls_that_were_under_way_together() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert [pace.turn() for _ in range(3)] == [0, 0, 0]
    now[0] = 1.0
    for _ in range(3):
        pace.refused(0.0)
    assert pace.spacing == 0.02
    assert [pace.turn() for _ in range(3)] == pytest.approx([0, 0.02, 0.04])
    pace.refused(1.1)
    assert pace.spacing == 0.02
    pace.refused(1.3)
    assert pace.spacing == pytest.approx(0.03)
    for _ in range(200):
        pace.answered()
    assert pace.spacing == 0


def test_hints_in_every_form() -> None:
    now = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
    assert retry_after({"retry-after": "Mon, 04 May 2026 12:00:30 GMT"}, now) == 30
    assert retry_after({"retry-after": "Mon, 04 May 2026 11:00:30 GMT"}, now) == 0
    assert retry_after({"retry-after": "2.5", "retry-after-ms": "70"}, now) == 0.07
    for nonsense in ("soon", "nan", "inf", ""):
        assert retry_after({"retry-after": nonsense}, now) is None
    assert retry_after({}, now) is None


def test_a_try_that_takes_too_long_is_ended(make: Any, scripted_server: Any) -> None:
    scripted_server.play({"times": 1, "do": {"hang": "head"}}, {"times": 1, "do": {"hang": "body"}})
    chat = make.chat(scripted_server, timeout_seconds=0.5)
    assert chat.complete(ask())[0].text
    scripted_server.play(default={"hang": "head"})
    text = failure(make.chat(scripted_server, timeout_seconds=0.2, retries=1))
    assert "gave no whole answer in 0.2 s (tried 2 times" in text
    assert "timeout_seconds" in text


def test_the_deadline_binds_over_all_tries(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"hang": "head"})
    begun = time.monotonic()
    failure(make.chat(scripted_server, timeout_seconds=100.0, deadline_seconds=0.5))
    assert time.monotonic() - begun < 20


def test_a_refused_connection_is_told_from_a_lost_one(make: Any, own_server: Any) -> None:
    chat = make.chat(own_server, retries=2)
    own_server.play(default={"close": "before"})
    assert "was lost in the middle of a call" in failure(chat)
    own_server.kill()
    assert "nothing listens at" in failure(chat)


def test_a_server_that_never_answered_is_given_up_soon(make: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    text = failure(make.chat(f"http://127.0.0.1:{port}/v1"))
    assert f"nothing listens at http://127.0.0.1:{port}/v1 (connection refused) (tried 3 times" in text
    assert "port of the URL" in text


def test_a_name_that_is_not_known(make: Any) -> None:
    assert "nowhere.invalid" in failure(make.chat("http://nowhere.invalid/v1"))


def test_an_unknown_model_is_named_with_those_that_are_offered(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"models": ["small", "large"]})
    text = failure(make.chat(scripted_server, model="medium"))
    assert text == f"the server {scripted_server.url} has no model 'medium'; it offers: small, large"


def test_an_address_without_its_path(make: Any, scripted_server: Any) -> None:
    url = scripted_server.url.removesuffix("/v1")
    text = failure(make.chat(url))
    assert "no address of an OpenAI-compatible server (404)" in text
    assert f"such as {url}/v1" in text


def test_html_is_no_reply(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"html": True})
    assert "answered with a web page instead of JSON" in failure(make.chat(scripted_server))
    assert len(scripted_server.requests()) == 1


def test_json_that_is_no_completion(make: Any, scripted_server: Any) -> None:
    ledger = Ledger()
    chat = make.chat(scripted_server)
    chat.account = Account("task", ledger)
    scripted_server.play(default={"body": '{"usage": {"prompt_tokens": 5, "completion_tokens": 2}, "data": []}'})
    assert "a chat completion without choices (tried 3 times" in failure(chat)
    unusable = ledger.totals()[("task", "unusable")]
    assert (unusable.calls, unusable.input_tokens, unusable.output_tokens) == (3, 15, 6)


@pytest.mark.parametrize("package", ["openai", "tenacity", "aiolimiter"])
def test_a_missing_package_names_the_extra(make: Any, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        SettingsError, match=rf"{package}, which is not installed; pip install 'prismem-core\[openai\]'"
    ):
        make.chat("http://127.0.0.1:9/v1")


def test_a_redirect_is_not_followed(make: Any, scripted_server: Any) -> None:
    scripted_server.play(default={"status": 307, "headers": {"location": "http://other.example/v1"}})
    assert "a redirect, which is not followed" in failure(make.chat(scripted_server))


def test_keys_are_named_by_their_variable_and_never_shown(
    make: Any, scripted_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_server.play(default={"status": 403, "html": True})
    assert "access is refused; it may want a key (OPENAI_API_KEY)" in failure(make.chat(scripted_server))
    scripted_server.play(default={"key": "sk-right"})
    assert "set the variable OPENAI_API_KEY" in failure(make.chat(scripted_server))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0123456789")
    text = failure(make.chat(scripted_server))
    assert "the key in OPENAI_API_KEY was refused" in text
    assert "wrong" not in text
    assert "0123456789" not in text
    scripted_server.play(default={"status": 403, "error": "key sk-wrong-0123456789 may not use this model"})
    text = failure(make.chat(scripted_server))
    assert "may not use 'scripted'" in text
    assert "0123456789" not in text


def test_a_key_is_not_shown_to_a_public_host_over_plain_http(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-general")
    monkeypatch.setenv("PLAIN_KEY", "sk-plain")
    assert make.chat("http://models.example/v1").endpoint.key() is None
    assert "is not sent to models.example over plain http" in caplog.text
    assert make.chat("http://models.example/v1", key_env="PLAIN_KEY").endpoint.key() == "sk-plain"
    assert make.chat("https://models.example/v1").endpoint.key() == "sk-general"
    assert make.chat("http://10.0.0.7/v1").endpoint.key() == "sk-general"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ge\u00e9")
    with pytest.raises(RoleError, match="characters that no header may hold"):
        make.chat("https://models.example/v1").endpoint.key()


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("10.1.2.3", True), ("192.168.0.9", True),
     ("vllm", True), ("gpu.internal", True), ("8.8.8.8", False), ("api.openai.com", False),
     ("localhost.example.com", False)],
)  # fmt: skip
def test_which_hosts_are_local(host: str, local: bool) -> None:
    assert is_local(host) is local


def test_what_a_server_echoes_of_the_prompt_is_not_shown(make: Any, scripted_server: Any) -> None:
    secret = "Zebulon's pin is 4711 and his sister Qwertina lives in Übertal."
    scripted_server.play(default={"status": 400, "error": f"invalid request: {secret} at position 3 \x1b[31m\n" * 9})
    text = failure(make.chat(scripted_server), ask(f"Tell me more. {secret}"))
    for word in ("Zebulon", "4711", "sister", "Qwertina", "bertal", "\x1b"):
        assert word not in text
    assert "invalid request" in text


def test_quotes_are_short_and_plain() -> None:
    assert quoted("model  not\nfound\x00 <b>here</b>", [], None) == "model not found here"
    assert len(quoted("word " * 200, [], None)) <= 200
    assert quoted("key=sk-abcdef", [], "sk-abcdef") == "key=…"
    assert quoted("abcd12 of ABCD-12ef", [], "sk-abcd-12ef") == "… of …"
    assert quoted("秘密的文字在这里", ["我们的秘密的文字"], None) == ""
    assert quoted("only secrets", ["only secrets"], None) == "only …"
    assert message_of({"detail": [{"loc": ["body", "seed"], "msg": "not permitted", "input": "secret"}]}) == (
        "body.seed: not permitted"
    )
    assert message_of({"error": '{"error": {"message": "inner"}}'}) == "inner"
