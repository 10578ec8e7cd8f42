"""A chat model behind OpenAI's protocol."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any

from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.clients.openai_compatible.body import Adaptations
from prismem_core.clients.openai_compatible.client import OpenAIClient
from prismem_core.clients.openai_compatible.completion import Completion, read_completion
from prismem_core.clients.openai_compatible.context_limits import Lengths, lengths_in
from prismem_core.clients.openai_compatible.dialect import (
    PROBE,
    Dialect,
    Form,
    about_format,
    format_fields,
    schema_in_words,
)
from prismem_core.clients.openai_compatible.failures import PassingFailure, Refusal
from prismem_core.clients.openai_compatible.prompt_lengths import cannot_hold, fewer_tokens, too_long
from prismem_core.clients.openai_compatible.server_text import code_of, quoted
from prismem_core.clients.openai_compatible.stream import Stream
from prismem_core.digests import digest
from prismem_core.errors import RoleError
from prismem_core.roles.protocols import ChatReply, ChatRequest

_PATH = "/chat/completions"
_MOST_ADAPTATIONS = 16
_CHARS_A_TOKEN = 4
_NO_TEXT = frozenset({"content_filter", "content_policy_violation", "json_validate_failed"})


class OpenAIChat(OpenAIClient):
    """A Chat over HTTP: `concurrency` calls at a time, whichever threads ask, each reply handed over as it comes.

    `max_tokens` bounds the output tokens of every call, whatever its request says. Replies hold no reasoning; their
    token counts are the server's own. Raises RoleError when the server fails for good and BudgetError when the account
    admits no further call; what was under way then is handed over first.
    """

    concurrent = True
    """Calls of several threads go out side by side."""

    def __init__(
        self, spec: ModelSpec, settings: ModelSettings, *, max_tokens: int | None = None, role: str = "task"
    ) -> None:
        super().__init__(spec, settings, role)
        self._max_tokens = max_tokens
        self._adaptations = Adaptations()
        # A format that the user added by hand is the one that is sent; the prompt tells the schema.
        structured = "text" if "response_format" in settings.extra_body else settings.structured
        self._dialect = Dialect(structured, spec.model)
        self._forms: dict[str, tuple[Form, bool]] = {}
        self._fingerprint = ""

    def learn_from(self, other: OpenAIChat) -> None:
        """Share what another client of the same model at the same server finds out about it."""
        self._adaptations, self._dialect, self._forms = other._adaptations, other._dialect, other._forms

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """Replies in the order of `requests`."""
        replies: list[ChatReply | None] = [None] * len(requests)
        for position, reply in self.complete_each(requests):
            replies[position] = reply
        return [reply for reply in replies if reply is not None]

    def complete_each(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatReply]]:
        """(position in `requests`, reply) in the order of completion."""

        async def work(position: int, stopped: asyncio.Event) -> ChatReply:
            return await self._answer(requests[position], stopped)

        return self._slots.each(len(requests), work)

    async def _answer(self, request: ChatRequest, stopped: asyncio.Event) -> ChatReply:
        if request.schema is None:
            try:
                return self._reply(request, await self._ask(request, None, True, stopped))
            except Refusal as refusal:
                raise refusal.error from None
        own = digest("schema", dict(request.schema))
        while True:
            try:
                form, strict = await self._form(own, stopped)
            except Refusal as refusal:
                # A probe that is refused for another reason than its form is refused as the call itself would be.
                raise refusal.error from None
            try:
                return self._reply(request, await self._ask(request, form, strict, stopped))
            except Refusal as refusal:
                if not about_format(refusal):
                    raise refusal.error from None
                self._retreat(own, form, strict, refusal)

    async def _form(self, schema: str, stopped: asyncio.Event) -> tuple[Form, bool]:
        """How JSON of a schema is asked for, and whether strictly."""
        found = self._forms.get(schema)
        if found is None:

            async def probe(request: ChatRequest, form: Form) -> Completion:
                return await self._ask(request, form, True, stopped)

            found = (await self._dialect.form(probe), True)
        return found

    def _retreat(self, schema: str, form: Form, strict: bool, refusal: Refusal) -> None:
        """Ask for JSON of this schema in another way from now on, or raise what the server said."""
        if self._forms.get(schema, (form, strict)) != (form, strict):
            return
        if form == "json_schema" and strict:
            # Strict schemas are a narrow dialect; servers that refuse one may take it as a guide.
            self._forms[schema] = (form, False)
            return
        following = self._dialect.following(form)
        if following is None:
            raise RoleError(
                f"{refusal.error}; structured = {form!r} was asked for, 'auto' finds what the server takes"
            ) from None
        self._forms[schema] = (following, True)
        self.say_once(logging.WARNING, f"%s refuses a schema as {form}; it is asked for as %s", self.endpoint.model,
                      following)  # fmt: skip

    async def _ask(self, request: ChatRequest, form: Form | None, strict: bool, stopped: asyncio.Event) -> Completion:
        """One completion, in the words the server takes; raises Refusal where it is about the form of JSON alone."""
        limit = request.max_tokens
        if self._max_tokens is not None and request.purpose != PROBE:
            limit = min(limit, self._max_tokens)
        wanted = limit
        schema = request.schema
        added = (
            schema_in_words(form, schema)
            if form is not None and schema is not None and request.purpose != PROBE
            else ""
        )
        private = (request.system, request.prompt)

        async def read(answer: Any) -> Completion:
            if not hasattr(answer, "__aiter__"):
                return self._settled(request, read_completion(answer))
            stream = Stream()
            try:
                completion = await stream.read(answer)
            except BaseException:
                # What was told before the connection was lost is paid for.
                self._unusable(*stream.usage)
                raise
            return self._settled(request, completion)

        for _ in range(_MOST_ADAPTATIONS):
            body = self._adaptations.body(self.endpoint.model, request, self.settings, limit, added)
            if form is not None and schema is not None and "response_format" not in self.settings.extra_body:
                body |= format_fields(form, schema, strict)
            try:
                completion = await self.post(_PATH, body, private, stopped, read)
                if limit < wanted:
                    # Told when it has helped: a prompt that fits nowhere ends in one line.
                    self.say_once(
                        logging.WARNING,
                        "%s cannot give %d output tokens to every prompt; calls that are refused for it are asked for "
                        "fewer (lower max_tokens, or serve the model with a larger context)",
                        self.endpoint.model,
                        wanted,
                    )
                return completion
            except Refusal as refusal:
                if code_of(refusal.body) in _NO_TEXT:
                    # What a filter, or a check of the server, kept back is a reply without text: no fault of the run.
                    self.account.settle(0, 0)
                    return Completion("", "stop", 0, 0)
                limit = self._adapt(refusal, body, request, limit)
        raise RoleError(f"{self.endpoint.url} refuses calls whatever they leave out; look at the server's log")

    def _adapt(self, refusal: Refusal, body: dict[str, Any], request: ChatRequest, limit: int) -> int:
        """The output limit of the next try, with what a refusal teaches; raises the refusal if it teaches nothing."""
        if self._adaptations.outdated(body):
            return limit
        lengths = lengths_in(refusal.message, refusal.body)
        if lengths is not None and lengths != Lengths(None, None, None):
            return self._lowered(lengths, request, limit)
        said = self._adaptations.learn(refusal, body, self.settings.extra_body)
        if said:
            self.say_once(logging.WARNING, f"%s: {said}", self.endpoint.model)
            return limit
        if lengths is not None:
            return self._lowered(lengths, request, limit)
        raise refusal

    def _lowered(self, lengths: Lengths, request: ChatRequest, limit: int) -> int:
        fewer = fewer_tokens(lengths, request, limit)
        if fewer is None:
            raise RoleError(too_long(lengths, request, self.endpoint.model)) from None
        return fewer

    def _settled(self, request: ChatRequest, completion: Completion) -> Completion:
        """The completion with its tokens counted; raises for what is no reply."""
        given, written = completion.input_tokens, completion.output_tokens
        if completion.problem:
            self._unusable(given, written)
            raise PassingFailure(
                f"{self.endpoint.url} answered with {completion.problem}",
                few=completion.lasting,
                advice="look at the server",
            )
        if completion.doubt:
            self.say_once(
                logging.WARNING,
                "%s does not say in words that are known why replies end (%s); one that was cut passes for a whole one",
                self.endpoint.model,
                quoted(completion.doubt, (request.system, request.prompt), self._key) or "…",
            )
        if given is None or written is None:
            self.say_once(
                logging.WARNING,
                "%s does not say what calls use; tokens are estimated as characters / 4",
                self.endpoint.model,
            )
            chars = len(request.system) + len(request.prompt)
            given = math.ceil(chars / _CHARS_A_TOKEN) if given is None else given
            written = math.ceil(completion.raw_chars / _CHARS_A_TOKEN) if written is None else written
        elif problem := cannot_hold(request, given + completion.cached_tokens, self.endpoint.model):
            self._unusable(given, written)
            raise RoleError(problem)
        self._look_at(completion.fingerprint, request)
        if request.purpose == PROBE:
            self.account.overhead(PROBE, given, written)
        else:
            self.account.settle(given, written)
        return Completion(completion.text, completion.finish_reason, given, written, completion.raw_chars)

    def _look_at(self, fingerprint: str, request: ChatRequest) -> None:
        """Tell of a server that is not the one it was: replies to equal requests may then differ."""
        if fingerprint and self._fingerprint and fingerprint != self._fingerprint:
            private = (request.system, request.prompt)
            self.say_once(
                logging.WARNING,
                "%s reports different values of system_fingerprint (such as %s): it is not one and the same system, so "
                "equal requests may have different replies",
                self.endpoint.model,
                quoted(fingerprint, private, self._key) or "…",
            )
        self._fingerprint = self._fingerprint or fingerprint

    def _unusable(self, given: int | None, written: int | None) -> None:
        """Count what is paid for and of no use."""
        if given is not None or written is not None:
            self.account.overhead("unusable", given or 0, written or 0)

    @staticmethod
    def _reply(request: ChatRequest, completion: Completion) -> ChatReply:
        return ChatReply(
            completion.text, completion.input_tokens or 0, completion.output_tokens or 0, completion.finish_reason
        )
