"""What an exported program checks of its inputs.

What a program does depends on the dtype, the device and the number of dimensions of its inputs:
what has the dtype asked for is not converted, autocast casts or not, ``x.dim()`` is a number. All
of that is decided while the program is exported, for the example. torch.export itself checks the
dtype of what is converted, but neither numbers of dimensions nor what is given in place of a None.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils import _pytree as pytree


def check_kinds(arguments: Any) -> None:
    """Has the program that torch.export traces check its tensors.

    Args:
        arguments: what the program is traced with.
    """
    for x in pytree.tree_leaves(arguments):
        if isinstance(x, Tensor):
            check_kind(x)


def check_kind(x: Tensor) -> None:
    """Has the program that torch.export traces check the dtype, device and layout of a tensor, as
    torch.export does for what it converts."""
    torch.ops.aten._assert_tensor_metadata.default(
        x, dtype=x.dtype, device=x.device, layout=x.layout
    )


def checks_kinds() -> bool:
    """Whether programs of this PyTorch can check dtypes and devices: what ``check_kind`` calls
    fails on torch.export's tensors in 2.6 ("Tensor device mismatch!"), and does not in 2.8."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


def keeps_conditions() -> bool:
    """Whether exported programs of this PyTorch keep what was decided about sizes, and check it:
    they do from 2.9 on (`_guards_code` of torch/export/exported_program.py)."""
    return "_guards_code" in ExportedProgram.__annotations__


def check_places(exported: ExportedProgram) -> None:
    """Has ``exported.module()`` check numbers of dimensions, and that nothing is given in place of
    a None. No operator can, so these are guards beside those of sizes, which ``torch.export.save``
    keeps and ``run_decompositions`` does not.

    Where programs keep no conditions, ``module()`` checks sizes that are fixed by itself
    (``_check_input_constraints_for_graph`` of torch/_export/utils.py), and others are refused
    (free_sizes.py)."""
    if not keeps_conditions():
        return
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    inputs = [
        spec.arg
        for spec in exported.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    for i, argument in enumerate(inputs):
        place = f"L['flat_args'][{i}]"  # of the flattened arguments
        if isinstance(argument, TensorArgument):
            guard = f"len({place}.size()) == {values[argument.name].dim()}"
        elif isinstance(argument, ConstantArgument) and argument.value is None:
            guard = f"{place} is None"
        else:
            continue
        exported._guards_code.append(guard)
