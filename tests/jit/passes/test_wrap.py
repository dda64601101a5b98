"""wrap: a whole graph inside autocast scopes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jit_amp import _C
from jit_amp._source import scope_template

from ..support import check_ir
from .ir import operators

PATTERN = torch.jit.script(scope_template.scope).graph


def doubled(x: Tensor):
    return x + x


def wrapped(*scopes: tuple[str, torch.dtype | None, bool, bool | None]) -> torch._C.Graph:
    return _C.wrapped_function(torch.jit.script(doubled), PATTERN, list(scopes)).graph


def test_everything_is_inside_of_both_the_first_outermost() -> None:
    check_ir(
        wrapped(("cpu", torch.bfloat16, True, None), ("cuda", torch.float16, False, True)),
        """
        # CHECK: [[CPU:%[0-9]+]] : __torch__.torch.amp.autocast_mode.autocast = prim::CreateObject
        # CHECK: prim::CallMethod[name="__init__"]([[CPU]], %
        # CHECK: prim::Enter([[CPU]])
        # CHECK: [[CUDA:%[0-9]+]] : __torch__.torch.amp.autocast_mode.autocast = prim::CreateObject
        # CHECK: prim::Enter([[CUDA]])
        # CHECK: aten::add
        # CHECK: prim::Exit([[CUDA]])
        # CHECK: prim::Exit([[CPU]])
        # CHECK-NEXT: return
        """,
    )


def test_without_scopes_nothing_changes() -> None:
    assert operators(wrapped()) == ["aten::add"]


@pytest.mark.parametrize(
    ("dtype", "result"), [(torch.bfloat16, "cpu=BFloat16"), (None, "cpu=ambient")]
)
def test_the_scope_is_what_it_says(dtype: torch.dtype | None, result: str) -> None:
    copy = _C.wrapped_function(torch.jit.script(doubled), PATTERN, [("cpu", dtype, True, None)])
    assert f"aten::add {result}" in _C.scopes_of(_C.flattened(copy, "fix_attributes"), {})
