"""traits: each row of csrc/analysis/traits.inc, compared with what its operator does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from jit_amp import _C


class Traits(NamedTuple):
    name: str
    group: str
    memory: str
    strides: str
    fused: str
    is_profiled: bool


GONE = {"qr"}  # of the operators that have a row, those that PyTorch 2.15 has no more
ROWS = [
    Traits(*row)
    for row in _C.operator_traits()
    if row[0] not in GONE or torch._C._jit_get_schemas_for_operator(f"aten::{row[0]}")
]
LAST = torch.channels_last


def rows(**wanted: Any) -> list[Any]:
    found = [r for r in ROWS if all(getattr(r, k) in v for k, v in wanted.items())]
    assert found
    return [pytest.param(row, id=row.name) for row in found]


def weights(*sizes: int) -> Tensor:
    return torch.rand(sizes) - 0.5


def square(x: Tensor) -> Tensor:
    return x.reshape(-1)[:16].reshape(4, 4)


def cells(gates: int) -> list[Tensor]:
    return [weights(gates * 5, 4), weights(gates * 5, 5), weights(gates * 5), weights(gates * 5)]


def over_time(x: Tensor, gates: int) -> tuple[Any, ...]:
    state = x.new_zeros(1, 2, 5)
    hidden = [state, state] if gates == 4 else state
    given = [each.to(x.dtype) for each in cells(gates)]
    return x.reshape(-1)[:24].reshape(3, 2, 4), hidden, given, True, 1, 0.0, False, False, False


Call = Callable[[Tensor], tuple[Any, ...]]

# What an operator is called with beside an image of 2 x 3 x 6 x 6, if anything; several calls, if
# they differ in what the table says of.
CALLS: dict[str, list[Call]] = {
    "to": [lambda x: (x, torch.float64), lambda x: (x, x.dtype)],
    "type_as": [lambda x: (x, x), lambda x: (x, x.double())],
    **{
        name: [lambda x: (x, 0.5, False)]
        for name in ("alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout")
    },
    "native_dropout": [lambda x: (x, 0.5, False), lambda x: (x[:0], 0.5, True)],
    "clamp": [lambda x: (x, 0.2, 0.6)],
    "clamp_max": [lambda x: (x, 0.2), lambda x: (x, x)],
    "clamp_min": [lambda x: (x, 0.2), lambda x: (x, x)],
    "masked_fill": [lambda x: (x, x > 0.5, 0.0)],
    **{
        name: [lambda x: (x, x), lambda x: (x, 2.0)] for name in ("add", "sub", "mul", "div")
    },
    "_convolution": [
        lambda x: (x, like(x, 4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, *FLAGS)
    ],
    "conv1d": [lambda x: (x.flatten(2), like(x, 4, 3, 3))],
    "conv2d": [
        lambda x: (x, like(x, 4, 3, 3, 3)),
        lambda x: (x, like(x, 4, 3, 3, 3), None, [2, 2]),
    ],
    "conv3d": [lambda x: (x[None].contiguous(), like(x, 4, 2, 1, 1, 1))],
    "conv_transpose1d": [lambda x: (x.flatten(2), like(x, 3, 4, 3))],
    "conv_transpose2d": [lambda x: (x, like(x, 3, 4, 3, 3))],
    "conv_transpose3d": [lambda x: (x[None].contiguous(), like(x, 2, 4, 1, 1, 1))],
    "addmm": [lambda x: (square(x), square(x), square(x), {"beta": 2})],
    "baddbmm": [lambda x: (square(x)[None], square(x)[None], square(x)[None])],
    "bmm": [lambda x: (square(x)[None], square(x)[None])],
    "einsum": [lambda x: ("ij->ij", [square(x)]), lambda x: ("ij,jk->ik", [square(x)] * 2)],
    "linear": [lambda x: (x, like(x, 5, 6)), lambda x: (x, like(x, 5, 6), like(x, 5))],
    "matmul": [lambda x: (square(x), square(x)), lambda x: (x, x)],
    "mm": [lambda x: (square(x), square(x))],
    "mv": [lambda x: (square(x), square(x)[0])],
    "scaled_dot_product_attention": [lambda x: (x, x, x)],
    "gru": [lambda x: over_time(x, 3)],
    "lstm": [lambda x: over_time(x, 4)],
    "rnn_relu": [lambda x: over_time(x, 1)],
    "rnn_tanh": [lambda x: over_time(x, 1)],
    "_upsample_nearest_exact2d": [lambda x: (x, [12, 12])],
    "adaptive_avg_pool2d": [lambda x: (x, [3, 3]), lambda x: (x, [6, 6])],
    "avg_pool2d": [lambda x: (x, [2, 2]), lambda x: (x, [1, 1])],
    "batch_norm": [
        lambda x: (x, None, None, like(x, 3), like(x, 3).abs(), False, 0.1, 1e-5, True),
        lambda x: (x, like(x, 3), like(x, 3), None, None, True, 0.1, 1e-5, True),
    ],
    "cat": [lambda x: ([x, x], 1), lambda x: ([x], 1)],
    "constant_pad_nd": [lambda x: (x, [1, 1, 1, 1]), lambda x: (x, [0, 0])],
    "max_pool2d": [lambda x: (x, [2, 2]), lambda x: (x, [1, 1])],
    "upsample_bicubic2d": [lambda x: (x, [12, 12], False)],
    "upsample_bilinear2d": [lambda x: (x, [12, 12], False)],
    "upsample_linear1d": [lambda x: (x.flatten(2), [24], False)],
    "upsample_nearest1d": [lambda x: (x.flatten(2), [24])],
    "upsample_nearest2d": [lambda x: (x, [12, 12])],
    "upsample_nearest3d": [lambda x: (volume(x), [4, 12, 12])],
    "upsample_trilinear3d": [lambda x: (volume(x), [4, 12, 12], False)],
    "chunk": [lambda x: (x, 2, 0)],
    "expand": [lambda x: (x, list(x.shape))],
    "layer_norm": [lambda x: (x, [6])],
    "mT": [],
    "narrow": [lambda x: (x, 0, 1, 1)],
    "permute": [lambda x: (x, [3, 1, 0, 2])],
    "reshape": [lambda x: (x, [2, 3, 36]), lambda x: (x, [-1])],
    "select": [lambda x: (x, 0, 1)],
    "slice": [lambda x: (x, 0, 1, 2)],
    "softmax": [lambda x: (x, 1)],
    "split": [lambda x: (x, 1, 0)],
    "split_with_sizes": [lambda x: (x, [1, 1], 0)],
    "t": [lambda x: (square(x),)],
    "transpose": [lambda x: (x, 1, 2)],
    "unbind": [lambda x: (x, 0)],
    "unflatten": [lambda x: (x, 0, [2, 1])],
    "unsqueeze": [lambda x: (x, 1)],
    "view": [lambda x: (x, list(x.shape)), lambda x: (x, [2, 3, 2, 3, 6])],
    "_cast_Byte": [lambda x: (x.byte(),)],
    "_cast_Char": [lambda x: (x.char(),)],
    "_cast_Double": [lambda x: (x.double(),)],
    "_cast_Half": [lambda x: (x.half(),)],
    "_cast_Int": [lambda x: (x.int(),)],
    "_cast_Long": [lambda x: (x.long(),)],
    "_cast_Short": [lambda x: (x.short(),)],
    "_remove_batch_dim": [lambda x: (x, 0, 2, 0)],
    "_to_cpu": [lambda x: ([x],)],
    "_unsafe_view": [lambda x: (x, list(x.shape))],
    "broadcast_tensors": [lambda x: ([x, x],)],
    "cartesian_prod": [lambda x: ([x.reshape(-1)],)],
    "cumprod_backward": [lambda x: (x[:1, :1, :1, :1], x[:1, :1, :1, :1], 0, x[:1, :1, :1, :1])],
    "flatten_dense_tensors": [lambda x: ([x.reshape(-1)],)],
    "histogramdd": [lambda x: (square(x), [torch.arange(3.0) for _ in range(4)])],
    "meshgrid": [lambda x: ([x.reshape(-1)],)],
    "to_dense_backward": [lambda x: (x, x)],
    "to_mkldnn_backward": [lambda x: (x, x)],
    "unflatten_dense_tensors": [lambda x: (x.reshape(-1), [x])],
    "sum_to_size": [lambda x: (x, list(x.shape))],
    "unsafe_chunk": [lambda x: (x, 2, 0)],
    "unsafe_split": [lambda x: (x, 1, 0)],
    "unsafe_split_with_sizes": [lambda x: (x, [1, 1], 0)],
    "empty_strided": [lambda x: ([2, 3], [5, 1])],
    "new_empty_strided": [lambda x: (x, [2, 3], [5, 1])],
}  # fmt: skip
FLAGS = (False, False, True, True)


def like(x: Tensor, *sizes: int) -> Tensor:
    """A weight in the dtype and the layout of the image."""
    made = (torch.arange(torch.Size(sizes).numel()) % 7 - 3).reshape(sizes).to(x.dtype) / 8
    is_last = x.dim() == 4 and x.is_contiguous(memory_format=LAST) and not x.is_contiguous()
    return made.contiguous(memory_format=LAST) if is_last and made.dim() == 4 else made


def volume(x: Tensor) -> Tensor:
    is_last = x.is_contiguous(memory_format=LAST) and not x.is_contiguous()
    made = x[:, :, None].expand(2, 3, 2, 6, 6)
    return made.contiguous(
        memory_format=torch.channels_last_3d if is_last else torch.contiguous_format
    )


def image(dtype: torch.dtype = torch.float32, last: bool = False) -> Tensor:
    x = (torch.arange(216) % 17 - 8).reshape(2, 3, 6, 6).to(dtype) / 4
    return x.contiguous(memory_format=LAST) if last else x


def calls(name: str) -> list[Call]:
    return CALLS.get(name, [lambda x: (x,)])


def run(name: str, operands: tuple[Any, ...]) -> Any:
    named = operands[-1] if isinstance(operands[-1], dict) else {}
    with torch.no_grad():
        return getattr(torch.ops.aten, name)(*operands[: len(operands) - bool(named)], **named)


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)


def is_dense(x: Tensor) -> bool:
    return bool(torch.ops.aten.is_non_overlapping_and_dense(x))


def shares(result: Any, operands: Any) -> bool:
    taken = {t.untyped_storage()._cdata for t in tensors(operands)}
    return any(t.untyped_storage()._cdata in taken for t in tensors(result))


def is_last(x: Tensor) -> bool:
    form = LAST if x.dim() == 4 else torch.channels_last_3d
    return x.is_contiguous(memory_format=form) and not x.is_contiguous()


FORMS: dict[str, Callable[[], Tensor]] = {
    "contiguous": image,
    "channels last": lambda: image(last=True),
    "permuted": lambda: image().transpose(2, 3),
    "every second column": lambda: torch.cat([image()] * 2, 3)[:, :, :, ::2],
    "expanded": lambda: image()[:1].expand(2, 3, 6, 6),
}


def test_each_row_is_of_an_operator() -> None:
    for row in ROWS:
        if not row.name.startswith("prim::"):
            assert torch._C._jit_get_schemas_for_operator(f"aten::{row.name}"), row.name


def test_no_operator_has_two_rows() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("row", rows(memory=["fresh"]))
def test_fresh_results_have_memory_of_their_own_without_gaps(row: Traits, form: str) -> None:
    for call in calls(row.name):
        operands = call(FORMS[form]())
        result = run(row.name, operands)
        assert not shares(result, operands)
        assert all([is_dense(each) for each in tensors(result)] or [False])


@pytest.mark.parametrize(
    "row", [p for p in rows(memory=["fresh"]) if p.values[0].name not in CALLS]
)
def test_fresh_results_of_no_elements_too(row: Traits) -> None:
    for x in (torch.rand(()), torch.rand(0, 3)):
        assert not shares(run(row.name, (x,)), x)


@pytest.mark.filterwarnings("ignore:torch.meshgrid")
@pytest.mark.parametrize("row", rows(memory=["maybe_operand"]))
def test_what_is_said_to_be_new_may_be_an_operand(row: Traits) -> None:
    said_new = [
        schema
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{row.name}")
        if schema.overload_name != "out" and all(r.alias_info is None for r in schema.returns)
    ]
    assert said_new
    assert any(shares(run(row.name, o), o) for o in (call(image()) for call in calls(row.name)))


def test_what_nobody_has_written_has_rows() -> None:
    """Found by their names, as nothing else tells."""
    makes = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and "empty" in schema.name
        and schema.returns
        and str(schema.returns[0].type) == "Tensor"
    }
    assert makes == {row.name for row in ROWS if row.memory == "unwritten"}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("row", rows(strides=["kept"]))
def test_layouts_are_kept(row: Traits, last: bool) -> None:
    for call in calls(row.name):
        operands = call(image(last=last))
        result = run(row.name, operands)
        first = next(tensors(operands))
        assert result.dim() == first.dim()
        assert is_last(result) == is_last(first)
        assert is_last(first) or result.is_contiguous()


@pytest.mark.parametrize("form", ["contiguous", "channels last", "permuted"])
@pytest.mark.parametrize("row", rows(strides=["viewed", "permuted"]))
def test_views_of_all_have_no_gaps(row: Traits, form: str) -> None:
    if row.name in ("__getitem__", "mT"):  # not calls
        x = FORMS[form]()
        result: Tensor = [x][0] if row.name == "__getitem__" else x.mT
        assert is_dense(result)
        return
    for call in calls(row.name):
        try:
            operands = call(FORMS[form]())
            result = run(row.name, operands)
        except RuntimeError as error:
            assert "not compatible with input tensor's size and stride" in str(error)
            continue
        assert is_dense(result)
        first = next(tensors(operands))
        assert torch.equal(result.reshape(-1).sort().values, first.reshape(-1).sort().values)
        if first.is_contiguous():
            assert result.is_contiguous() == (row.strides == "viewed")


@pytest.mark.parametrize("row", rows(strides=["parts"]))
def test_parts_along_the_first_dimension_are_contiguous(row: Traits) -> None:
    for call in calls(row.name):
        operands = call(image())
        result = run(row.name, operands)
        assert shares(result, operands)
        assert all(part.is_contiguous() for part in tensors(result))
    assert "dim" in {
        argument.name
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{row.name}")
        for argument in schema.arguments
    }


@pytest.mark.parametrize("row", rows(strides=["asked"]))
def test_strides_are_as_the_call_says(row: Traits) -> None:
    assert run(row.name, CALLS[row.name][0](image())).stride() == (5, 1)


@pytest.mark.parametrize("row", rows(group=["identity", "dropout"]))
def test_the_elements_of_the_operand(row: Traits) -> None:
    for call in calls(row.name):
        operands = call(image())
        result = next(tensors(run(row.name, operands)))
        torch.testing.assert_close(result.float(), operands[0])
    takes_mode = "train" in {
        argument.name
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{row.name}")
        for argument in schema.arguments
    }
    assert takes_mode == (row.group == "dropout")


@pytest.mark.parametrize("row", rows(group=["arithmetic"]))
def test_operands_are_promoted(row: Traits) -> None:
    wide, narrow = image(torch.float64), image(torch.bfloat16)
    without_dims = wide[0, 0, 0, 0]
    assert run(row.name, (narrow, wide)).dtype == wide.dtype
    assert run(row.name, (wide, narrow)).dtype == wide.dtype
    assert run(row.name, (narrow, 2.0)).dtype == narrow.dtype
    assert run(row.name, (narrow, without_dims)).dtype == narrow.dtype


@pytest.mark.parametrize("row", rows(group=["convolution", "product", "recurrent"]))
def test_in_float32_it_is_the_same_but_for_rounding(row: Traits) -> None:
    """What widening it (passes/server/widen_products.h) rests on."""
    for call in calls(row.name):
        narrow = call(image(torch.bfloat16))
        wide = torch.utils._pytree.tree_map_only(Tensor, lambda t: t.float(), narrow)
        expected, got = run(row.name, wide), run(row.name, narrow)
        for e, g in zip(tensors(expected), tensors(got), strict=True):
            assert (e.dtype, g.dtype) == (torch.float32, torch.bfloat16)
            torch.testing.assert_close(g.float(), e, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("row", rows(group=["convolution", "product", "recurrent"]))
def test_autocast_lowers_it(row: Traits) -> None:
    """Its own policy says so, or that of what it calls."""
    lowered = {
        name.partition(".")[0]
        for device in ("cpu", "cuda")
        for name, policy in _C.policy_table(device).items()
        if policy == "lower"
    }
    formals = {
        argument.name
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{row.name}")
        for argument in schema.arguments
    }
    if row.group == "recurrent":
        assert "num_layers" in formals
    else:
        assert f"aten::{row.name}" in lowered or "equation" in formals
        assert ("stride" in formals) == (row.group == "convolution")


@pytest.mark.parametrize("row", rows(group=["question"]))
def test_answers_are_the_same_in_every_layout(row: Traits) -> None:
    name = row.name.removeprefix("prim::")
    asked = "len(x)" if name == "len" else f"x.{name}" + "()" * (name == row.name)
    ask = torch.jit.CompilationUnit(f"def ask(x: Tensor):\n    return {asked}\n").ask
    assert ask(image()) == ask(image(last=True))
    assert any(node.kind().split("::")[1] == name for node in ask.graph.nodes())


def source(name: str, operands: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """A function that calls the operator, and what to give it."""
    formals, given, written = [], [], []
    for i, operand in enumerate(operands):
        if isinstance(operand, Tensor):
            formals.append(f"x{i}: Tensor")
        elif isinstance(operand, list) and operand and isinstance(operand[0], Tensor):
            formals.append(f"x{i}: List[Tensor]")
        else:
            named = operand.items() if isinstance(operand, dict) else ()
            written += [f"{k}={v}" for k, v in named] if named else [repr(operand)]
            continue
        written.append(f"x{i}")
        given.append(operand)
    called = f"torch.ops.aten.{name}({', '.join(written)})"
    text = f"def f({', '.join(formals)}):\n    return {called}\n"
    return torch.jit.CompilationUnit(text).f, given


@pytest.mark.parametrize("row", [p for p in rows(is_profiled=[True]) if p.values[0].name != "len"])
def test_the_executor_observes_operands(row: Traits) -> None:
    function, given = source(row.name, calls(row.name)[0](image()))
    with torch.no_grad():
        function(*given)
    graph = torch.jit.last_executed_optimized_graph()
    [node] = [n for n in graph.nodes() if n.kind() == f"aten::{row.name}"]
    assert any(operand.node().kind() == "prim::profile" for operand in node.inputs())


FUSED = [p for p in rows(is_profiled=[True, False]) if p.values[0].fused not in ("", "onednn")]


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="only builds for x86"
)
@pytest.mark.parametrize("row", FUSED)
def test_fused_activations_have_that_name(row: Traits) -> None:
    x, weight = torch.linspace(-9, 9, 64).reshape(8, 8), torch.eye(8)
    scalars = {"relu6": [0, 6], "hardtanh": [-1, 1], "leaky_relu": [0.01]}.get(row.name, [])
    algorithm = "none" if row.name == "gelu" else ""
    fused = torch.ops.mkldnn._linear_pointwise(x, weight, None, row.fused, scalars, algorithm)
    torch.testing.assert_close(fused, run(row.name, (x,)))


@pytest.mark.parametrize("row", rows(group=["moving"]))
def test_elements_are_moved_or_set(row: Traits) -> None:
    x = image().reshape(2, 12, 3, 3) if row.name == "pixel_shuffle" else image()
    more = {"copy": (x + 1,), "fill": (2.0,), "pixel_shuffle": (2,), "pixel_unshuffle": (2,)}
    given = more.get(row.name, ())
    known = {0.0, *x.flatten().tolist()}
    for each in given:
        known.update(each.flatten().tolist() if isinstance(each, Tensor) else [each])
    assert set(run(row.name, (x, *given)).flatten().tolist()) <= known


@pytest.mark.parametrize("row", rows(group=["algebra"]))
def test_linear_algebra_is_shared_code(row: Traits) -> None:
    """Otherwise the row is not needed: what has kernels of its own is not believed."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    assert has_kernel(f"aten::{row.name}", "CompositeImplicitAutograd")
