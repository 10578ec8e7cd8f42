"""Where a server lives, which key it is shown and what leaves for it besides the body."""

from __future__ import annotations

import importlib
import ipaddress
import logging
import os
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prismem_core.clients.model_settings import ModelSettings, ModelSpec
from prismem_core.errors import RoleError, SettingsError

if TYPE_CHECKING:
    import openai

_LOGGER = logging.getLogger("prismem_core")
DEFAULT_KEY = "OPENAI_API_KEY"
CONNECT_SECONDS = 20.0
_PLACEHOLDER = "no-key"
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
# Whatever else the SDK adds (an organisation, a project, headers of the environment, facts on this machine) stays here.
_HEADERS = frozenset(
    {"host", "accept", "accept-encoding", "connection", "content-length", "content-type", "transfer-encoding"}
)


def is_local(host: str) -> bool:
    """Whether a host is this machine or one of a private network: its address, or a name no public one has."""
    name = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return "." not in name or name.endswith(_LOCAL_NAMES)
    return address.is_loopback or address.is_private or address.is_link_local


class Endpoint:
    """The address and key of a model's server.

    The key is that of the variable `key_env` names, else of OPENAI_API_KEY; it is read when the first call is made.
    Over plain http to a public host the key of OPENAI_API_KEY is not sent. RoleError where `key_env` names a variable
    that is not set, or a key cannot stand in a header.
    """

    def __init__(self, spec: ModelSpec, settings: ModelSettings, environment: Mapping[str, str] | None = None) -> None:
        self.url = spec.url
        self.model = spec.model
        self.variable = settings.key_env or DEFAULT_KEY
        self._named = settings.key_env is not None
        self._environment = os.environ if environment is None else environment
        parts = urlsplit(spec.url)
        self.host = parts.hostname or ""
        self.local = is_local(self.host)
        self._exposed = parts.scheme == "http" and not self.local
        self.withheld = False

    def key(self) -> str | None:
        """The key to show, None for none."""
        value = self._environment.get(self.variable, "").strip()
        if not value:
            if self._named:
                raise RoleError(
                    f"no key for {self.model}: key_env names the variable {self.variable}, which is not set; set it, "
                    "or leave key_env out for a server that needs no key"
                )
            return None
        if not value.isascii() or not value.isprintable() or " " in value:
            raise RoleError(
                f"the key in {self.variable} holds blanks or characters that no header may hold; set it anew"
            )
        if self._exposed and not self._named:
            if not self.withheld:
                _LOGGER.warning(
                    "the key of %s is not sent to %s over plain http; use https, or name the variable with key_env",
                    self.variable,
                    self.host,
                )
            self.withheld = True
            return None
        return value

    def open(self, key: str | None, settings: ModelSettings) -> openai.AsyncOpenAI:
        """The SDK's client for this address, with no retries of its own.

        Proxies of the environment are used for public hosts alone. Redirects are not followed, so that nothing goes
        to an address that was not configured.
        """
        sdk, httpx = libraries()

        async def only_ours(request: Any) -> None:
            for name in [name for name in request.headers if name.lower() not in _HEADERS]:
                del request.headers[name]
            request.headers["user-agent"] = "prismem-core"
            if key is not None:
                request.headers["authorization"] = f"Bearer {key}"

        try:
            transport = sdk.DefaultAsyncHttpxClient(
                follow_redirects=False,
                trust_env=not self.local,
                event_hooks={"request": [only_ours]},
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=settings.concurrency),
                timeout=httpx.Timeout(
                    settings.timeout_seconds, connect=min(CONNECT_SECONDS, settings.timeout_seconds), pool=None
                ),
            )
        except (ValueError, ImportError, OSError) as error:
            # A proxy or a certificate file of the environment that cannot be used.
            raise RoleError(
                f"no connection to {self.url} can be made with the proxy and certificate settings of the environment "
                f"({type(error).__name__}); look at HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
            ) from None
        client: openai.AsyncOpenAI = sdk.AsyncOpenAI(
            api_key=key or _PLACEHOLDER, base_url=self.url, max_retries=0, http_client=transport
        )
        return client


def libraries() -> tuple[Any, ModuleType]:
    """The `openai` SDK and the HTTP library it is built on; SettingsError where the extra is not installed."""
    try:
        import aiolimiter  # noqa: F401
        import openai
        import tenacity  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            f"a model openai:... needs the package {error.name}, which is not installed; "
            "pip install 'prismem-core[openai]'"
        ) from None
    base = next(kind for kind in openai.DefaultAsyncHttpxClient.__mro__ if kind.__name__ == "AsyncClient")
    return openai, importlib.import_module(base.__module__.partition(".")[0])
