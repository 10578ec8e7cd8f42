"""What tests of the chat client ask, and the one line that a failure must be."""

from __future__ import annotations

from typing import Any

import pytest

from prismem_core.errors import RoleError
from prismem_core.roles.protocols import ChatRequest


def ask(prompt: str = "Grade it.", **more: Any) -> list[ChatRequest]:
    return [ChatRequest("ask", "", prompt, **more)]


def failure(client: Any, requests: list[ChatRequest] | None = None) -> str:
    with pytest.raises(RoleError) as caught:
        client.complete(requests or ask())
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    return text
