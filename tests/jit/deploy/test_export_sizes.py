"""export: which sizes of a program are free."""

import io
import math
from typing import Any, List  # noqa: UP035  # as TorchScript reads it

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy.functions import FloorDiv, Mod

import jit_amp
from jit_amp._export.sizes.small import refuses_one

from ..support import LOADS_PROGRAMS, assert_same
from .test_export import Conv

pytestmark = LOADS_PROGRAMS


class OfManyRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) >= 2:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = x.t() @ x
        return x


def test_a_branch_on_a_size_of_one_is_guarded() -> None:
    program = jit_amp.export(OfManyRows(), (torch.randn(4, 4),)).module()
    for rows in (2, 7):
        x = torch.randn(rows, 4)
        assert_same(program(x), OfManyRows()(x), "result")
    with pytest.raises(AssertionError, match="Guard"):
        program(torch.randn(1, 4))


class Windows(nn.Module):
    """As a Swin Transformer does: windows of a picture that is padded to fit them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width = x.size(0), (x.size(1) // 2 + 1) // 2, (x.size(2) // 2 + 1) // 2
        channels = x.size(3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = torch.nn.functional.pad(
                x[:, :height, :width], (0, 0, 0, (3 - width % 3) % 3, 0, -height % 3)
            )
            high, wide = x.size(1) // 3, x.size(2) // 3
            y = x.view(batch, high, 3, wide, 3, channels).transpose(2, 3)
            return self.linear(y.reshape(batch * high * wide, 9, channels))


def test_sizes_are_given_as_torch_export_takes_them() -> None:
    batch = Dim("batch", min=2, max=8)
    x = torch.randn(2, 3, 8, 8)
    program = jit_amp.export(Conv().eval(), (x,), dynamic_shapes={"x": {0: batch}})
    program.module()(torch.randn(8, 3, 8, 8))
    for wrong in (torch.randn(9, 3, 8, 8), torch.randn(2, 3, 9, 8)):
        with pytest.raises(Exception, match=r"(?i)guard|expected"):
            program.module()(wrong)


def test_a_size_of_one_in_the_example_stays_free() -> None:
    model = Conv().eval()
    program = jit_amp.export(model, (torch.randn(1, 3, 8, 8),))
    with torch.no_grad():
        for size in ((1, 3, 8, 8), (3, 3, 8, 8), (1, 3, 9, 12)):
            x = torch.randn(size)
            assert_same(program.module()(x), model(x), str(size))


class Scaled(nn.Module):
    """As detection models do: a picture is scaled to a size that is computed from its own."""

    def forward(self, x: Tensor) -> Tensor:
        side = torch.min(torch.tensor(x.shape[-2:])).to(torch.float32)
        factor = float((12.0 / side).item())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.nn.functional.interpolate(x, scale_factor=factor, mode="nearest")
            if y.size(2) % 2 == 0:
                y = y @ y.transpose(2, 3)
        return y


def test_sizes_are_fixed_where_nothing_else_can_be_exported() -> None:
    model, x = Scaled(), torch.randn(2, 3, 8, 9)
    with pytest.warns(UserWarning, match="fixed to the example's.*dynamic_shapes says"):
        program = jit_amp.export(model, (x,)).module()
    assert_same(program(x), model(x), "result")
    with pytest.raises(Exception, match=r"(?i)guard|expected"):
        program(torch.randn(2, 3, 9, 9))


def test_the_batch_stays_free_where_sizes_become_too_long() -> None:
    """PyTorch reasons for minutes about the number of windows of a picture of any size."""
    model = Windows().eval()
    with pytest.warns(UserWarning, match="all sizes but the first of each tensor are fixed"):
        program = jit_amp.export(model, (torch.randn(2, 17, 31, 4),))
    x = torch.randn(5, 17, 31, 4)
    with torch.no_grad():
        assert_same(program.module()(x), model(x), "result")


class OfSizes(nn.Module):
    """What a trace computes of sizes, in tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor):
        batch, channels, height, width = x.shape
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x.view(batch, channels, height * width).transpose(1, 2)
            q, k, v = self.qkv(y).view(batch, -1, 2, 3 * channels // 2).transpose(1, 2).chunk(3, -1)
            y = nn.functional.scaled_dot_product_attention(q, k, v)
        rows = height * 2
        rows += 1
        rows -= batch % 2
        padded = x.new_zeros(batch, rows, -(-width // 3))
        return y.transpose(1, 2).reshape(batch, height, width, channels), padded


def test_sizes_that_a_trace_computes_in_tensors_stay_free() -> None:
    module = OfSizes().eval()
    traced = jit_amp.trace(module, torch.rand(2, 8, 4, 6))
    free = Dim.DYNAMIC
    program = jit_amp.export(
        traced, (torch.rand(2, 8, 4, 6),), dynamic_shapes=({0: free, 2: free, 3: free},)
    ).module()
    for sizes in ((2, 8, 4, 6), (3, 8, 5, 7), (5, 8, 9, 4)):
        x = torch.rand(sizes)
        assert_same(program(x), module(x), str(sizes))


class Reduced(nn.Module):
    """As SegFormer does: attention over a picture whose sides were divided twice."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.fewer = nn.Conv2d(3, 4, 3, 4, 1), nn.Conv2d(4, 4, 2, 2)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.patches(x)
            batch, channels, height, width = y.shape
            keys = self.fewer(y).flatten(2).transpose(1, 2)
            scores = y.flatten(2).transpose(1, 2) @ self.head(keys).transpose(1, 2)
            y = scores.softmax(-1) @ keys
            return y.transpose(1, 2).reshape(batch, channels, height, width)


def test_sizes_that_are_divided_twice_stay_free() -> None:
    assert_free(Reduced().eval(), (2, 3, 32, 48), [(3, 3, 48, 32), (1, 3, 71, 50)])


class Pools(nn.Module):
    """The mean of a picture in channels last: PyTorch asks whether there is more than one picture,
    to give it a memory format."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(channels, 4, 3), nn.Conv2d(4, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.conv(x).contiguous(memory_format=torch.channels_last)
            return self.head(nn.functional.adaptive_avg_pool2d(y, [1, 1]))


@pytest.mark.parametrize("channels", [3, 1])
def test_a_one_that_an_operator_asks_about_stays_free(channels: int) -> None:
    sizes = [(3, channels, 9, 8), (2, channels, 12, 7)]
    assert_free(Pools(channels).eval(), (1, channels, 9, 9), sizes)


class EvenParts(nn.Module):
    """Asks whether a number of parts is even, in a way that sympy cannot solve."""

    def forward(self, x: Tensor) -> Tensor:
        parts = (x.size(1) - 1) // 16 + 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if 2 * ((parts - 2) // 2) + 2 == parts:
                x = x @ x.t()
        return x


def test_guards_that_sympy_cannot_solve_are_guards() -> None:
    assert_free(EvenParts(), (2, 32), [(3, 64), (1, 128)])
    program = jit_amp.export(EvenParts(), (torch.randn(2, 32),)).module()
    with pytest.raises(Exception, match=r"(?i)guard"):
        program(torch.randn(2, 48))


class OfOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.transpose(1, 2)
            return y.squeeze(0) + 1 if y.size(0) == 1 else y.sum(0)


def test_a_one_that_the_program_asks_about_is_guarded() -> None:
    model, x = OfOne(), torch.randn(1, 3, 4)
    program = jit_amp.export(model, (x,))
    assert_same(program.module()(x), model(x), "the example")
    with pytest.raises(Exception, match=r"(?i)guard|expected"):
        program.module()(torch.randn(2, 3, 4))
    [[given], _] = program.example_inputs
    assert given is x


class AsksForAFormat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.is_contiguous(memory_format=torch.channels_last):
            x = x * 2
        return x.sum([2, 3])


class WritesIfAsked(AsksForAFormat):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if x.is_contiguous(memory_format=torch.channels_last):
            self.mean.copy_(x.mean())
        return x * 2


@pytest.mark.parametrize("make", [AsksForAFormat, WritesIfAsked])
def test_what_the_program_does_for_a_one_alone_it_does_for_ones_alone(
    make: type[nn.Module],
) -> None:
    """The results of the example are zeros either way."""
    ours, eager = make().eval(), make().eval()
    asks = pytest.warns(UserWarning, match="how a tensor lies in memory")
    with asks, pytest.warns(UserWarning, match="sizes that are 0 or 1 in the example stay so"):
        program = jit_amp.export(ours, (torch.zeros(1, 1, 3, 4),)).module()
    for size in ((1, 1, 3, 4), (2, 1, 3, 4), (1, 2, 3, 4)):
        x = torch.randn(size)
        try:
            made = program(x)
        except AssertionError as error:
            assert "Guard" in str(error) and size != (1, 1, 3, 4)
        else:
            assert_same(made, eager(x), str(size))
            for name, buffer in program.named_buffers():
                assert_same(buffer, dict(eager.named_buffers())[name], name)


class Squeezes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.squeeze(0)
        return y * 2 if y.dim() == 2 else y


def test_a_dimension_that_an_operator_drops() -> None:
    x = torch.randn(1, 3, 4)
    with pytest.warns(UserWarning, match="sizes that are 0 or 1 in the example stay so"):
        program = jit_amp.export(Squeezes(), (torch.randn(1, 3, 4),)).module()
    assert_same(program(x), Squeezes()(x), "result")
    with pytest.raises(Exception, match=r"(?i)guard|expected"):
        program(torch.randn(2, 3, 4))


class WritesWeights(Pools):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).contiguous(memory_format=torch.channels_last)
        y = self.head(nn.functional.adaptive_avg_pool2d(y, [1, 1]))
        self.head.weight.mul_(0.5)
        return y


def test_export_leaves_weights_as_they_are() -> None:
    model = WritesWeights(3).eval()
    before = model.head.weight.detach().clone()
    with torch.no_grad():
        jit_amp.export(model, (torch.randn(1, 3, 9, 9),))
    assert torch.equal(model.head.weight, before)


class Statistics(nn.Module):
    """Norms write to statistics, and their schemas do not say so."""

    def forward(self, x: Tensor) -> Tensor:
        mean, var = torch.tensor([0.0, 0.0, 0.0]), torch.ones(3)
        y = nn.functional.batch_norm(x, mean, var, training=True)
        return y * 2 if bool(mean.sum() == 0) else y


class Never(nn.Module):
    """What no call does raises."""

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 1e9):
            x = x + torch.linalg.inv(torch.zeros(2, 2, dtype=torch.int64).float())
        return x


@pytest.mark.parametrize(("model", "size"), [(Statistics(), (4, 3)), (Never(), (2, 2))])
def test_what_is_not_known(model: nn.Module, size: tuple[int, ...]) -> None:
    with torch.no_grad():
        program = jit_amp.export(model, (torch.rand(size),)).module()
        x = torch.rand(size)
        assert_same(program(x), model(x), "result")


def check(condition: bool, message: str) -> None:
    assert condition, message


class Asserts(nn.Module):
    """Its messages have sizes in them, and are made before anything is wrong; who reads them are
    people."""

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.shape
        check(rows % 2 == 0, f"an even number of rows, not {rows}" + f" with {columns} columns")
        if columns > 100:
            raise ValueError("columns: %d of %s" % (columns, str(x.shape)))  # noqa: UP031
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.t()


def test_sizes_in_messages_stay_free() -> None:
    assert_free(Asserts(), (4, 3), [(6, 5), (2, 8)])
    with pytest.raises(Exception, match="an even number of rows, not 3 with 4 columns"):
        jit_amp.export(Asserts(), (torch.randn(3, 4),))


class OverDims(nn.Module):
    """As Asteroid's norms do: dimensions from the values of a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        dims: List[int] = torch.arange(1, len(x.shape)).tolist()  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.transpose(-1, -2)
        steps = torch.zeros(2, dtype=torch.int64)
        steps.add_(1)
        if bool(steps.sum() == 2):
            y = y - y.mean(dims, keepdim=True)
        return y * float(torch.full((1,), 2.0).item())


def test_tensors_that_are_made_of_numbers_are_known() -> None:
    assert_free(OverDims(), (2, 3, 4), [(3, 5, 4), (2, 2, 9)])


def assert_free(model: nn.Module, example: tuple[int, ...], sizes: list[tuple[int, ...]]) -> None:
    """Saved and loaded, the program gives eager's results for the example and these sizes."""
    given = torch.randn(example)
    program = jit_amp.export(model, (given,))
    assert program.example_inputs[0][0] is given
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    run = torch.export.load(file).module()
    with torch.no_grad():
        for size in (example, *sizes):
            x = torch.randn(size)
            assert_same(run(x), model(x), str(size))


class Shrinking(nn.Module):
    """A map of features becomes as small as the picture lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.second(self.second(torch.relu(self.norm(self.first(x)))))
            x = self.second(x)
            return x * self.linear(x.mean([2, 3]))[:, :1, None, None]


@pytest.mark.parametrize("shapes", [None, {"x": {0: Dim("n"), 2: Dim("h"), 3: Dim("w")}}])
def test_maps_of_features_may_become_one_pixel(shapes: object) -> None:
    model = Shrinking().eval()
    program = jit_amp.export(model, (torch.randn(2, 3, 64, 32),), dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    with torch.no_grad():
        for size in ((2, 3, 64, 32), (1, 3, 8, 16), (3, 3, 8, 8), (1, 3, 3, 9), (2, 3, 2, 70)):
            x = torch.randn(size)
            assert_same(program.module()(x), model(x), str(size))
            assert_same(torch.export.load(file).module()(x), model(x), str(size))
            file.seek(0)


def test_a_picture_that_is_one_pixel_in_the_example_may_be_larger() -> None:
    model = Shrinking().eval()
    program = jit_amp.export(model, (torch.randn(2, 3, 8, 8),))
    with torch.no_grad():
        for size in ((1, 3, 8, 8), (2, 3, 64, 32), (3, 3, 9, 8)):
            x = torch.randn(size)
            assert_same(program.module()(x), model(x), str(size))


class Shorter(nn.Module):
    def forward(self, x: Tensor, y: Tensor):
        n = min(x.size(1), y.size(1))
        return x[:, :n] + y[:, :n], torch.cat([x, y], 1)[:, : x.size(1)]


def test_the_shorter_of_two_may_be_either() -> None:
    program = jit_amp.export(Shorter(), (torch.randn(2, 8, 3), torch.randn(2, 5, 3))).module()
    for a, b in ((8, 5), (5, 8), (4, 4), (1, 7)):
        given = torch.randn(2, a, 3), torch.randn(2, b, 3)
        assert_same(program(*given), Shorter()(*given), f"{a}, {b}")


class Squeezed(nn.Module):
    def forward(self, x: Tensor):
        y = torch.conv2d(x, torch.ones(3, 3, 4, 4), stride=4)
        return x.squeeze(0).dim(), y.squeeze(2).dim()


def test_a_dimension_that_squeeze_may_drop_is_guarded() -> None:
    program = jit_amp.export(Squeezed(), (torch.randn(2, 3, 16, 16),)).module()
    for size in ((3, 3, 16, 16), (2, 3, 9, 4)):
        assert_same(program(torch.randn(size)), Squeezed()(torch.randn(size)), str(size))
    for size in ((1, 3, 16, 16), (2, 3, 4, 16)):
        with pytest.raises(AssertionError, match="Guard"):
            program(torch.randn(size))


class AsItLies(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.is_contiguous() else x - 1


def test_a_question_about_memory_is_told() -> None:
    with pytest.warns(UserWarning, match="how a tensor lies in memory"):
        program = jit_amp.export(AsItLies(), (torch.randn(2, 3, 4),)).module()
    x = torch.randn(3, 3, 5)
    assert_same(program(x), AsItLies()(x), "result")


class Tail(nn.Module):
    def forward(self, x: Tensor):
        y = x[:, 2:]
        z = x + 1 if y.size(1) == 0 else x - 1
        return (
            z,
            y.sum(1) / (y.size(1) + 0.5),
            x.new_zeros(x.size(0), y.size(1) + 2),
            x[:, -2:].size(1),
        )


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("shapes", [None, {"x": {0: Dim.AUTO, 1: Dim.DYNAMIC}}])
def test_a_slice_beyond_the_end_is_not_taken_for_a_whole_one(rows: int, shapes: object) -> None:
    program = jit_amp.export(Tail(), (torch.randn(rows, 6),), dynamic_shapes=shapes).module()
    taken = []
    for size in (1, 2, 3, 6, 9):
        x = torch.randn(rows, size)
        try:
            made = program(x)
        except AssertionError as error:
            assert "Guard" in str(error)
        else:
            assert_same(made, Tail()(x), str(size))
            taken.append(size)
    assert {6, 9} <= set(taken)


class OnlySqueezed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze(0) * 2


def test_a_dimension_that_nobody_asks_for_may_be_dropped() -> None:
    program = jit_amp.export(OnlySqueezed(), (torch.randn(2, 3),)).module()
    for size in ((2, 3), (1, 3), (5, 1)):
        x = torch.randn(size)
        assert_same(program(x), OnlySqueezed()(x), str(size))


class EmptyOrNot(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum() * 0 + 7 if x.size(0) == 0 else x.sum() + 1


def test_a_size_of_zero_in_the_example_is_fixed() -> None:
    program = jit_amp.export(EmptyOrNot(), (torch.zeros(0, 3),)).module()
    assert_same(program(torch.zeros(0, 3)), torch.tensor(7.0), "empty")
    with pytest.raises(AssertionError, match="Guard"):
        program(torch.zeros(2, 3))


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
def test_a_decomposed_program_takes_a_batch_of_one() -> None:
    for rows in (1, 2):
        model = Shrinking().eval()
        program = jit_amp.export(model, (torch.randn(rows, 3, 64, 64),)).run_decompositions()
        with torch.no_grad():
            for size in (1, 2, 3):
                x = torch.randn(size, 3, 64, 64)
                torch.testing.assert_close(program.module()(x), model(x), rtol=1e-2, atol=1e-2)


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("never")
        return x


def test_pytorchs_symbols_are_as_before() -> None:
    before = SymNode.has_hint
    jit_amp.export(OnlySqueezed(), (torch.randn(2, 3),))
    with pytest.raises(RuntimeError):
        jit_amp.export(Raises(), (torch.randn(2, 3),))
    assert SymNode.has_hint is before


class Found(nn.Module):
    def __init__(self, asks: bool) -> None:
        super().__init__()
        self.asks = asks

    def forward(self, x: Tensor):
        found = torch.nonzero(x).squeeze()
        return found * 2, found.dim() if self.asks else 0


def test_a_dimension_that_values_may_drop_is_checked_if_asked_for() -> None:
    many, one = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 0.0])
    for asks in (False, True):
        model = Found(asks)
        program = jit_amp.export(model, (many,)).module()
        assert_same(program(many), model(many), "many")
        if asks:
            with pytest.raises(RuntimeError, match="Runtime assertion failed"):
                program(one)
        else:
            assert_same(program(one), model(one), "one")


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = torch.matmul(x, x.mT).permute(0, 3, 1, 2)
        return torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)


def test_a_question_of_an_operators_about_the_batch_refuses_no_batch_of_one() -> None:
    program = jit_amp.export(Pooled(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: Dim.AUTO},))
    for size in (1, 2, 5):
        x = torch.randn(size, 3, 8, 8)
        assert_same(program.module()(x), Pooled()(x), str(size))


class Chunked(nn.Module):
    def forward(self, x: Tensor):
        chunks = x.chunk(2, 1)
        return chunks[0] * 2, len(chunks)


def test_a_question_of_an_operators_whose_answer_its_result_shows_is_guarded() -> None:
    program = jit_amp.export(Chunked(), (torch.randn(2, 6),)).module()
    for size in (2, 5, 6):
        x = torch.randn(3, size)
        assert_same(program(x), Chunked()(x), str(size))
    with pytest.raises(AssertionError, match="Guard"):
        program(torch.randn(3, 1))


class Emptied(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.size(0) == 0:
                return torch.ones(1)
            return torch.mm(x, x.t())


def test_a_named_size_of_zero_in_the_example_is_refused_as_torch_export_does() -> None:
    """It reasons about free sizes as if they were larger: the example itself would be wrong."""
    shapes = {"x": {0: torch.export.Dim("n")}}
    told = []
    for export in (jit_amp.export, torch.export.export):
        with pytest.raises(Exception, match="n") as refusal:
            export(Emptied(), (torch.ones(0, 4),), dynamic_shapes=shapes)
        told.append((type(refusal.value), str(refusal.value).splitlines()[0]))
    assert told[0] == told[1]


class MaxPooled(nn.Module):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.nn.functional.adaptive_max_pool2d(x, 2)


def test_a_question_that_raises_for_none_is_no_question_of_one() -> None:
    """The operator takes no size of 0, and one of 1."""
    program = jit_amp.export(MaxPooled(), (torch.randn(2, 4, 6, 6),)).module()
    for shape in ((2, 1, 6, 6), (1, 4, 6, 6), (1, 1, 8, 8)):
        x = torch.randn(shape)
        assert_same(program(x), MaxPooled()(x), str(shape))


class Windowed(nn.Module):
    """Attention in windows, as MaxViT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("bias", torch.randn(1, 2, 16, 16))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b, h, w, c = x.shape
            x = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5)
            x = x.contiguous().view(-1, 4, 4, c)
            q, k, v = self.qkv(x).view(x.size(0), 16, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, self.bias)
            return y.transpose(1, 2).reshape(-1, 16, c)


def test_the_number_of_windows_may_be_one() -> None:
    """Attention asks it, to expand the mask: what it makes has the same shape."""
    module = Windowed().eval()
    with torch.no_grad():
        program = jit_amp.export(module, (torch.randn(2, 8, 12, 8),)).module()
        for shape in ((1, 4, 4, 8), (1, 8, 4, 8), (3, 4, 4, 8), (2, 16, 8, 8)):
            x = torch.randn(shape)
            assert_same(program(x), module(x), str(shape))


class Patched(nn.Module):
    """As a model does whose images are padded to whole windows."""

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b, h, w, c = x.shape
            x = x.view(b, h // 14, 14, w // 14, 14, c).permute(0, 1, 3, 2, 4, 5)
            return torch.matmul(x.reshape(b, h // 14, w // 14, -1), x.new_ones(14 * 14 * c, 3))


def test_a_size_that_is_divided_by_may_be_nothing_for_small_ones() -> None:
    """Of the guards some have no value for a size of 1: PyTorch's expressions raise there."""
    module = Patched().eval()
    program = jit_amp.export(module, (torch.randn(2, 28, 42, 2),)).module()
    for shape in ((1, 28, 42, 2), (3, 14, 28, 2), (1, 56, 14, 2)):
        x = torch.randn(shape)
        assert_same(program(x), module(x), str(shape))


@pytest.mark.parametrize("numerator", [12, -12])
def test_a_guard_without_a_value_refuses_nothing(numerator: int) -> None:
    size = sympy.Symbol("s", integer=True, positive=True)
    assert not refuses_one(sympy.Eq(Mod(numerator + size - size, FloorDiv(size, 2)), 0))
    assert not refuses_one(sympy.Eq(Mod(numerator * size, FloorDiv(size, 2) + 1), 0))


class AroundTheMiddle(nn.Module):
    """Relative positions, as a Zipformer takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(399, 16))
        self.linear = nn.Linear(16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        middle = self.table.size(0) // 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            positions = self.linear(self.table[middle - length + 1 : middle + length].unsqueeze(0))
            return x @ positions.reshape(-1, 2 * length - 1, 8).transpose(1, 2)


class BeforeTheMiddle(AroundTheMiddle):
    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = x @ x.transpose(1, 2)
            return scores + self.table[200 - length : 200, 0].unsqueeze(0)


class Narrowed(AroundTheMiddle):
    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            positions = self.linear(torch.narrow(self.table, 0, 199 - length, 2 * length))
            return x @ positions.t()


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("batch", [2, 1])
@pytest.mark.parametrize("model", [AroundTheMiddle, BeforeTheMiddle, Narrowed])
def test_a_table_is_sliced_where_a_size_tells(
    model: type[nn.Module], batch: int, is_traced: bool
) -> None:
    net, example = model().eval(), (torch.randn(batch, 5, 8),)
    with torch.no_grad():
        program = jit_amp.export(jit_amp.trace(net, example) if is_traced else net, example)
        for size in ((batch, 5, 8), (3, 5, 8), (1, 9, 8), (2, 3, 8)):
            x = torch.randn(size)
            assert_same(program.module()(x), net(x), str(size))


class FromTheEnd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x[:, x.size(1) - 3 :] @ x.transpose(1, 2)


def test_whether_a_slice_begins_before_its_tensor_is_guarded() -> None:
    program = jit_amp.export(FromTheEnd(), (torch.randn(2, 5, 8),)).module()
    for length in (3, 4, 9):
        x = torch.randn(3, length, 8)
        assert_same(program(x), FromTheEnd()(x), str(length))
    with pytest.raises(AssertionError, match="Guard"):
        program(torch.randn(2, 2, 8))


def same_padding(size: Any, kernel: int, stride: int) -> Any:
    """As timm has it: in a trace the size is a tensor."""
    if isinstance(size, Tensor):
        return torch.clamp(((size / stride).ceil() - 1) * stride + kernel - size, min=0)
    return max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)


class PadsToTheSame(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        height, width = x.size()[-2:]
        high = same_padding(height, self.kernel_size[0], self.stride[0])
        wide = same_padding(width, self.kernel_size[1], self.stride[1])
        x = nn.functional.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = PadsToTheSame(3, 4, 3, stride=2)
        self.conv = PadsToTheSame(4, 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return x + self.conv(x).mean((2, 3), keepdim=True) + self.conv(x)


class OfPyTorch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.conv(x)


@pytest.mark.parametrize("model", [Residual, OfPyTorch])
def test_sizes_stay_free_where_a_trace_pads_to_the_same(model: type[nn.Module]) -> None:
    net, example = model().eval(), (torch.randn(2, 3, 16, 12),)
    with torch.no_grad():
        traced = jit_amp.trace(net, example)
        program = jit_amp.export(traced, example).module()
        for size in ((2, 3, 16, 12), (3, 3, 17, 15), (1, 3, 9, 18)):
            x = torch.randn(size)
            assert_same(traced(x), net(x), str(size))
            assert_same(program(x), net(x), str(size))
