"""decompose: composites in an artefact are what eager's are, for inputs unlike the examples.

The parameters of these modules require no gradients, as an artefact's do not: eager's `linear`
takes another kernel where they do, whose sums are in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, List, Optional  # noqa: UP035

import pytest
import torch
from torch import Tensor, nn
from torch.jit.mobile import _load_for_lite_interpreter
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import jit_amp

from ..support import assert_same, check_ir, fresh, needs_cuda, tensors_of, text_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:Lite Interpreter is deprecated"),
    pytest.mark.filterwarnings("ignore:dropout option adds dropout"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]

BF16, HALF, FLOAT, DOUBLE = torch.bfloat16, torch.float16, torch.float32, torch.float64
DTYPES = (FLOAT, BF16, HALF, DOUBLE)


def eager(module: nn.Module, inputs: Sequence[Any]) -> Any:
    """What the module gives, or the error that it raises."""
    try:
        with torch.no_grad():
            return module(*fresh(list(inputs)))
    except (RuntimeError, ValueError, IndexError) as error:
        return error


def dtypes_of(value: Any) -> tuple[torch.dtype, ...]:
    return tuple(tensor.dtype for tensor in tensors_of(value))


def artefacts(module: nn.Module, example: Sequence[Any] | None, folder: Path) -> list[Any]:
    """The frozen module, and what is loaded from its files by both interpreters."""
    frozen = jit_amp.freeze(
        module.eval(),
        example_inputs=None if example is None else tuple(example),
        optimize_numerics=False,
    )
    torch.jit.save(frozen, folder / "model.pt")
    frozen._save_for_lite_interpreter(str(folder / "model.ptl"))
    lite = _load_for_lite_interpreter(str(folder / "model.ptl"))
    return [frozen, torch.jit.load(folder / "model.pt"), lite]


def assert_as_eager(
    module: nn.Module,
    calls: Iterable[Sequence[Any]],
    folder: Path,
    *,
    refused: str | None = None,
    rounding: bool = False,
) -> set[torch.dtype]:
    """Asserts that artefacts give what eager gives, bit for bit, or within a rounding.

    One is frozen without examples and called with everything; and one for each combination of
    dtypes, with the first call as its example. Where eager raises nothing is asked of them, and
    they may raise `refused`.

    Returns:
        The dtypes of eager's first results.
    """
    module.eval().requires_grad_(False)
    found = set()
    known: dict[Any, list[Any]] = {}
    for inputs in calls:
        expected = eager(module, inputs)
        if isinstance(expected, Exception):
            continue
        found.add(tensors_of(expected)[0].dtype)
        for key, example in ((None, None), (dtypes_of(inputs), inputs)):
            if key not in known:
                try:
                    known[key] = artefacts(module, example, folder)
                except jit_amp.AutocastError as error:
                    assert example is not None and refused and refused in str(error)
                    known[key] = []
            for runner in known[key]:
                for call in range(3 if runner is known[key][0] else 1):
                    try:
                        with torch.no_grad():  # as eager: an LSTM in float16 asks for it
                            actual = runner(*fresh(list(inputs)))
                    except (RuntimeError, torch.jit.Error) as error:
                        assert refused and refused in str(error), error
                        continue
                    where = (
                        f"{key}, call {call}, {[(x.dtype, x.shape) for x in tensors_of(inputs)]}"
                    )
                    if rounding:
                        torch.testing.assert_close(actual, expected)
                    else:
                        assert_same(actual, expected, where)
    return found


def draw(*shape: int, dtype: torch.dtype = FLOAT) -> Tensor:
    return torch.randn(shape).to(dtype)


# Recurrent cells.


class Cell(nn.Module):
    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.cell(x)


class CellOfState(Cell):
    def forward(self, x: Tensor, h: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return self.cell(x, h)


class CellOfStates(Cell):
    def forward(self, x: Tensor, h: Tensor, c: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return self.cell(x, (h, c))


CELLS = {
    "LSTM": nn.LSTMCell(4, 5),
    "LSTM without bias": nn.LSTMCell(4, 5, bias=False),
    "GRU": nn.GRUCell(4, 5),
    "GRU without bias": nn.GRUCell(4, 5, bias=False),
    "RNN": nn.RNNCell(4, 5),
    "RNN with relu": nn.RNNCell(4, 5, nonlinearity="relu"),
    "LSTM of float64": nn.LSTMCell(4, 5).double(),
    "GRU of bfloat16": nn.GRUCell(4, 5).bfloat16(),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell(name: str, tmp_path: Path) -> None:
    cell = CELLS[name]
    calls = [(draw(n, 4, dtype=dtype),) for dtype in DTYPES for n in (2, 1, 0)]
    assert assert_as_eager(Cell(cell), calls, tmp_path)
    is_lstm = isinstance(cell, nn.LSTMCell)
    given = [
        tuple(draw(n, size, dtype=dtype) for size, dtype in zip((4, 5, 5), dtypes, strict=True))
        for dtypes in (
            (FLOAT, FLOAT, FLOAT),
            (BF16, FLOAT, HALF),
            (HALF, HALF, FLOAT),
            (DOUBLE,) * 3,
        )
        for n in (3, 0)
    ]
    if is_lstm:
        assert assert_as_eager(CellOfStates(cell), given, tmp_path)
    else:
        assert assert_as_eager(CellOfState(cell), [call[:2] for call in given], tmp_path)


class Mixed(nn.Module):
    """Weights of dtypes that differ, which no module has."""

    def forward(self, x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b: Optional[Tensor]):  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (
                torch.gru_cell(x, h, w_ih, w_hh, b, b),
                torch.lstm_cell(
                    x, [h, h], torch.cat([w_ih, w_ih[:2]]), torch.cat([w_hh, w_hh[:2]])
                ),
                torch.rnn_tanh_cell(x, h, w_ih[:2], w_hh[:2]),
            )


def test_cells_of_weights_of_several_dtypes(tmp_path: Path) -> None:
    calls = [
        (
            draw(3, 4, dtype=x),
            draw(3, 2, dtype=h),
            draw(6, 4, dtype=x if x is DOUBLE else w),
            draw(6, 2, dtype=h if h is DOUBLE else w),
            draw(6, dtype=w) if w is FLOAT and x is not DOUBLE and h is not DOUBLE else None,
        )
        for x in DTYPES
        for h in DTYPES
        for w in (FLOAT, HALF)
    ]
    assert assert_as_eager(Mixed(), calls, tmp_path) >= {FLOAT, BF16, DOUBLE}


# Recurrent networks.


class Recurrent(nn.Module):
    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn


class InBFloat16(Recurrent):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.rnn(x)


class InFloat16(Recurrent):
    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return self.rnn(x)


class OfState(Recurrent):
    def forward(self, x: Tensor, h: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.rnn(x, h)


class OfStates(Recurrent):
    def forward(self, x: Tensor, h: Tensor, c: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.rnn(x, (h, c))


class Packed(Recurrent):
    def forward(self, x: Tensor, lengths: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            packed = pack_padded_sequence(x, lengths, self.rnn.batch_first, enforce_sorted=False)
            y, h = self.rnn(packed)
            return pad_packed_sequence(y, self.rnn.batch_first), h


class PackedOfState(Recurrent):
    def forward(self, x: Tensor, lengths: Tensor, h: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            packed = pack_padded_sequence(x, lengths, self.rnn.batch_first, enforce_sorted=False)
            y, h = self.rnn(packed, h)
            return pad_packed_sequence(y, self.rnn.batch_first), h


class PackedOfStates(Recurrent):
    def forward(self, x: Tensor, lengths: Tensor, h: Tensor, c: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            packed = pack_padded_sequence(x, lengths, self.rnn.batch_first, enforce_sorted=False)
            y, states = self.rnn(packed, (h, c))
            return pad_packed_sequence(y, self.rnn.batch_first), states


DEEP: dict[str, Any] = {"num_layers": 2, "bidirectional": True, "batch_first": True}
NETWORKS = {
    "LSTM": lambda: nn.LSTM(4, 5),
    "LSTM without bias": lambda: nn.LSTM(4, 5, bias=False),
    "deep LSTM": lambda: nn.LSTM(4, 5, dropout=0.5, **DEEP),
    "LSTM with projections": lambda: nn.LSTM(4, 5, proj_size=3),
    "deep LSTM with projections": lambda: nn.LSTM(4, 5, proj_size=3, bias=False, **DEEP),
    "LSTM of float64": lambda: nn.LSTM(4, 5).double(),
    "LSTM of bfloat16": lambda: nn.LSTM(4, 5).bfloat16(),
    "GRU": lambda: nn.GRU(4, 5),
    "deep GRU": lambda: nn.GRU(4, 5, bias=False, dropout=0.5, **DEEP),
    "GRU of float64": lambda: nn.GRU(4, 5).double(),
    "RNN": lambda: nn.RNN(4, 5),
    "deep RNN": lambda: nn.RNN(4, 5, nonlinearity="relu", **DEEP),
}
# Eager's result is of another dtype for these, which an artefact does not give: it says so.
LSTM_REFUSES = "jit_amp: an exported LSTM inside autocast"


def shaped(rnn: nn.RNNBase, steps: int, batch: int, dtype: torch.dtype) -> Tensor:
    x = draw(steps, batch, 4, dtype=dtype)
    return x.transpose(0, 1).contiguous() if rnn.batch_first else x


def states(rnn: nn.RNNBase, batch: int, dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    count = rnn.num_layers * (2 if rnn.bidirectional else 1)
    h = draw(count, batch, rnn.proj_size or rnn.hidden_size, dtype=dtypes[0])
    c = draw(count, batch, rnn.hidden_size, dtype=dtypes[1])
    return [h, c] if isinstance(rnn, nn.LSTM) else [h]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network(name: str, tmp_path: Path) -> None:
    rnn = NETWORKS[name]()
    refused = LSTM_REFUSES if isinstance(rnn, nn.LSTM) else None
    sizes = ((3, 2), (1, 1), (2, 0))
    calls = [(shaped(rnn, *size, dtype),) for dtype in DTYPES for size in sizes]
    calls.append((draw(3, 4, dtype=rnn.weight_ih_l0.dtype),))  # not batched
    assert assert_as_eager(InBFloat16(rnn), calls, tmp_path, refused=refused)
    # Few CPUs have oneDNN's float16 LSTM: on others there is a result for float16 inputs at least.
    assert assert_as_eager(InFloat16(rnn), calls, tmp_path, refused=refused)


STATES = (
    (FLOAT, FLOAT),
    (BF16, BF16),
    (FLOAT, BF16),
    (BF16, FLOAT),
    (HALF, HALF),
    (DOUBLE, DOUBLE),
)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_with_its_states(name: str, tmp_path: Path) -> None:
    rnn = NETWORKS[name]()
    calls = [
        (shaped(rnn, steps, batch, dtype), *states(rnn, batch, given))
        for dtype in (FLOAT, BF16, DOUBLE)
        for given in STATES
        for steps, batch in ((3, 2), (2, 0))
    ]
    if isinstance(rnn, nn.LSTM):
        assert assert_as_eager(OfStates(rnn), calls, tmp_path, refused=LSTM_REFUSES)
    else:
        assert assert_as_eager(OfState(rnn), calls, tmp_path)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_on_packed_sequences(name: str, tmp_path: Path) -> None:
    rnn = NETWORKS[name]()
    lengths = [torch.tensor(n) for n in ([3, 1], [2, 3], [3, 3], [1, 1], [1], [4])]
    calls = [(shaped(rnn, int(n.max()), len(n), dtype), n) for dtype in DTYPES for n in lengths]
    refused = LSTM_REFUSES if isinstance(rnn, nn.LSTM) else None
    assert assert_as_eager(Packed(rnn), calls, tmp_path, refused=refused)
    with_states = [
        (*call, *states(rnn, len(call[1]), given)) for call in calls[:12] for given in STATES
    ]
    module = PackedOfStates(rnn) if isinstance(rnn, nn.LSTM) else PackedOfState(rnn)
    found = assert_as_eager(module, with_states, tmp_path, refused=refused)
    assert found or name.endswith("float64")  # with states of other dtypes eager raises


# Recurrent networks in a scope for CUDA. Tensors on CPU are none of its business.


class InCudasBFloat16(nn.Module):
    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.rnn(x)


class InCudasFloat16(InCudasBFloat16):
    def forward(self, x: Tensor):
        with torch.autocast("cuda", dtype=torch.float16):
            return self.rnn(x)


class PackedInCudas(InCudasBFloat16):
    def forward(self, x: Tensor, lengths: Tensor):
        first = self.rnn.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False)
        with torch.autocast("cuda", dtype=torch.float16):
            packed, state = self.rnn(packed)
        return pad_packed_sequence(packed, batch_first=first)[0], state


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_a_scope_for_cuda(name: str, device: str, tmp_path: Path) -> None:
    rnn = NETWORKS[name]().to(device)
    sizes = ((3, 2), (1, 1))
    calls = [(shaped(rnn, *size, dtype).to(device),) for dtype in DTYPES for size in sizes]
    # oneDNN's float32 LSTM for CPUs without AVX512 is not the same to the last bit each time.
    rounding = isinstance(rnn, nn.LSTM) and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert assert_as_eager(InCudasFloat16(rnn), calls, tmp_path, rounding=rounding)
    kernels = "is run by cuDNN if cuDNN takes its input and its input's cast"
    assert assert_as_eager(
        InCudasBFloat16(rnn), calls, tmp_path, refused=kernels, rounding=rounding
    )
    lengths = [torch.tensor(n) for n in ([3, 1], [2, 3], [1])]
    packed = [
        (shaped(rnn, int(n.max()), len(n), dtype).to(device), n)
        for dtype in DTYPES
        for n in lengths
    ]
    assert assert_as_eager(PackedInCudas(rnn), packed, tmp_path, rounding=rounding)


class OfWeights(nn.Module):
    def forward(self, x: Tensor, h: Tensor, c: Tensor, weights: List[Tensor]):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.lstm(x, [h, c], weights, False, 1, 0.0, False, False, False)


def test_an_lstm_of_weights_that_come_in(tmp_path: Path) -> None:
    calls = [
        (draw(3, 2, 4, dtype=x), draw(1, 2, last, dtype=x), draw(1, 2, 5, dtype=x), weights)
        for x in (FLOAT, BF16, DOUBLE)
        for w in (FLOAT, BF16, DOUBLE)
        for last in (5, 3)
        for weights in [
            [draw(20, 4, dtype=w), draw(20, last, dtype=w)]
            + ([draw(3, 5, dtype=w)] if last == 3 else [])
        ]
    ]
    found = assert_as_eager(OfWeights(), calls, tmp_path, refused=LSTM_REFUSES)
    assert found >= {BF16, DOUBLE}


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
@torch.no_grad()
def test_an_lstm_where_onednn_is_switched_off() -> None:
    module, x = InBFloat16(nn.LSTM(4, 5)).eval(), draw(3, 2, 4)
    with torch.backends.mkldnn.flags(enabled=False):
        expected = module(x)
        frozen = jit_amp.freeze(module, optimize_numerics=False)
        for _ in range(3):
            assert_same(frozen(x), expected, "without oneDNN")
    assert expected[0].dtype != module(x)[0].dtype


class Trained(nn.Module):
    def forward(self, x: Tensor, h: Tensor, w: List[Tensor]):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.gru(x, h, w, False, 2, 0.5, True, False, False)


def test_dropout_between_layers_is_eagers() -> None:
    inputs = (draw(3, 2, 4), draw(2, 2, 4), [draw(12, 4) for _ in range(4)])
    module = Trained().eval()
    frozen = jit_amp.freeze(module, optimize_numerics=False)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = module(*inputs)
        torch.manual_seed(seed)
        assert_same(frozen(*inputs), expected, "dropout")


def test_layers_are_unrolled_and_weights_are_cast_when_compiling() -> None:
    frozen = jit_amp.freeze(InBFloat16(nn.GRU(4, 5, num_layers=2, bidirectional=True)).eval())
    graph = text_of(frozen.graph)
    assert graph.count("aten::linear") == 8
    assert graph.count("prim::Loop(") == 4  # over the steps
    assert graph.count("BFloat16(15, ") == 8 + 4 + 4  # weights and biases; 4 of them twice a layer


# einsum.


class Einsum(nn.Module):
    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation


class OfOne(Einsum):
    def forward(self, a: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.einsum(self.equation, a)


class OfTwo(Einsum):
    def forward(self, a: Tensor, b: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.einsum(self.equation, a, b)


class OfThree(Einsum):
    def forward(self, a: Tensor, b: Tensor, c: Tensor):
        with torch.autocast("cpu", dtype=torch.float16):
            return torch.einsum(self.equation, a, b, c)


class OfAList(Einsum):
    def forward(self, tensors: List[Tensor]):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.einsum(self.equation, tensors)


class AtRunTime(nn.Module):
    def forward(self, equation: str, tensors: List[Tensor]):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.einsum(equation, tensors)


EQUATIONS = (
    "ij->ji", "ii->i", "ij->", "...ij->...j", "iij->j", "aB",
    "ij,jk->ik", "bij,bjk->bik", "bij,bjk", "bij,bij->bij", "i,j->ij", ",ij->ij", "bij,bij->b",
    "bij,jk->ik", "ij,kl->i", "bhid,bhjd->bhij", "bhwc,hkc->bhwk", "...ij,...jk->...ik",
    "i...,...i->...", "...i,...i->", "ii,ij->j", " i j , j k -> k i ", "Ab,bA->A", "ij,ij->",
    "ij,jk,kl->il", "bi,ij,bj->b", "i,i,i->i", "...i,...j,ij->...", "ii,jj,ij->", "ij,jk,kl,li->",
)  # fmt: skip


def operands(equation: str, sizes: dict[str, int], rank: int) -> list[Tensor]:
    inputs = equation.replace(" ", "").split("->")[0].split(",")
    shapes = [
        [
            n
            for part in operand.replace("...", ".")
            for n in ([2, 3][:rank] if part == "." else [sizes[part]])
        ]
        for operand in inputs
    ]
    return [torch.randn(shape) for shape in shapes]


def cases(equation: str) -> list[list[Tensor]]:
    """Operands of all dtypes, and sizes of which one or another is 0 or 1, in one or all."""
    letters = sorted({letter for letter in equation if letter.isalpha()})
    found = []
    plain = dict(zip(letters, (3, 4, 5, 2, 6), strict=False))
    for dtype in DTYPES:
        found.append([x.to(dtype) for x in operands(equation, plain, 2)])
    found.append([x.to(DTYPES[i % 3]) for i, x in enumerate(operands(equation, plain, 1))])
    for letter in letters:
        for size in (0, 1):
            found.append(operands(equation, {**plain, letter: size}, 0))
        for i, x in enumerate(operands(equation, plain, 1)):
            single = operands(equation, {**plain, letter: 1}, 1)[i]
            if single.shape != x.shape:
                others = operands(equation, plain, 1)
                found.append([*others[:i], single, *others[i + 1 :]])
    found.append(operands(equation, dict.fromkeys(letters, 1), 2))
    strided = [x.transpose(0, -1).contiguous().transpose(0, -1)[..., :3] if x.dim() else x
               for x in operands(equation, dict.fromkeys(letters, 3), 1)]  # fmt: skip
    found.append(strided)
    return found


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str, tmp_path: Path) -> None:
    made = cases(equation)
    module = {1: OfOne, 2: OfTwo, 3: OfThree}.get(len(made[0]))
    if module:
        assert assert_as_eager(module(equation), made, tmp_path)
    assert assert_as_eager(OfAList(equation), [(tensors,) for tensors in made], tmp_path)


def test_einsum_takes_both_dtypes(tmp_path: Path) -> None:
    calls = [(draw(2, n), draw(m, 3)) for n in (1, 4) for m in (1, 4)]
    assert assert_as_eager(OfTwo("ij,jk->ik"), calls, tmp_path) == {FLOAT, BF16}


def test_einsum_of_an_equation_at_run_time(tmp_path: Path) -> None:
    module = AtRunTime().eval()
    frozen, loaded, _ = artefacts(module, None, tmp_path)
    for equation in EQUATIONS:
        for tensors in cases(equation):
            expected = eager(module, (equation, tensors))
            if not isinstance(expected, Exception):
                assert_same(frozen(equation, tensors), expected, equation)
    for equation in ("ij,jk", "ij,jk->ii", "ij->k", "i.j", "ij;jk", "ij,...j..."):
        with pytest.raises((RuntimeError, torch.jit.Error)):
            loaded(equation, [draw(2, 2)])


class AlongAPath(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor, path: List[int]):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (
                torch.ops.aten.einsum("ij,jk,kl->il", [a, b, c], path=path),
                torch.ops.aten.einsum("ij,jk,kl->il", [a, b, c], path=[1, 2, 0, 1]),
            )


def test_einsum_along_a_path(tmp_path: Path) -> None:
    module = AlongAPath().eval()
    frozen = artefacts(module, None, tmp_path)[0]
    for path in ([0, 1, 0, 1], [2, 0, 1, 0]):
        for sizes in ((2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 5)):
            a, b, c = (draw(*sizes[i : i + 2]) for i in range(3))
            assert_same(frozen(a, b, c, path), eager(module, (a, b, c, path)), f"{path} {sizes}")


class Growing(nn.Module):
    def forward(self, a: Tensor, n: int):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            tensors = [a, a.float()]
            equation = "ij,jk->ik"
            for _ in range(n):
                tensors.append(a)
                equation = "ij,jk,kl->il"
            tensors[1] = a[:, :1]
            return torch.einsum(equation, tensors), torch.einsum("ij,jk->ik", tensors[:2])


def test_a_list_that_is_written_to_is_not_taken_for_what_it_was_made_as(tmp_path: Path) -> None:
    calls = [(draw(n, n), k) for n in (3, 1) for k in (0, 1)]
    module = Growing().eval()
    frozen = artefacts(module, None, tmp_path)[0]
    for call in calls:
        expected = eager(module, call)
        if not isinstance(expected, Exception):
            assert_same(frozen(*call), expected, str(call[1]))


def test_a_plain_einsum_is_a_test_of_sizes_and_an_einsum() -> None:
    a, b = draw(2, 3, 4), draw(2, 4, 3)
    frozen = jit_amp.freeze(OfTwo("bij,bjk->bik").eval(), example_inputs=(a, b))
    check_ir(
        frozen.graph,
        """
        CHECK-COUNT-2: prim::RaiseException
        CHECK-NOT:     prim::Loop
        CHECK-COUNT-2: aten::size
        CHECK:         prim::If
        CHECK-NEXT:      block0
        CHECK-COUNT-2:     aten::to
        CHECK:             aten::einsum
        CHECK:           block1
        CHECK-NEXT:        aten::einsum
        CHECK-NOT:     aten::
        CHECK:         return
        """,
    )


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.einsum("bi,ij->bj", x, self.weight)


def test_a_weight_of_an_einsum_that_is_no_product_is_eagers(tmp_path: Path) -> None:
    calls = [(draw(2, n, dtype=dtype),) for dtype in DTYPES for n in (4, 1)]
    assert assert_as_eager(Projected(), calls, tmp_path) >= {FLOAT, BF16}


# tensordot and bilinear.


class Tensordot(nn.Module):
    def forward(self, x: Tensor, y: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (
                torch.tensordot(x, y, ([1, 2], [1, 0])),
                torch.tensordot(x, y, ([-1], [0])),
                torch.tensordot(x, x, 3),
            )


class TensordotOf(nn.Module):
    def forward(self, x: Tensor, y: Tensor, of_x: List[int], of_y: List[int]):  # noqa: UP006
        with torch.autocast("cpu", dtype=torch.float16):
            return torch.tensordot(x, y, (of_x, of_y))


def test_tensordot(tmp_path: Path) -> None:
    calls = [
        (draw(*x, dtype=dtype), draw(*y, dtype=dtype))
        for dtype in DTYPES
        for x in ((2, 3, 4), (1, 3, 4), (2, 1, 4), (0, 3, 4), (2, 3, 1))
        for y in ((4, 3, 2), (4, 1, 1), (1, 3, 2), (1, 1, 1))
    ]
    found = assert_as_eager(Tensordot(), calls, tmp_path)
    assert found >= {BF16, DOUBLE}
    module = TensordotOf().eval()
    frozen = artefacts(module, None, tmp_path)[0]
    for x, y in calls:
        for dims in ([[1, 2], [1, 0]], [[-1], [0]], [[], []], [[0], [-1]]):
            expected = eager(module, (x, y, *dims))
            if not isinstance(expected, Exception):
                assert_same(frozen(x, y, *dims), expected, f"{x.shape} {y.shape} {dims}")


class Bilinear(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.bilinear = nn.Bilinear(4, 3, 5, bias)

    def forward(self, x: Tensor, y: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.bilinear(x, y)


class BilinearOf(nn.Module):
    def forward(self, x: Tensor, y: Tensor, weight: Tensor, bias: Optional[Tensor]):  # noqa: UP045
        with torch.autocast("cpu", dtype=torch.float16):
            return nn.functional.bilinear(x, y, weight, bias)


@pytest.mark.parametrize("bias", [True, False])
def test_bilinear(bias: bool, tmp_path: Path) -> None:
    shapes: tuple[tuple[int, ...], ...] = ((2,), (), (0,), (2, 3))
    calls = [
        (draw(*shape, 4, dtype=x), draw(*shape, 3, dtype=y))
        for shape in shapes
        for x in DTYPES
        for y in DTYPES
    ]
    assert assert_as_eager(Bilinear(bias), calls, tmp_path) >= {FLOAT}
    given = [
        (
            draw(2, n, dtype=x),
            draw(2, 3, dtype=x),
            draw(5, n, 3, dtype=w),
            draw(5, dtype=w) if bias else None,
        )
        for x in DTYPES
        for w in DTYPES
        for n in (4, 1)
    ]
    assert assert_as_eager(BilinearOf(), given, tmp_path) >= {FLOAT, BF16, HALF, DOUBLE}


class OfConstants(nn.Module):
    """Composites all of whose operands are part of the artefact."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.vector = torch.randn(4, 4), torch.randn(4)
        self.cell, self.bilinear = nn.LSTMCell(4, 4), nn.Bilinear(4, 4, 4)

    def forward(self, x: Tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inner = torch.inner(self.matrix, self.vector)
            hidden, cell = self.cell(self.matrix)
            product = torch.linalg.multi_dot([self.matrix, self.matrix, x])
            return inner, hidden, cell, product, self.bilinear(self.matrix, self.matrix)


@pytest.mark.parametrize("with_example", [False, True])
def test_a_composite_of_constants_is_cast_before_it_is_computed(with_example: bool) -> None:
    module, x = OfConstants().eval().requires_grad_(False), torch.randn(4, 4)
    artefact = jit_amp.freeze(
        module, optimize_numerics=False, example_inputs=(x,) if with_example else None
    )
    for _ in range(3):
        assert_same(artefact(x), module(x), "an artefact")
