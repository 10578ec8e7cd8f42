"""vLLM in this process: chat with structured outputs and pooled embeddings, without a server (extra `vllm`).

`VLLMChat` and `VLLMEmbedder` are the clients; `Engines` lets those of one run share engines and the GPU. Nothing of
vLLM is imported, and no process started, before the first call. `docs/vllm.md` has settings and limits.
"""

from __future__ import annotations

from prismem_core.clients.vllm_engine.chat import VLLMChat
from prismem_core.clients.vllm_engine.embedder import VLLMEmbedder
from prismem_core.clients.vllm_engine.engines import Engines

__all__ = ["Engines", "VLLMChat", "VLLMEmbedder"]
