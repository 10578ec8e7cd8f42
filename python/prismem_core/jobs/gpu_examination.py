"""What a GPU needs, part by part: driver, torch, kernels. Each is tried; the main job needs none of them."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from prismem_core import ops

State = tuple[str, str]

INSTALL = "pip install 'prismem-core[gpu]'"
NO_DEVICE = 100  # of the driver: it is there, a GPU is not
OLDEST_DRIVER = 13000  # what the CUDA library is built for; as the driver counts its versions


def gpu_parts() -> list[tuple[str, Callable[[], State]]]:
    """Names of the parts and what tries them."""
    return [
        ("GPU driver", driver),
        ("torch on a GPU", torch_on_gpu),
        ("Triton kernels", triton_kernels),
        ("CUDA kernels", cuda_kernels),
    ]


def driver(load: Callable[[str], Any] = ctypes.CDLL) -> State:
    """Whether there is a driver with a GPU; `load` opens a shared library."""
    try:
        library = load("libcuda.so.1")
    except OSError:
        return "missing", "no NVIDIA driver (there is no libcuda.so.1): everything runs on the CPU; install the driver"
    code = int(library.cuInit(0))
    if code == NO_DEVICE:
        return "missing", "the NVIDIA driver sees no GPU: give this machine or container one (docker run --gpus all)"
    if code:
        return "broken", f"the NVIDIA driver does not start (code {code} of cuInit): nvidia-smi says more"
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for index in range(count.value):
        name = ctypes.create_string_buffer(256)
        library.cuDeviceGetName(name, len(name), index)
        names.append(name.value.decode("utf-8", "replace"))
    found = f"{', '.join(names)}; the driver serves CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if version.value < OLDEST_DRIVER:
        needed = f"{OLDEST_DRIVER // 1000}.{OLDEST_DRIVER % 1000 // 10}"
        return "missing", f"{found}: the CUDA library needs {needed}; update the driver (580 or newer)"
    return "ok", found


def torch_on_gpu() -> State:
    """Whether torch can hold arrays on a GPU."""
    why = _why_no_torch()
    if why is not None:
        return "missing", why
    torch = importlib.import_module("torch")
    names = []
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        free, total = torch.cuda.mem_get_info(index)
        names.append(f"cuda:{index} sm_{major}{minor}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    return "ok", f"torch {torch.__version__} (CUDA {torch.version.cuda}): {'; '.join(names)}"


def _why_no_torch() -> str | None:
    """Why torch cannot reach a GPU, with what to do, or None."""
    if importlib.util.find_spec("torch") is None:
        return f"torch is not installed: VectorIndex(device=) and the Triton kernels need it; {INSTALL}"
    torch = importlib.import_module("torch")
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA: install a build with it (https://pytorch.org)"
    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} is built for CUDA {torch.version.cuda} and finds no usable GPU: see the driver"
        )
    return None


def triton_kernels() -> State:
    """Whether the Triton twins of the ops run on a GPU."""
    if importlib.util.find_spec("triton") is None:
        return "missing", f"triton is not installed, which the kernels for torch tensors need; {INSTALL}"
    version = importlib.import_module("triton").__version__
    why = _why_no_torch()
    if why is not None:
        return "missing", f"triton {version} is there, but it needs torch on a GPU: {why}"
    return _tried("triton", f"triton {version}")


def cuda_kernels() -> State:
    """Whether the CUDA twins of the ops are built and run on a GPU."""
    try:
        library = importlib.import_module("prismem_core.kernels.cuda")
    except ImportError as error:
        return "missing", f"the launchers of the CUDA kernels cannot be imported ({error}); install the package again"
    usable, reason = library.available()
    if not usable:
        try:
            built = f"built for {library.architectures()}: "
        except Exception:  # there is no library that could say so
            built = ""
        return "missing", built + reason
    if _why_no_torch() is not None:
        return "ok", f"{reason}; not tried, because torch has no GPU"
    return _tried("cuda", reason)


def _tried(backend: str, what: str) -> State:
    torch = importlib.import_module("torch")
    rows = torch.eye(4, 16, device="cuda")
    with ops.use(backend):
        found = ops.top_k(rows[2:3], rows, 1)
    if int(found.indices[0, 0]) != 2:
        return "broken", f"{what}: top_k found the wrong row; do not use PRISMEM_BACKEND={backend}"
    return "ok", f"{what}: top_k found the right row on {torch.cuda.get_device_name(0)}"
