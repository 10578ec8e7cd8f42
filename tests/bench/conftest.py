"""The folder bench/ becomes prismem_core.bench when it is installed; in a tree that is not, it is found beside it."""

from importlib.util import find_spec
from pathlib import Path

import prismem_core

if find_spec("prismem_core.bench") is None:
    prismem_core.__path__.append(str(Path(__file__).resolve().parents[2]))
