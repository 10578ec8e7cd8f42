"""Any server that speaks OpenAI's protocol: chat and embeddings (docs/models.md)."""

from __future__ import annotations

from prismem_core.clients.openai_compatible.chat import OpenAIChat
from prismem_core.clients.openai_compatible.embedder import OpenAIEmbedder

__all__ = ["OpenAIChat", "OpenAIEmbedder"]
