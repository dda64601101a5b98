"""Autocast in TorchScript that means exactly what it means in eager."""

# Before all that imports the extension.
from jit_amp._base import load_extension as load_extension

# isort: split
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
from jit_amp._version import __version__

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
