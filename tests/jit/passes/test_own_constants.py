"""own_constants: an artefact's constants are its own."""

from __future__ import annotations

import io
from typing import NamedTuple

import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import _C

from .ir import TENSOR, parse

WRITING = f"""
graph(%x : Tensor):
  %w : {TENSOR}
  %1 : int = prim::Constant[value=1]()
  %y : Tensor = aten::add_(%w, %x, %1)
  return (%y)
"""
READING = WRITING.replace("add_", "add")


class Holder(nn.Module):
    def __init__(self, *tensors: Tensor) -> None:
        super().__init__()
        for i, tensor in enumerate(tensors):
            self.register_buffer(f"t{i}", tensor)

    def forward(self, x: Tensor):
        return x


def constants(*graphs: torch._C.Graph) -> list[Tensor]:
    found = [n.t("value") for g in graphs for n in g.nodes() if "value" in n.attributeNames()
             and n.kindOf("value") == "t"]  # fmt: skip
    assert found
    return found


def own(module: nn.Module, *graphs: torch._C.Graph) -> list[Tensor]:
    _C.own_constants(list(graphs), torch.jit.script(module)._c)
    return constants(*graphs)


def test_what_the_module_has_is_copied_with_its_strides() -> None:
    tensor = torch.rand(4, 6)[:, ::2]
    [copy] = own(Holder(tensor), parse(READING, tensor))
    assert torch.equal(copy, tensor)
    assert copy.stride() == tensor.stride()
    assert copy.data_ptr() != tensor.data_ptr()


def test_what_the_module_does_not_have_stays() -> None:
    tensor = torch.rand(3)
    [same] = own(Holder(torch.rand(3)), parse(READING, tensor))
    assert same.data_ptr() == tensor.data_ptr()


def test_what_is_written_to_stays_the_modules() -> None:
    tensor = torch.rand(3)
    [same] = own(Holder(tensor), parse(WRITING, tensor))
    assert same.data_ptr() == tensor.data_ptr()


def test_a_constant_of_two_methods_is_one_copy() -> None:
    tensor = torch.rand(3)
    first, second = own(Holder(tensor), parse(READING, tensor), parse(READING, tensor))
    assert first.data_ptr() == second.data_ptr() != tensor.data_ptr()


def test_different_dtypes_do_not_share_memory() -> None:
    tensor = torch.rand(3, dtype=torch.complex64)
    whole, part = own(Holder(), parse(READING, tensor), parse(READING, tensor.imag))
    assert whole.untyped_storage().data_ptr() != part.untyped_storage().data_ptr()
    assert torch.equal(whole.imag, part)


class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 3)
        self.pair, self.named = (torch.ones(3), torch.ones(3)), {"a": torch.ones(3)}

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.mm(x, x).sum() + self.pair[0] + self.named["a"]
        return y + self.lstm(x)[0]


def test_tensors_in_lists_are_the_frozen_modules_own() -> None:
    module, x = Lists().eval(), torch.rand(3, 3)
    held = [*module.parameters(), *module.pair, *module.named.values()]
    with torch.no_grad():
        frozen = jit_amp.freeze(module, optimize_numerics=False)
        expected = module(x)
        for tensor in held:
            tensor.zero_()
        assert not torch.equal(module(x), expected)
        for _ in range(3):
            assert torch.equal(frozen(x), expected)


class Pair(NamedTuple):
    a: Tensor
    b: Tensor


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("a", torch.ones(3))
        self.register_buffer("b", torch.ones(3))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x), Pair(self.a, self.b)


def test_a_named_tuple_keeps_its_name() -> None:
    module, x = Named().eval(), torch.rand(3, 3)
    frozen, held = jit_amp.freeze(module), io.BytesIO()
    torch.jit.save(frozen, held)
    held.seek(0)
    for each in (frozen, torch.jit.load(held)):
        assert each(x)[1]._fields == ("a", "b")
        assert each(x)[1].a.data_ptr() != module.a.data_ptr()
