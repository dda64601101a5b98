"""Autocast in TorchScript that means exactly what it means in eager."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jit_amp._version import __version__

if TYPE_CHECKING:
    from jit_amp import policy
    from jit_amp._base.autocast_error import AutocastError
    from jit_amp._explain.explain import explain
    from jit_amp._explain.report import Report
    from jit_amp._export.export import export
    from jit_amp._freeze.freeze import facts, freeze, optimize_for_inference
    from jit_amp._install import install, uninstall
    from jit_amp._precision.precision import Precision
    from jit_amp._script.ignore_amp import ignore_amp
    from jit_amp._script.script import lowered_graph, script
    from jit_amp._script.trace import trace, trace_module
    from jit_amp._source.decorators import get_autocast
    from jit_amp._tune.tune import tune

__all__ = [
    "AutocastError",
    "Precision",
    "Report",
    "__version__",
    "explain",
    "export",
    "facts",
    "freeze",
    "get_autocast",
    "ignore_amp",
    "install",
    "lowered_graph",
    "optimize_for_inference",
    "policy",
    "script",
    "trace",
    "trace_module",
    "tune",
    "uninstall",
]

# Where a name is, which is imported when it is first asked for: `export` alone imports sympy.
_MODULES = {
    "AutocastError": "_base.autocast_error",
    "Precision": "_precision.precision",
    "Report": "_explain.report",
    "explain": "_explain.explain",
    "export": "_export.export",
    "facts": "_freeze.freeze",
    "freeze": "_freeze.freeze",
    "get_autocast": "_source.decorators",
    "ignore_amp": "_script.ignore_amp",
    "install": "_install",
    "lowered_graph": "_script.script",
    "optimize_for_inference": "_freeze.freeze",
    "script": "_script.script",
    "trace": "_script.trace",
    "trace_module": "_script.trace",
    "tune": "_tune.tune",
    "uninstall": "_install",
}


def _is_command() -> bool:
    """Whether this process is `jit-amp` or `python -m jit_amp`: some of its commands need no torch,
    which takes a second or two to import."""
    name = next(iter(getattr(sys, "argv", [])), "")
    if name == "-m":  # while Python looks for the module
        after = sys.orig_argv[sys.orig_argv.index("-m") :] if "-m" in sys.orig_argv else []
        return after[1:2] == ["jit_amp"]
    return Path(name).stem == "jit-amp"


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in (*_MODULES, "_C", "policy"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        importlib.import_module("jit_amp._base.load_extension")
        module = importlib.import_module(f"jit_amp.{_MODULES.get(name, name)}")
        found = globals()[name] = getattr(module, name) if name in _MODULES else module
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    if not _is_command():
        from jit_amp._base import load_extension as load_extension
