"""What the zygote loads before it confines itself: what programs may import, and what that imports on first use."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

_MODULES = [
    "json",
    "re",
    "math",
    "hashlib",
    "collections",
    "collections.abc",
    "dataclasses",
    "typing",
    "datetime",
    "textwrap",
    "numpy",
    "numpy.linalg",
    "numpy.typing",
    "numpy.fft",
    "numpy.random",
    "numpy.ma",
    "numpy.polynomial",
    "numpy.char",
    "numpy.rec",
    "numpy.lib.stride_tricks",
    "_strptime",
    "calendar",
    "locale",
    "linecache",
    "traceback",
    "unicodedata",
    "stringprep",
    "heapq",
    "bisect",
    "copy",
    "string",
    "encodings.ascii",
    "encodings.latin_1",
    "encodings.utf_8",
    "encodings.utf_8_sig",
    "encodings.utf_16",
    "encodings.utf_16_le",
    "encodings.utf_16_be",
    "encodings.utf_32",
    "encodings.cp1252",
    "encodings.cp437",
    "encodings.idna",
    "encodings.punycode",
    "encodings.unicode_escape",
    "encodings.raw_unicode_escape",
]
_WHERE_PRESENT = [
    "numpy.exceptions",
    "numpy.dtypes",
    "numpy.strings",
    "numpy.lib.scimath",
    "numpy._core._dtype_ctypes",
]
_OWN = ["prismem_core.program.sandbox.worker", "prismem_core.program.validation.inspect_module"]


def load(numpy_folder: str) -> None:
    """Import everything; `numpy_folder` is where the engine found numpy, if nothing else leads there."""
    if numpy_folder not in sys.path:
        sys.path.append(numpy_folder)
    for name in _MODULES:
        importlib.import_module(name)
    for name in _WHERE_PRESENT:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in _OWN:
        importlib.import_module(name)


def warm_up() -> None:
    """Run once what imports or allocates on first use, so that every worker shares it."""
    import datetime
    import json
    import time

    import numpy as np

    time.localtime()
    datetime.datetime.strptime("2024-01-01", "%Y-%m-%d")
    square = np.ones((64, 64), np.float32)
    _ = square @ square
    np.linalg.svd(square)
    np.linalg.norm(square, axis=1)
    np.einsum("ij,jk->ik", square, square)
    np.argsort(square[0], kind="stable")
    np.argpartition(square[0], 3)
    np.unique(square)
    np.sort(np.array(["a"]))
    np.random.default_rng(0).standard_normal(2)
    repr(square)
    json.loads(json.dumps({"a": 1.5}, indent=1))


def host_paths(packages: Sequence[str]) -> tuple[str, ...]:
    """Folders of this machine that messages must not name, longest first."""
    import numpy as np

    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.__file__)}
    found.add(os.path.dirname(os.path.dirname(np.__file__)))
    found.update(next(iter(sys.modules[name].__path__)) for name in packages)
    return tuple(sorted((path for path in found if len(path) > 1), key=lambda path: (-len(path), path)))


def forget_files(packages: Sequence[str]) -> None:
    """Leave no way to import from files: what is loaded now is all there is."""
    from importlib.machinery import BuiltinImporter, FrozenImporter

    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
    sys.path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()
    for name in packages:
        sys.modules[name].__path__ = []
