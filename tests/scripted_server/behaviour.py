"""What the server does with a request, and which requests: behaviours, rules and the script made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

FORMS = {"json_schema": "enforce", "json_object_schema": "ignore", "json_object": "enforce"}


@dataclass(frozen=True)
class Behaviour:
    """How one request is treated; the default answers well. Times in seconds, tokens by `answers.count_tokens`.

    Before the reply: `latency` plus up to `jitter`; `hold` waits until the test releases it; `hang` never goes on
    (`"head"` before the status, `"body"` in the middle of the body). `close` drops the connection (`"before"` any
    byte, after the `"head"`, within the `"body"`), with a reset where `reset`. `status` other than 200 answers an error
    with `headers`, `error` as the message and `code`; `retry_after_date` adds a Retry-After of that many seconds as an
    HTTP date. `html` answers a page with `status`, `body` any text.

    What the server refuses (400): the fields of `refuse`, a prompt above `context` (with its output limit). Where it
    `stops_counting` it names no more of a prompt than it had to read, and `character_tokens` counts characters. It cuts
    prompts in silence above `cut_prompt`. `forms` says for each form of response_format whether it is `enforce`d,
    `ignore`d or `refuse`d. `models` are the names it serves (any, if None), `key` the one it wants.

    The reply: `text` in place of the good one, `edits` of the catalogue for a coder's prompt, `shape` names a
    distortion of it (see `shapes.SHAPES`), `finish` the reason it gives, `usage` is `right`, `none` or the counts it
    tells, `fingerprint` its system_fingerprint. Embeddings: `dimension`, `shuffle` their order, `cut_text` or
    `refuse_text` above so many tokens (with `refuse_status` and, if it is another than the default, `error`, in which
    `{given}` and `{limit}` are put in), `values` (`nan`, `null`, `zero`, `text`), `rows` more or fewer.
    """

    latency: float = 0.0
    jitter: float = 0.0
    hold: bool = False
    hang: str = ""
    close: str = ""
    reset: bool = False
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    retry_after_date: float | None = None
    error: str = "scripted failure"
    code: str | None = None
    html: bool = False
    body: str | None = None
    refuse: Sequence[str] = ()
    context: int | None = None
    stops_counting: bool = False
    character_tokens: bool = False
    cut_prompt: int | None = None
    forms: Mapping[str, str] = field(default_factory=dict)
    models: Sequence[str] | None = None
    key: str | None = None
    text: str | None = None
    edits: Sequence[str] = ()
    shape: str = ""
    finish: str | None = None
    usage: Any = "right"
    fingerprint: str | None = None
    dimension: int = 32
    shuffle: bool = False
    cut_text: int | None = None
    refuse_text: int | None = None
    refuse_status: int = 400
    values: str = ""
    rows: int = 0

    def form(self, name: str) -> str:
        """What happens to a response_format of this name."""
        return {**FORMS, **self.forms}.get(name, "refuse")


@dataclass
class Rule:
    """A behaviour for some requests: those of `endpoint` (chat, embeddings, models), `purpose` and `model` whose text
    holds `contains`; the first `skip` of them pass by, then `times` are treated (all, if None), each `every`-th one.
    """

    do: Mapping[str, Any]
    endpoint: str = "chat"
    purpose: str = ""
    model: str = ""
    contains: str = ""
    skip: int = 0
    times: int | None = None
    every: int = 1
    seen: int = 0

    def takes(self, endpoint: str, purpose: str, model: str, text: str) -> bool:
        """Whether this request is treated; counts it."""
        if endpoint != self.endpoint or (self.purpose and purpose != self.purpose):
            return False
        if (self.model and model != self.model) or self.contains not in text:
            return False
        number = self.seen - self.skip
        self.seen += 1
        return number >= 0 and number % self.every == 0 and (self.times is None or number // self.every < self.times)


class Script:
    """The rules in their order, the default, a rate limit and an outage of some `seconds` that begins `after` so many
    requests; names that do not exist are a ValueError.
    """

    def __init__(
        self,
        rules: Sequence[Mapping[str, Any]] = (),
        default: Mapping[str, Any] | None = None,
        rate: Mapping[str, float] | None = None,
        outage: Mapping[str, Any] | None = None,
    ) -> None:
        self.default = dict(default or {})
        self.rules = [Rule(**rule) for rule in rules]
        self.rate = rate
        self.outage = outage
        for given in (self.default, *(rule.do for rule in self.rules)):
            check(given)

    def choose(self, endpoint: str, purpose: str, model: str, text: str) -> Behaviour:
        """The behaviour for a request: that of the first rule that takes it, over the default."""
        for rule in self.rules:
            if rule.takes(endpoint, purpose, model, text):
                return Behaviour(**{**self.default, **rule.do})
        return Behaviour(**self.default)


def check(given: Mapping[str, Any]) -> None:
    """ValueError for a name that is no field of a behaviour."""
    known = {f.name for f in fields(Behaviour)}
    if not set(given) <= known:
        raise ValueError(f"a behaviour has no {sorted(set(given) - known)}; it has {sorted(known)}")


def plain(behaviour: Behaviour) -> dict[str, Any]:
    """The fields that differ from the default behaviour, for the log."""
    usual = asdict(Behaviour())
    return {name: value for name, value in asdict(behaviour).items() if value != usual[name]}
