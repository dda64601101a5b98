"""Devices for machines that have none: `pytest --pretend cuda`, or xpu, mps, third.

`load` gives a CPU build of PyTorch a device whose tensors lie in CPU memory: "cuda", "xpu" or
"mps", with that one's dispatch keys and autocast, or "third", a third party's accelerator with
autocast lists of its own, which calls itself "pretended". See device.cpp for how, and for what they
cannot show. One of them in a process: PyTorch's autograd takes one kind of device beside the CPU.

The library is compiled once for each torch (half a minute) and kept in the cache folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.util
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

SOURCE = Path(__file__).parent / "device.cpp"
KEYS = {"cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "third": "PrivateUse1"}


def load(device: str) -> None:
    """Makes the device; before torch is imported, which looks for CUDA's hooks once.

    Raises:
        RuntimeError: torch was imported before, or has CUDA kernels of its own.
    """
    if "torch" in sys.modules:
        raise RuntimeError("a device is pretended before torch is imported")
    library = _compiled(KEYS[device])
    for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so"):
        mode = os.RTLD_GLOBAL if "deps" in name else os.RTLD_LOCAL
        ctypes.CDLL(str(_torch() / "lib" / name), mode=mode)
    ctypes.CDLL(str(library))
    complete = {"cuda": _complete_cuda, "xpu": _complete_xpu, "third": _complete_third}
    complete.get(device, _complete_mps)()


def _torch() -> Path:
    found = importlib.util.find_spec("torch")
    assert found and found.origin
    return Path(found.origin).parent


def _compiled(key: str) -> Path:
    """The library for the torch that would be imported, made where it is not there yet."""
    torch = _torch()
    made_of = SOURCE.read_bytes() + (torch / "version.py").read_bytes() + key.encode()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jit_amp"
    library = cache / f"pretend_{key}_{hashlib.sha256(made_of).hexdigest()[:16]}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = library.with_suffix(f".{os.getpid()}")
        print(f"compiling the {key} of tests/pretend", file=sys.stderr, flush=True)
        subprocess.run(
            [
                *("g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC"),
                *(f"-DDEVICE={key}", f"-DIS_{key}=1", str(SOURCE), "-o", str(part)),
                *(f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"),
                *(f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"),
            ],
            check=True,
        )
        part.rename(library)
    return library


def _complete_cuda() -> None:
    """What torch.cuda asks of libraries that are not there."""
    import torch

    # PyTorch's lists of operators ask for CUDA's libraries where there is CUDA.
    importlib.import_module("torch.testing._internal.common_methods_invocations")
    if torch.backends.cuda.is_built():
        raise RuntimeError("this PyTorch has CUDA kernels of its own")
    cuda = torch.cuda
    cuda._lazy_init = lambda: None
    cuda.is_available = lambda: True  # each its own function: torch.compile has a table of them
    cuda.is_initialized = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda._exchange_device = lambda index: 0
    cuda._maybe_exchange_device = lambda index: 0
    cuda.synchronize = lambda *_: None
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.get_rng_state = lambda *_: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    cuda.manual_seed = lambda seed: None
    cuda.manual_seed_all = lambda seed: None
    cuda.amp.common.amp_definitely_not_available = lambda: False  # what torch.autocast asks
    torch._C._cuda_getCompiledVersion = lambda: 0  # torch.testing's jit_utils asks
    torch._C._set_cudnn_enabled(False)
    torch._C._jit_override_can_fuse_on_gpu(False)


def _complete_xpu() -> None:
    """The same for torch.xpu."""
    import torch

    importlib.import_module("torch.testing._internal.common_methods_invocations")
    xpu = torch.xpu
    xpu._lazy_init = lambda: None
    xpu.is_available = lambda: True
    xpu.is_initialized = lambda: True
    xpu.device_count = lambda: 1
    xpu.current_device = lambda: 0
    xpu.get_device_properties = lambda *_: types.SimpleNamespace(has_fp64=True)
    xpu.synchronize = lambda *_: None
    xpu.manual_seed = lambda seed: None
    xpu.manual_seed_all = lambda seed: None


def _complete_mps() -> None:
    """The same for torch.mps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch registers some of MPS's kernels in Python
        import torch

    importlib.import_module("torch.testing._internal.common_methods_invocations")
    torch.backends.mps.is_built = lambda: True
    torch.backends.mps.is_available = lambda: True
    torch.mps.device_count = lambda: 1
    torch.mps.synchronize = lambda: None
    torch.mps.manual_seed = lambda seed: None


def _complete_third() -> None:
    """The module that a third party registers."""
    import torch

    module = types.ModuleType("torch.pretended")
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16, torch.float64]
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    torch.utils.rename_privateuse1_backend("pretended")
    torch._register_device_module("pretended", module)
