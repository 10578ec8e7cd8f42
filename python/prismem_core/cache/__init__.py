"""The execution cache: stage outputs under content keys, in memory and on disk, each computed once.

An entry is named by a stage and a key (`digests.digest`). Values are bytes; JSON values, texts and arrays have codecs
here. What is on disk is data: reading it executes nothing. docs/cache.md is the guide, docs/formats.md describes the
bytes.
"""

from __future__ import annotations

from prismem_core.cache.codecs import (
    decode_array,
    decode_json,
    decode_text,
    encode_array,
    encode_json,
    encode_text,
)
from prismem_core.cache.execution_cache import CacheWarning, DamageWarning, ExecutionCache
from prismem_core.cache.manifests import MAX_NAME
from prismem_core.cache.reports import CacheStats, Entry, StageCounters, VerifyReport
from prismem_core.cache.transfer import check_is_cache
from prismem_core.cache.typed_values import Key

__all__ = [
    "MAX_NAME",
    "CacheStats",
    "CacheWarning",
    "DamageWarning",
    "Entry",
    "ExecutionCache",
    "Key",
    "StageCounters",
    "VerifyReport",
    "check_is_cache",
    "decode_array",
    "decode_json",
    "decode_text",
    "encode_array",
    "encode_json",
    "encode_text",
]
