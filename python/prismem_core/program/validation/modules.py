"""What a program may take from the modules it may import: public names, and of numpy nothing that reaches outside."""

from __future__ import annotations

import types
from functools import cache
from importlib import import_module

from prismem_core.program.interface import ALLOWED_IMPORTS, ALLOWED_SUBMODULES

# File I/O, loaders, raw memory and doors to other modules, on numpy itself or below it.
_NUMPY_REFUSED = frozenset(
    {
        *("load", "save", "savez", "savez_compressed", "loadtxt", "savetxt", "genfromtxt", "fromfile", "fromregex"),
        *("memmap", "open_memmap", "DataSource", "lib", "core", "compat", "ctypeslib", "f2py", "testing", "distutils"),
        *("as_strided", "tofile", "dump", "ctypes", "source", "lookfor", "info", "show_config", "show_runtime", "test"),
        *("os", "sys", "warnings", "builtins", "inspect", "setbufsize", "seterrcall", "matlib", "npyio"),
    }
)
_NUMPY_MODULES = frozenset(
    f"numpy.{name}"
    for name in (
        *(
            "linalg",
            "fft",
            "random",
            "ma",
            "polynomial",
            "char",
            "strings",
            "typing",
            "emath",
            "rec",
            "exceptions",
            "dtypes",
        ),
        *(f"polynomial.{kind}" for kind in ("polynomial", "chebyshev", "legendre", "hermite", "hermite_e", "laguerre")),
    )
)
# They evaluate strings as code.
_TYPING_REFUSED = frozenset({"get_type_hints", "ForwardRef", "evaluate_forward_ref"})
_DOCUMENTED = {"re": frozenset({"DEBUG"}), "collections": frozenset({"abc"})}


def submodule(module: str, attribute: str) -> bool:
    """Whether `module.attribute` is a module a program may use."""
    name = f"{module}.{attribute}"
    return name in ALLOWED_SUBMODULES or name in _NUMPY_MODULES


def is_allowed(module: str) -> bool:
    """Whether an import statement may name the module."""
    return module in ALLOWED_IMPORTS or module in ALLOWED_SUBMODULES


def fault(module: str, attribute: str, *, certain: bool = True) -> str | None:
    """Why a program may not use `module.attribute`, None if it may.

    With `certain=False` the object is only perhaps the module, and an attribute the module lacks is no fault.
    """
    name = f"{module}.{attribute}"
    if module == "typing" and attribute in _TYPING_REFUSED:
        return f"{name} evaluates text as code"
    if module.partition(".")[0] == "numpy":
        return _numpy_fault(module, attribute, certain)
    if attribute in public_names(module):
        return None
    if not certain and not hasattr(import_module(module), attribute):
        return None
    return f"{attribute!r} is not a public name of {module}"


def _numpy_fault(module: str, attribute: str, certain: bool) -> str | None:
    name = f"{module}.{attribute}"
    if attribute in _NUMPY_REFUSED or attribute.startswith("_"):
        return f"{name} reaches files, raw memory or internals of numpy"
    if submodule(module, attribute):
        return None
    loaded = _numpy(module)
    if isinstance(getattr(loaded, attribute, None), types.ModuleType):
        return f"{name} is a module that programs may not use"
    if module == "numpy" or loaded is None or attribute in public_names(module):
        return None
    if certain or hasattr(loaded, attribute):
        return f"{attribute!r} is not a public name of {module}"
    return None


@cache
def _numpy(module: str) -> types.ModuleType | None:
    try:
        return import_module(module)
    except ImportError:
        # Older numpy lacks some of the modules; then a program that names one fails when it runs.
        return None


@cache
def public_names(module: str) -> frozenset[str]:
    """The names a module offers: its `__all__`, else every name without a leading underscore."""
    loaded = import_module(module)
    offered = getattr(loaded, "__all__", None) or [name for name in dir(loaded) if not name.startswith("_")]
    return frozenset(offered) | _DOCUMENTED.get(module, frozenset())
