"""Lowering: casts in the graph for operators that are known, the dispatcher around those that are
not, nothing else. Each rewrite has a case that it must leave alone.

The IR is checked on whatever machine this runs: CUDA's casts are there without CUDA too.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import jit_amp

from ..support import DEFAULT, DEVICES, assert_parity, check_ir, needs_cuda, tensors_of

# oneDNN has no float16 LSTM on most CPUs.
WITHOUT_FLOAT16 = [name for name in DEFAULT if name != "cpu_float16"]
BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


def randn(*shape: int, dtype: torch.dtype = F32, device: str = "cpu") -> Tensor:
    return torch.randn(*shape).to(device, dtype)


# lower: operands to the scope's dtype.


def lower(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, y)


def test_operands_of_a_lower_operator_are_cast_to_the_scopes_dtype() -> None:
    check_ir(
        jit_amp.lowered_graph(lower),
        """
        CHECK-LABEL: graph(%x.1 : Tensor
        CHECK-DAG:   [[NONE:%[0-9]+]] : NoneType = prim::Constant()
        CHECK-DAG:   [[BF16:%[0-9]+]] : int = prim::Constant[value=15]()
        CHECK:       [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1, [[BF16]], [[NONE]])
        CHECK-NEXT:  [[Y:%[0-9]+]] : Tensor = jit_amp::cast(%y.1, [[BF16]], [[NONE]])
        CHECK-NEXT:  [[OUT:%[0-9]+]] : Tensor = aten::mm([[X]], [[Y]])
        CHECK-NEXT:  return ([[OUT]])
        """,
    )


def test_nothing_of_a_scope_is_left_in_a_lowered_graph() -> None:
    check_ir(
        jit_amp.lowered_graph(lower),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   autocast
        CHECK-NOT:   prim::Enter
        CHECK-NOT:   prim::Exit
        CHECK-NOT:   prim::CreateObject
        """,
    )


def the_same_operand_twice(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, x)


def test_one_operand_given_twice_is_cast_once() -> None:
    check_ir(
        jit_amp.lowered_graph(the_same_operand_twice),
        """
        CHECK-LABEL: graph(
        CHECK:       [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1,
        CHECK-NOT:   jit_amp::cast
        CHECK:       aten::mm([[X]], [[X]])
        """,
    )


def two_products(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, y), torch.mm(y, x)


def two_products_in_two_dtypes(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.mm(x, y)
    with torch.autocast("cpu", dtype=torch.float16):
        return a, torch.mm(y, x)


def two_products_and_a_write(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.mm(x, y)
        x.add_(1)
        return a, torch.mm(y, x)


def test_equal_casts_are_shared() -> None:
    check_ir(
        jit_amp.lowered_graph(two_products),
        """
        CHECK-LABEL: graph(
        CHECK:       [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1,
        CHECK-NEXT:  [[Y:%[0-9]+]] : Tensor = jit_amp::cast(%y.1,
        CHECK-NEXT:  aten::mm([[X]], [[Y]])
        CHECK-NEXT:  aten::mm([[Y]], [[X]])
        """,
    )


def test_casts_to_two_dtypes_are_not_shared() -> None:
    check_ir(
        jit_amp.lowered_graph(two_products_in_two_dtypes),
        """
        CHECK-LABEL: graph(
        CHECK:       aten::mm(
        CHECK:       [[Y:%[0-9]+]] : Tensor = jit_amp::cast(%y.1,
        CHECK-NEXT:  [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1,
        CHECK-NEXT:  aten::mm([[Y]], [[X]])
        """,
    )


def test_casts_with_a_write_between_them_are_not_shared() -> None:
    check_ir(
        jit_amp.lowered_graph(two_products_and_a_write),
        """
        CHECK-LABEL: graph(
        CHECK:       jit_amp::cast(%x.1,
        CHECK:       aten::mm(
        CHECK-NEXT:  aten::add_(%x.1,
        CHECK:       [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1,
        CHECK:       aten::mm({{%[0-9]+}}, [[X]])
        """,
    )


def default_dtype(x: Tensor, y: Tensor):
    with torch.autocast("cpu"):
        return torch.mm(x, y)


def test_a_default_dtype_is_read_at_the_call() -> None:
    check_ir(
        jit_amp.lowered_graph(default_dtype),
        """
        CHECK-LABEL: graph(
        CHECK:       [[CPU:%[0-9]+]] : str = prim::Constant[value="cpu"]()
        CHECK:       [[DTYPE:%[0-9]+]] : int = jit_amp::ambient_dtype([[CPU]])
        CHECK:       jit_amp::cast(%x.1, [[DTYPE]],
        """,
    )


def cpu_and_cuda(x: Tensor, y: Tensor):
    with torch.autocast("cuda", dtype=torch.float16), torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, y)


def test_one_cast_serves_both_devices() -> None:
    check_ir(
        jit_amp.lowered_graph(cpu_and_cuda),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[F16:%[0-9]+]] : int = prim::Constant[value=5]()
        CHECK-DAG:   [[BF16:%[0-9]+]] : int = prim::Constant[value=15]()
        CHECK:       [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1, [[BF16]], [[F16]])
        CHECK:       [[Y:%[0-9]+]] : Tensor = jit_amp::cast(%y.1, [[BF16]], [[F16]])
        CHECK:       aten::mm([[X]], [[Y]])
        """,
    )


def disabled(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        return torch.mm(x, y)


def outside(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x + y
    return torch.mm(z, y)


def untouched(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.relu(x + y).sum().exp()


@pytest.mark.parametrize("function", [disabled, outside, untouched])
def test_nothing_is_cast(function: Callable[..., Any]) -> None:
    check_ir(
        jit_amp.lowered_graph(function),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   jit_amp::
        CHECK:       return
        """,
    )
    results = assert_parity(function, (randn(3, 3), randn(3, 3)), ambients=["none"])
    assert results["none"].dtype == F32


def without_a_scope(x: Tensor, y: Tensor):
    return torch.mm(x, y) + 1


def canonical(graph: torch._C.Graph) -> str:
    graph = graph.copy()
    torch._C._jit_pass_constant_pooling(graph)
    return str(torch._C._jit_pass_canonicalize(graph))


def test_a_graph_without_a_scope_stays_as_it_is() -> None:
    plain = torch.jit.script(without_a_scope).graph
    assert canonical(jit_amp.lowered_graph(without_a_scope)) == canonical(plain)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, F64, F16, BF16, F32])
def test_only_what_eager_casts_is_cast_at_run_time(dtype: torch.dtype, device: str) -> None:
    if device == "cuda" and torch.backends.cuda.is_built() and not dtype.is_floating_point:
        pytest.skip("GPUs have no product of integers")
    x = torch.arange(9).reshape(3, 3).to(device, dtype)
    results = assert_parity(the_same_operand_twice, (x,), ambients=["none", "cuda_switched_on"])
    low = device == "cpu" and dtype in (F16, BF16, F32)
    assert results["none"].dtype == (BF16 if low else dtype)


def mixed_with_float64(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, y)


def test_an_error_of_eagers_is_an_error() -> None:
    inputs = randn(3, 3), randn(3, 3, dtype=F64)
    with torch.no_grad(), pytest.raises(RuntimeError, match="same dtype"):
        mixed_with_float64(*inputs)
    scripted = jit_amp.script(mixed_with_float64)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="same dtype"):
            scripted(*inputs)


# Optional operands.


def conv(x: Tensor, weight: Tensor, bias: Tensor | None):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.conv2d(x, weight, bias)


def conv_without_bias(x: Tensor, weight: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.conv2d(x, weight, None)


def test_an_optional_bias_is_cast() -> None:
    check_ir(
        jit_amp.lowered_graph(conv),
        """
        CHECK-LABEL: graph(
        CHECK:       [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1,
        CHECK:       [[WEIGHT:%[0-9]+]] : Tensor = jit_amp::cast(%weight.1,
        CHECK:       [[BIAS:%[0-9]+]] : Tensor? = jit_amp::cast(%bias.1,
        CHECK:       aten::conv2d([[X]], [[WEIGHT]], [[BIAS]],
        """,
    )
    image, weight, bias = randn(1, 2, 5, 5), randn(3, 2, 3, 3), randn(3)
    for given in (bias, None):
        results = assert_parity(conv, (image, weight, given))
        assert results["none"].dtype == BF16


def test_a_bias_that_is_none_is_left_none() -> None:
    check_ir(
        jit_amp.lowered_graph(conv_without_bias),
        """
        CHECK-LABEL: graph(
        CHECK:       [[NONE:%[0-9]+]] : NoneType = prim::Constant()
        CHECK-COUNT-2: jit_amp::cast(
        CHECK-NOT:   jit_amp::cast(
        CHECK:       aten::conv2d({{%[0-9]+, %[0-9]+}}, [[NONE]],
        """,
    )
    assert_parity(conv_without_bias, (randn(1, 2, 5, 5), randn(3, 2, 3, 3)))


# promote: operands, lists among them, to the widest dtype.


def cat(tensors: list[Tensor]):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.cat(tensors)


def stack(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.stack([x, y])


def index_copy(x: Tensor, index: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.index_copy(x, 0, index, y)


def promoted_on_cuda(x: Tensor, y: Tensor, z: Tensor):
    with torch.autocast("cuda", dtype=torch.float16):
        return torch.addcmul(x, y, z), torch.cat([x, y])


def test_a_list_of_tensors_is_cast_to_the_widest_dtype_in_it() -> None:
    check_ir(
        jit_amp.lowered_graph(cat),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[BF16:%[0-9]+]] : int = prim::Constant[value=15]()
        CHECK-DAG:   [[CPU:%[0-9]+]] : str = prim::Constant[value="cpu"]()
        CHECK:       [[DTYPE:%[0-9]+]] : int? = jit_amp::widest(%tensors.1, [[BF16]], [[CPU]])
        CHECK:       [[CAST:%[0-9]+]] : Tensor[] = jit_amp::cast(%tensors.1, [[DTYPE]],
        CHECK:       aten::cat([[CAST]],
        """,
    )


def test_a_list_made_in_place_is_cast_as_a_list() -> None:
    check_ir(
        jit_amp.lowered_graph(stack),
        """
        CHECK-LABEL: graph(
        CHECK:       [[LIST:%[0-9]+]] : Tensor[] = prim::ListConstruct(%x.1, %y.1)
        CHECK:       [[DTYPE:%[0-9]+]] : int? = jit_amp::widest([[LIST]],
        CHECK:       [[CAST:%[0-9]+]] : Tensor[] = jit_amp::cast([[LIST]], [[DTYPE]],
        CHECK:       aten::stack([[CAST]],
        """,
    )


def test_separate_operands_are_promoted_together() -> None:
    check_ir(
        jit_amp.lowered_graph(index_copy),
        """
        CHECK-LABEL: graph(
        CHECK:       [[ALL:%[0-9]+]] : Tensor[] = prim::ListConstruct(%x.1, %index.1, %y.1)
        CHECK:       [[DTYPE:%[0-9]+]] : int? = jit_amp::widest([[ALL]],
        CHECK:       [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1, [[DTYPE]],
        CHECK:       [[INDEX:%[0-9]+]] : Tensor = jit_amp::cast(%index.1, [[DTYPE]],
        CHECK:       [[Y:%[0-9]+]] : Tensor = jit_amp::cast(%y.1, [[DTYPE]],
        CHECK:       aten::index_copy([[X]], {{%[0-9]+}}, [[INDEX]], [[Y]])
        """,
    )


def test_cuda_promotes_by_its_own_list() -> None:
    check_ir(
        jit_amp.lowered_graph(promoted_on_cuda),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[F16:%[0-9]+]] : int = prim::Constant[value=5]()
        CHECK-DAG:   [[CUDA:%[0-9]+]] : str = prim::Constant[value="cuda"]()
        CHECK:       [[DTYPE:%[0-9]+]] : int? = jit_amp::widest({{%[0-9]+}}, [[F16]], [[CUDA]])
        CHECK-COUNT-3: jit_amp::cast({{.*}}, [[DTYPE]])
        CHECK:       aten::addcmul(
        CHECK-NOT:   jit_amp::
        CHECK:       aten::cat(
        """,
    )


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [([BF16, BF16], BF16), ([BF16, F32], F32), ([F32, F32], F32), ([BF16, torch.int64], BF16)],
)
@pytest.mark.parametrize("ambient", ["none", "cpu"])
def test_promotion_is_eagers(
    dtypes: list[torch.dtype], expected: torch.dtype, ambient: str
) -> None:
    tensors = [randn(2, 2, dtype=dtype) for dtype in dtypes]
    assert assert_parity(cat, (tensors,), ambients=[ambient])[ambient].dtype == expected
    assert assert_parity(stack, tensors, ambients=[ambient])[ambient].dtype == expected


@pytest.mark.parametrize("dtypes", [[F32, F64], [F64, F64]])
def test_promotion_leaves_float64_to_the_operator(dtypes: list[torch.dtype]) -> None:
    tensors = [randn(2, 2, dtype=dtype) for dtype in dtypes]
    assert assert_parity(cat, (tensors,))["none"].dtype == F64


def test_a_dtype_that_eager_cannot_promote_is_eagers_error() -> None:
    tensors = [randn(2, 2, dtype=F16), randn(2, 2, dtype=BF16)]
    with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
        cat(tensors)
    with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
        jit_amp.script(cat)(tensors)


# fp32: operands to float32.


def fp32(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.cdist(x, y)


def test_operands_of_an_fp32_operator_are_cast_to_float32() -> None:
    check_ir(
        jit_amp.lowered_graph(fp32),
        """
        CHECK-LABEL: graph(
        CHECK:       [[F32:%[0-9]+]] : int = prim::Constant[value=6]()
        CHECK:       [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1, [[F32]],
        CHECK:       [[Y:%[0-9]+]] : Tensor = jit_amp::cast(%y.1, [[F32]],
        CHECK:       aten::cdist([[X]], [[Y]],
        """,
    )
    results = assert_parity(fp32, (randn(3, 3, dtype=BF16), randn(3, 3)))
    assert results["none"].dtype == F32


def view_of_an_operand(x: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = torch.view_as_complex(x)
    x.add_(1)
    return torch.view_as_real(z)


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_cast_returns_its_input_where_eager_does(dtype: torch.dtype) -> None:
    # A view of float32 shares memory with the input and sees the write; one of a cast does not.
    x = torch.zeros(3, 2, dtype=dtype)
    results = assert_parity(view_of_an_operand, (x,))
    assert results["none"].max().item() == (1 if dtype == F32 else 0)


# In-place and out= overloads: never cast.


def writes(x: Tensor, y: Tensor, out: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.mm(y, y, out=out)
        x.addmm_(y, y)
        x.index_copy_(0, torch.tensor([0]), y[:1])
        return x.add_(out)


def test_in_place_and_out_overloads_are_not_cast() -> None:
    check_ir(
        jit_amp.lowered_graph(writes),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   jit_amp::cast
        CHECK:       aten::mm(%y.1, %y.1, %out.1)
        CHECK-NOT:   jit_amp::cast
        CHECK:       aten::addmm_(%x.1, %y.1, %y.1,
        CHECK-NOT:   jit_amp::cast
        CHECK:       aten::index_copy_(%x.1,
        CHECK-NOT:   jit_amp::cast
        CHECK:       aten::add_(%x.1, %out.1,
        """,
    )
    results = assert_parity(writes, (randn(3, 3), randn(3, 3), torch.zeros(3, 3)))
    assert results["none"].dtype == F32


# Opaque operators: the dispatcher's own autocast around them.


def lstm(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.lstm(x, [h, c], weights, True, 1, 0.0, False, False, False)


def lstm_disabled(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        return torch.lstm(x, [h, c], weights, True, 1, 0.0, False, False, False)


def lstm_outside(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.mm(x[0], x[0].t())
    return y, torch.lstm(x, [h, c], weights, True, 1, 0.0, False, False, False)


def lstm_inputs() -> tuple[Any, ...]:
    weights = [randn(8, 3), randn(8, 2), randn(8), randn(8)]
    return randn(4, 1, 3), randn(1, 1, 2), randn(1, 1, 2), weights


def test_an_opaque_operator_is_wrapped_in_its_scopes_state() -> None:
    check_ir(
        jit_amp.lowered_graph(lstm),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[ON:%[0-9]+]] : bool = prim::Constant[value=1]()
        CHECK-DAG:   [[BF16:%[0-9]+]] : int = jit_amp::deferred[value=15]()
        CHECK:       [[HIDDEN:%[0-9]+]] : Tensor[] = prim::ListConstruct(%h.1, %c.1)
        CHECK-NOT:   aten::lstm
        CHECK:       jit_amp::scoped
        CHECK-SAME:  devices=["cpu"]
        CHECK-SAME:  ([[ON]], [[BF16]], %x.1, [[HIDDEN]], %weights.1)
        CHECK:       with jit_amp::scoped
        CHECK:       aten::lstm(
        CHECK-NOT:   jit_amp::
        """,
    )
    results = assert_parity(lstm, lstm_inputs())
    assert {t.dtype for t in tensors_of(results["none"])} == {BF16}


@pytest.mark.parametrize("function", [lstm_disabled, lstm_outside])
def test_an_opaque_operator_without_autocast_is_not_wrapped(function: Callable[..., Any]) -> None:
    check_ir(
        jit_amp.lowered_graph(function),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   jit_amp::scoped
        CHECK:       aten::lstm(
        CHECK-NOT:   jit_amp::scoped
        """,
    )
    assert_parity(function, lstm_inputs(), ambients=WITHOUT_FLOAT16)


def opaque_in_two_devices(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]):
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.lstm(x, [h, c], weights, True, 1, 0.0, False, False, False)


def test_an_opaque_operator_gets_the_state_of_every_device() -> None:
    check_ir(
        jit_amp.lowered_graph(opaque_in_two_devices),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[OFF:%[0-9]+]] : bool = prim::Constant[value=0]()
        CHECK-DAG:   [[ON:%[0-9]+]] : bool = prim::Constant[value=1]()
        CHECK-DAG:   [[BF16:%[0-9]+]] : int = jit_amp::deferred[value=15]()
        CHECK-DAG:   [[AMBIENT:%[0-9]+]] : int = jit_amp::ambient_dtype(
        CHECK:       jit_amp::scoped
        CHECK-SAME:  devices=["cpu", "cuda"]
        CHECK-SAME:  ([[ON]], [[BF16]], [[OFF]], [[AMBIENT]], %x.1,
        """,
    )
    assert_parity(opaque_in_two_devices, lstm_inputs(), ambients=WITHOUT_FLOAT16)


# Two equal operators in two states are two.


def inside_and_outside(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        c = torch.einsum("ij,jk->ik", x, y)
    b = x @ y
    d = torch.einsum("ij,jk->ik", x, y)
    return a, b, c, d


def in_two_scopes(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        c = torch.einsum("ij,jk->ik", x, y)
    with torch.autocast("cpu", dtype=torch.float16):
        b = x @ y
        d = torch.einsum("ij,jk->ik", x, y)
    return a, b, c, d


@pytest.mark.parametrize(
    ("function", "dtypes"),
    [(inside_and_outside, [BF16, F32] * 2), (in_two_scopes, [BF16, F16] * 2)],
)
def test_equal_operators_in_two_states_are_not_merged(
    function: Callable[..., Any], dtypes: list[torch.dtype]
) -> None:
    results = assert_parity(function, (randn(4, 4), randn(4, 4)))
    assert [t.dtype for t in results["none"]] == dtypes


# A write between two uses: two casts.


def write_between_operands(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        x.add_(1)
        return a, x @ y


def write_to_a_view_between_operands(x: Tensor, y: Tensor):
    row = x[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        row.add_(1)
        return a, x @ y


def write_between_optional_operands(x: Tensor, y: Tensor, bias: Tensor | None):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch._C._nn.linear(x, y, bias)
        if bias is not None:
            bias.add_(1)
        return a, torch._C._nn.linear(x, y, bias)


def write_between_lists(x: Tensor, y: Tensor):
    tensors = [x, y]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.cat(tensors)
        x.add_(1)
        return a, torch.cat(tensors)


def write_between_opaque_lists(x: Tensor, y: Tensor):
    tensors = [x, y]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.einsum("ij,jk->ik", tensors)
        x.add_(1)
        return a, torch.einsum("ij,jk->ik", tensors)


def write_between_opaque(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.einsum("ij,jk->ik", x, y)
        x.add_(1)
        return a, torch.einsum("ij,jk->ik", x, y)


@pytest.mark.parametrize(
    "function",
    [
        write_between_operands,
        write_to_a_view_between_operands,
        write_between_lists,
        write_between_opaque_lists,
        write_between_opaque,
    ],
)
def test_a_write_between_two_uses_is_seen(function: Callable[..., Any]) -> None:
    # In a list, bfloat16 beside float32 is what is cast.
    x = randn(3, 3, dtype=BF16 if function is write_between_lists else F32)
    results = assert_parity(function, (x, randn(3, 3)))
    before, after = results["none"]
    assert not torch.equal(before, after)


def test_a_write_to_an_optional_operand_is_seen() -> None:
    results = assert_parity(write_between_optional_operands, (randn(3, 3), randn(3, 3), randn(3)))
    before, after = results["none"]
    assert not torch.equal(before, after)


# CUDA's policies that are not casts of operands.


def reductions_on_cuda(x: Tensor):
    with torch.autocast("cuda"):
        return torch.sum(x), torch.softmax(x, 0), torch.sum(x, dtype=torch.float64)


def sums_on_cuda(x: Tensor):
    with torch.autocast("cuda"):
        return torch.sum(x), torch.sum(x, dim=0), torch.cumsum(x, 0)


def norms_on_cuda(x: Tensor):
    with torch.autocast("cuda"):
        return torch.ops.aten.norm(x, 2), torch.ops.aten.norm(x, 2, [0])


def of_both_lists(x: Tensor):
    with torch.autocast("cpu"):
        return torch.sum(x), torch.ops.aten.norm(x, 2), torch.log(x)


def test_cudas_reductions_get_a_dtype_and_keep_one_that_is_given() -> None:
    check_ir(
        jit_amp.lowered_graph(reductions_on_cuda),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[ON:%[0-9]+]] : bool = prim::Constant[value=1]()
        CHECK-DAG:   [[F64:%[0-9]+]] : int = prim::Constant[value=7]()
        CHECK-DAG:   [[NONE:%[0-9]+]] : NoneType = prim::Constant()
        CHECK:       [[A:%[0-9]+]] : int? = jit_amp::opt_dtype(%x.1, [[NONE]], [[ON]])
        CHECK-NEXT:  aten::sum(%x.1, [[A]])
        CHECK:       [[B:%[0-9]+]] : int? = jit_amp::opt_dtype(%x.1, [[NONE]], [[ON]])
        CHECK-NEXT:  aten::softmax(%x.1, {{%[0-9]+}}, [[B]])
        CHECK:       [[C:%[0-9]+]] : int? = jit_amp::opt_dtype(%x.1, [[F64]], [[ON]])
        CHECK-NEXT:  aten::sum(%x.1, [[C]])
        """,
    )


def test_cudas_norm_casts_its_operand() -> None:
    # The dispatcher's appends a dtype, and the overload with one refuses complex numbers, which
    # Python's `x.norm()` takes.
    check_ir(
        jit_amp.lowered_graph(norms_on_cuda),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   jit_amp::scoped
        CHECK:       [[WIDE:%[0-9]+]] : Tensor = jit_amp::cast(%x.1, {{%[0-9]+}}, {{%[0-9]+}})
        CHECK:       aten::norm([[WIDE]], {{%[0-9]+}})
        CHECK:       aten::norm([[WIDE]], {{%[0-9]+}}, {{%[0-9]+}}, {{%[0-9]+}})
        """,
    )


def test_what_cuda_alone_casts_is_left_alone_for_cpu() -> None:
    check_ir(
        jit_amp.lowered_graph(of_both_lists),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   jit_amp::
        CHECK:       aten::log(%x.1)
        """,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("function", [reductions_on_cuda, norms_on_cuda])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64])
def test_cudas_reductions_are_eagers(
    function: Callable[..., Any], dtype: torch.dtype, device: str
) -> None:
    results = assert_parity(function, (randn(3, 3, dtype=dtype, device=device),))
    low = device == "cuda" and dtype in (F16, BF16)
    assert results["none"][0].dtype == (F32 if low else dtype)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_cudas_reductions_leave_what_is_not_floating_alone(dtype: torch.dtype) -> None:
    results = assert_parity(sums_on_cuda, (torch.ones(3, 3, dtype=dtype),))
    assert results["none"][0].dtype == (dtype if dtype.is_complex else torch.int64)


def test_cudas_norm_leaves_a_complex_tensor_on_cpu_alone() -> None:
    results = assert_parity(norms_on_cuda, (torch.randn(3, 3, dtype=torch.complex64),))
    assert results["none"][0].dtype == F32


def banned_on_cuda(x: Tensor, y: Tensor):
    with torch.autocast("cuda"):
        return torch._C._nn.binary_cross_entropy(x, y, None, 1)


def test_a_banned_operator_is_left_to_the_dispatchers_refusal() -> None:
    check_ir(
        jit_amp.lowered_graph(banned_on_cuda),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   aten::binary_cross_entropy
        CHECK:       jit_amp::scoped
        CHECK-SAME:  devices=["cuda"]
        CHECK:       with jit_amp::scoped
        CHECK:       aten::binary_cross_entropy(
        """,
    )
    assert_parity(banned_on_cuda, (torch.rand(3), torch.rand(3)))


@needs_cuda
def test_a_banned_operator_is_refused_at_the_call() -> None:
    with pytest.raises(RuntimeError, match="unsafe to autocast"):
        jit_amp.script(banned_on_cuda)(torch.rand(3).cuda(), torch.rand(3).cuda())


# The ambient state.


def without_autocast(x: Tensor, y: Tensor):
    return torch.relu(x @ y)


@pytest.mark.parametrize("function", [lower, without_autocast])
def test_the_ambient_dtype_is_not_read_where_the_ambient_state_is_off(
    function: Callable[..., Any],
) -> None:
    check_ir(
        jit_amp.lowered_graph(function, ambient=()),
        """
        CHECK-LABEL: graph(
        CHECK-NOT:   jit_amp::ambient_dtype
        CHECK:       return
        """,
    )


def test_the_ambient_scope_is_lowered_like_one_of_the_program() -> None:
    check_ir(
        jit_amp.lowered_graph(without_autocast, ambient=("cpu",)),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[CPU:%[0-9]+]] : str = prim::Constant[value="cpu"]()
        CHECK-DAG:   [[NONE:%[0-9]+]] : NoneType = prim::Constant()
        CHECK:       [[DTYPE:%[0-9]+]] : int = jit_amp::ambient_dtype([[CPU]])
        CHECK-NEXT:  [[X:%[0-9]+]] : Tensor = jit_amp::cast(%x.1, [[DTYPE]], [[NONE]])
        CHECK-NEXT:  [[Y:%[0-9]+]] : Tensor = jit_amp::cast(%y.1, [[DTYPE]], [[NONE]])
        CHECK-NEXT:  [[Z:%[0-9]+]] : Tensor = aten::matmul([[X]], [[Y]])
        CHECK-NEXT:  aten::relu([[Z]])
        """,
    )


def test_the_ambient_scope_of_cuda_casts_for_cuda() -> None:
    check_ir(
        jit_amp.lowered_graph(without_autocast, ambient=("cuda",)),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[CUDA:%[0-9]+]] : str = prim::Constant[value="cuda"]()
        CHECK-DAG:   [[NONE:%[0-9]+]] : NoneType = prim::Constant()
        CHECK:       [[DTYPE:%[0-9]+]] : int = jit_amp::ambient_dtype([[CUDA]])
        CHECK-NEXT:  jit_amp::cast(%x.1, [[NONE]], [[DTYPE]])
        """,
    )


def test_a_scope_of_the_program_takes_the_place_of_the_ambient_one_of_its_device() -> None:
    check_ir(
        jit_amp.lowered_graph(lower, ambient=("cpu", "cuda")),
        """
        CHECK-LABEL: graph(
        CHECK-DAG:   [[CUDA:%[0-9]+]] : str = prim::Constant[value="cuda"]()
        CHECK-DAG:   [[BF16:%[0-9]+]] : int = prim::Constant[value=15]()
        CHECK:       [[AMBIENT:%[0-9]+]] : int = jit_amp::ambient_dtype([[CUDA]])
        CHECK-NOT:   jit_amp::ambient_dtype
        CHECK:       jit_amp::cast(%x.1, [[BF16]], [[AMBIENT]])
        """,
    )


def untouched_alone(x: Tensor, y: Tensor):
    return torch.relu(x + y)


def test_a_graph_that_no_ambient_scope_touches_stays_as_it_is() -> None:
    for ambient in ((), ("cpu",), ("cpu", "cuda")):
        check_ir(
            jit_amp.lowered_graph(untouched_alone, ambient=ambient),
            """
            CHECK-LABEL: graph(
            CHECK-NOT:   jit_amp::
            CHECK-NOT:   prim::Enter
            CHECK:       return
            """,
        )


# Source ranges.


def test_an_error_in_a_scope_shows_the_users_line() -> None:
    with pytest.raises(RuntimeError) as raised:
        jit_amp.script(lower)(randn(3, 3), randn(2, 2))
    assert "return torch.mm(x, y)" in str(raised.value)
    assert "~~~~~~~~ <--- HERE" in str(raised.value)


def inner_of_a_matrix(x: Tensor, y: Tensor):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.inner(x, y), torch.inner(x, y[0])


def test_a_composite_that_multiplies_for_some_shapes_only_is_opaque() -> None:
    assert_parity(inner_of_a_matrix, (torch.randn(4, 4), torch.randn(4, 4)))
