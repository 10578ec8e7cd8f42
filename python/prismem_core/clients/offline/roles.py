"""The four roles of the embedded default: no key, no network, no GPU."""

from __future__ import annotations

import logging

from prismem_core.clients.offline.chat import OfflineChat
from prismem_core.clients.offline.cross_encoder import CrossEncoder, PairStore
from prismem_core.clients.offline.embedders import BgeSmallEmbedder, HashingEmbedder
from prismem_core.clients.offline.model_files import why_missing
from prismem_core.errors import SettingsError
from prismem_core.evaluation.judge import LexicalJudge
from prismem_core.roles.protocols import Embedder
from prismem_core.roles.roles import Roles

_LOGGER = logging.getLogger("prismem_core")


def offline_roles(
    cache: PairStore | None = None,
    workers: int = 2,
    *,
    embedder: str = "auto",
    reranker: bool = True,
    quiet: bool = False,
) -> Roles:
    """Task model, embedder, lexical judge and diagnostic embedder.

    `embedder` is `bge-small`, `hashing` or `auto` (bge-small where the extra `offline` is installed, else hashing,
    which is logged as a warning unless `quiet`). `cache` keeps the cross-encoder's scores. Raises SettingsError for
    bge-small without the extra.
    """
    missing = why_missing()
    if embedder == "bge-small" and missing:
        raise SettingsError(f"embedder = 'bge-small' is not to be had: {missing}")
    hashing = HashingEmbedder()
    chosen: Embedder = hashing
    if embedder != "hashing" and not missing:
        chosen = BgeSmallEmbedder(workers=workers)
    elif embedder == "auto" and not quiet:
        _LOGGER.warning("a hashing embedder and a reader without cross-encoder stand in: %s", missing)
    scorer = CrossEncoder(store=cache) if reranker and not missing else None
    return Roles(OfflineChat(scorer), chosen, LexicalJudge(), hashing)
