"""A TorchScript graph, run in Python while torch.export looks on.

`interpreter` runs it; these register the operators that it runs in ways of its own.
"""

from jit_amp._export.interpreter import containers as containers
from jit_amp._export.interpreter import control_flow as control_flow
from jit_amp._export.interpreter import dialect as dialect
from jit_amp._export.interpreter import operators as operators
