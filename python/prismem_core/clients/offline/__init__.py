"""The embedded default: a deterministic task model without weights of its own, small embedders and a cross-encoder."""

from __future__ import annotations

from prismem_core.clients.offline.roles import offline_roles

__all__ = ["offline_roles"]
