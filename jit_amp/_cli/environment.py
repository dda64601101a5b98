"""What a bug report needs to say of the machine: ``jit-amp env``."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import torch

from jit_amp import _C
from jit_amp._base import load_extension, source_files
from jit_amp._version import __version__

# Variables that change what is computed, or how it is built.
_SETTINGS = ("JIT_AMP_", "PYTORCH_", "TORCH_", "ATEN_", "ONEDNN_", "DNNL_", "OMP_", "MKL_")


def environment() -> dict[str, str]:
    """Names and values, in the order in which they are printed."""
    built_for = (
        load_extension.BUILT_FOR.read_text().strip()
        if load_extension.BUILT_FOR.exists()
        else "unknown"
    )
    found = {
        "jit_amp": f"{__version__}, built for torch {built_for}, in {Path(source_files.PACKAGE)}",
        "extension": str(_C.__file__),
        "torch": f"{torch.__version__}, {torch.version.git_version}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}, "
        f"{sys.executable}",
        "system": f"{platform.platform()}, {' '.join(platform.libc_ver())}".rstrip(", "),
        "processor": f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "oneDNN": _onednn(),
        "threads": str(torch.get_num_threads()),
        "devices": _devices(),
    }
    for name in sorted(os.environ):
        if name.startswith(_SETTINGS):
            found[name] = os.environ[name] or "(set to nothing)"
    return found


def _onednn() -> str:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "not in this build of torch"
    of = torch.ops.mkldnn
    known = {"bfloat16": of._is_mkldnn_bf16_supported(), "float16": of._is_mkldnn_fp16_supported()}
    return (
        f"computes in {', '.join(name for name, does in known.items() if does) or 'float32 only'}"
    )


def _processor() -> str:
    """The name that Linux gives it; elsewhere the machine's type."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {platform.machine()}" if names else platform.machine()


def _devices() -> str:
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return f"{', '.join(names)}; CUDA {torch.version.cuda}"
    return f"cpu; torch was built for CUDA {torch.version.cuda}" if torch.version.cuda else "cpu"
