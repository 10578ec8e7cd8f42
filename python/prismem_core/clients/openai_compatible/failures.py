"""What went wrong with a call: passing and worth another try, a refusal of what was asked, or final."""

from __future__ import annotations

import email.utils
import errno
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from prismem_core.clients.openai_compatible.endpoint import Endpoint
from prismem_core.clients.openai_compatible.server_text import decoded, message_of, parameter_of, quoted
from prismem_core.errors import RoleError

_SPENT = re.compile(
    r"insufficient.?quota|exceeded your current quota|billing|insufficient.?(balance|credit|funds)", re.I
)
_ABOUT_THE_REQUEST = re.compile(
    r"response_format|json_schema|json_object|context (length|size|window)|max_tokens|too large to process", re.I
)


class PassingFailure(Exception):
    """A failure that may pass: `hint` is the server's wish in seconds, `few` says that few tries are enough, `rate`
    that calls come too fast.
    """

    def __init__(
        self, what: str, *, hint: float | None = None, few: bool = False, rate: bool = False, advice: str = ""
    ) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.few = few
        self.rate = rate
        self.advice = advice


class Refusal(Exception):
    """The server understood and will not: its words, for those who can ask otherwise.

    `error` is what is raised where nobody can.
    """

    def __init__(self, status: int, message: str, parameter: str, body: Any, error: RoleError) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.message = message
        self.parameter = parameter
        self.body = body
        self.error = error


class UnknownHere(Exception):
    """Status 404 or 405: the model, or the address, is not known."""

    def __init__(self, status: int, said: str, about_model: bool) -> None:
        super().__init__(said)
        self.status = status
        self.said = said
        self.about_model = about_model


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a server asks to wait for: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            parsed = email.utils.parsedate_tz(value)
            if parsed is None:
                continue
            moment = datetime.fromtimestamp(email.utils.mktime_tz(parsed), UTC)
            seconds = (moment - (now or datetime.now(UTC))).total_seconds()
        if seconds == seconds and abs(seconds) != float("inf"):
            return max(0.0, seconds)
    return None


def connection_failure(error: BaseException, endpoint: Endpoint, answered: bool, seconds: float) -> Exception:
    """What a connection that could not be made, or was lost, comes to; `answered`: the server was there before."""
    causes = list(_causes(error))
    names = {type(cause).__name__ for cause in causes}
    where = endpoint.url
    if any(isinstance(cause, ssl.SSLError) for cause in causes) or any("CERTIFICATE_VERIFY" in str(c) for c in causes):
        return RoleError(
            f"no secure connection to {where}: its certificate or its TLS was refused; look at the URL's scheme and at "
            "SSL_CERT_FILE"
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return PassingFailure(
            f"the name {endpoint.host} of the server {where} is not known", few=not answered, advice="look at the URL"
        )
    if any(isinstance(cause, ConnectionRefusedError) or getattr(cause, "errno", None) == errno.ECONNREFUSED
           for cause in causes):  # fmt: skip
        return PassingFailure(
            f"nothing listens at {where} (connection refused)",
            few=not answered,
            advice="start the server, or look at the port of the URL",
        )
    if "ProxyError" in names:
        return PassingFailure(f"the proxy for {where} refused the connection", few=True, advice="look at HTTPS_PROXY")
    if "ConnectTimeout" in names or "ConnectError" in names:
        return PassingFailure(f"{where} cannot be reached", few=not answered, advice="look at the URL and the network")
    if {"InvalidURL", "UnsupportedProtocol", "LocalProtocolError"} & names:
        return RoleError(f"no request can be sent to {where}; look at the URL and the key")
    if any("Timeout" in name for name in names):
        return timed_out(endpoint, seconds)
    return PassingFailure(f"the connection to {where} was lost in the middle of a call", advice="look at the server")


def timed_out(endpoint: Endpoint, seconds: float) -> PassingFailure:
    """A try that took longer than it may."""
    return PassingFailure(
        f"{endpoint.url} gave no whole answer in {seconds:.4g} s", advice="raise timeout_seconds or lower concurrency"
    )


def status_failure(
    status: int,
    headers: Mapping[str, str],
    text: str,
    endpoint: Endpoint,
    private: Sequence[str],
    key: str | None,
) -> Exception:
    """What an answer with an error status comes to."""
    body = decoded(text)
    message = message_of(body, text)
    said = quoted(message, private, key)
    tail = f": {said}" if said else ""
    where = f"{endpoint.url} answered {status}"
    hint = retry_after(headers)
    if status in (301, 302, 303, 307, 308):
        return RoleError(f"{where}, a redirect, which is not followed; put the server's final address into the URL")
    if status == 402:
        return RoleError(f"{where}: the account has no money left; top it up and resume{tail}")
    if status == 429:
        code = body.get("error") if isinstance(body, dict) else None
        kind = f"{code.get('code')} {code.get('type')}" if isinstance(code, dict) else ""
        if _SPENT.search(kind) or _SPENT.search(message):
            return RoleError(f"{where}: the account has no quota left; top it up and resume{tail}")
        return PassingFailure(f"{where} (rate limit){tail}", hint=hint, rate=True, advice="lower concurrency")
    if status in (401, 403):
        return RoleError(_about_key(where, status, endpoint, key, tail if status == 403 else ""))
    if status in (404, 405):
        return UnknownHere(status, said, _names_a_model(body, message, endpoint.model))
    if status == 413:
        error = RoleError(
            f"{where}: the request is too large for it{tail}; lower segment_chars (chat) or batch (embedder)"
        )
        return Refusal(status, message, "", body, error)
    if status in (408, 409, 425) or (status >= 500 and status not in (501, 505)):
        if status == 500 and _ABOUT_THE_REQUEST.search(message):
            # Servers of some make answer 500 to what they do not support.
            return Refusal(status, message, parameter_of(body), body, RoleError(f"{where}{tail}"))
        return PassingFailure(f"{where}{tail}", hint=hint, advice="look at the server's log")
    error = RoleError(
        f"{where}{tail or ' and no reason'}; docs/models.md lists what the settings of a model can change"
    )
    return Refusal(status, message, parameter_of(body), body, error)


def _about_key(where: str, status: int, endpoint: Endpoint, key: str | None, tail: str) -> str:
    if status == 403 and key is None:
        return f"{where}: access is refused; it may want a key ({endpoint.variable}) or be no model server at all{tail}"
    if status == 403:
        return f"{where}: the key of {endpoint.variable} may not use {endpoint.model!r}{tail}"
    if endpoint.withheld:
        return f"{where}: a key is needed, and none is sent over plain http to a public host; use https or key_env"
    if key is None:
        return f"{where}: a key is needed; set the variable {endpoint.variable} (or name another with key_env)"
    return f"{where}: the key in {endpoint.variable} was refused (expired, revoked or of another account); renew it"


def _names_a_model(body: Any, message: str, model: str) -> bool:
    inner = body.get("error") if isinstance(body, dict) else None
    code = str(inner.get("code")) if isinstance(inner, dict) else ""
    return "model_not_found" in code or (isinstance(body, dict) and (model in message or "model" in message.lower()))


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue and len(found) < 20:
        cause = queue.pop(0)
        if cause is None or cause in found:
            continue
        found.append(cause)
        queue += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            queue += list(cause.exceptions)
    return found
