"""Runs pytest over another build of the extension module: with_module.py BUILD_FOLDER ARGUMENTS_OF_PYTEST..."""

import importlib.util
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    (built,) = Path(sys.argv[1]).glob("_native*.so")
    spec = importlib.util.spec_from_file_location("prismem_core._native", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The package finds what is loaded already, whichever build is installed beside it.
    sys.modules["prismem_core._native"] = module
    spec.loader.exec_module(module)
    print(f"extension module: {built}")
    sys.exit(pytest.main(sys.argv[2:]))
