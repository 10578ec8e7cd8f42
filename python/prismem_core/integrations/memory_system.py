"""What an outside memory system must offer to be compared, and what it gets: the adapter protocol (docs/compare.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prismem_core.tasks.history import Session


class Models(Protocol):
    """The models of the job, as a system may use them: every call is cached, counted and under the budget.

    `chat` gives the text of a reply; with a JSON schema (`{"type": "object"}` for any object) it is one JSON object,
    asked for again where it is none, and the last reply as it is where that does not help. `embed` gives float32 rows
    (n, `dimension`) of length 1, as the embedder of the job makes them.
    """

    dimension: int
    chat_identity: str
    embedder_identity: str

    def chat(self, prompt: str, system: str = "", schema: Mapping[str, Any] | None = None) -> str: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


class MemorySystem(Protocol):
    """The memory of one history. `identity` names the system, its version and every setting that changes a result.

    The constructor gets the models and an empty folder that is gone afterwards. `add` is called once a session, in
    chronological order. `retrieve` gives the text that the answer is read from and must not depend on earlier
    questions. An exception of any of them is a failure of the system, counted as one.
    """

    identity: str

    def __init__(self, models: Models, folder: Path) -> None: ...

    def add(self, session: Session) -> None: ...

    def retrieve(self, question: str) -> str: ...

    def close(self) -> None: ...
