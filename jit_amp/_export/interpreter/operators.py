"""The operators on numbers and tensors that the interpreter runs in ways of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import SymBool, SymInt, Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from jit_amp._export.interpreter.interpreter import Interpreter, implements
from jit_amp._export.interpreter.plain_operators import PLAIN, tensor_of
from jit_amp._export.interpreter.steps import Code, Kernel, Step
from jit_amp._export.interpreter.values import Frame, Truth, as_condition
from jit_amp._export.sizes.small import depends_on_small_sizes, told


@implements("aten::grad", "aten::backward")
def _grad(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    """An exported program has no autograd of its own: torch.export raises when all is traced,
    and names no line."""
    return interpreter.unknown(step)


@implements("prim::PythonOp")
def _python_op(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    node: Any = step.node
    reason = ", which is Python that TorchScript does not compile (@torch.jit.ignore)"
    return interpreter.unknown(step, reason, f"{node.pyname()}()")


@implements("prim::ModuleContainerIndex")
def _module_container_index(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    """Which module is chosen is known by then, and what its method is has not been compiled."""
    return interpreter.unknown(step)


@implements("prim::tolist")
def _tolist(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def run(_: Frame, x: Tensor, dim: Any, kind: Any) -> Any:
        if (number := interpreter.known.number(x)) is not None:
            return number
        if (values := interpreter.known.read(x, Tensor.tolist)) is not None:
            return values
        interpreter.refuse(step, 504, ["the values of a tensor as a list"])

    return run


@implements("aten::tensor", "aten::as_tensor")
def _tensor(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    of_tensor = interpreter.operator(step)

    def run(frame: Frame, data: Any, *options: Any) -> Tensor:
        if not isinstance(data, Tensor):
            return tensor_of(data, *options, may_be_constant=not interpreter.whole.depth)
        made: Tensor = of_tensor(frame, data, *options)
        return made

    return run


@implements("prim::dtype")
def _dtype(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    plain = interpreter.operator(step)

    def run(frame: Frame, x: Tensor) -> Any:
        interpreter.check_dtype(x)
        return plain(frame, x)

    return run


@implements("aten::slice")
def _slice(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    """Where torch.export does not know whether a bound is negative, as that of a table which is
    cut around its middle, it takes the length for a number that only a run tells, and decides
    what follows without the example. It is guarded instead, as torch.export does by default."""
    plain = interpreter.operator(step)

    def run(frame: Frame, x: Any, *bounds: Any) -> Any:
        if isinstance(x, Tensor):
            for bound in bounds[1:3]:
                if isinstance(bound, SymInt) and not free_unbacked_symbols(bound):
                    bool(bound >= 0)
        return plain(frame, x, *bounds)

    return run


@implements("aten::narrow")
def _narrow(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    """``aten::narrow``; in a trace the start is a tensor."""
    plain = interpreter.operator(step)

    def run(frame: Frame, x: Tensor, dim: int, start: Any, length: Any) -> Any:
        number = interpreter.known.number(start) if isinstance(start, Tensor) else None
        if number is None:
            return plain(frame, x, dim, start, length)
        return torch.ops.aten.narrow.default(x, dim, number, length)

    return run


@implements("prim::NumToTensor")
def _num_to_tensor(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def run(_: Frame, number: Any) -> Tensor:
        made = tensor_of(number, may_be_constant=not interpreter.whole.depth)
        interpreter.known.is_number(made, number)
        return made

    return run


def _value_of(interpreter: Interpreter, step: Step, convert: Callable[..., Any]) -> Kernel:
    def run(_: Frame, x: Any) -> Any:
        if not isinstance(x, Tensor):
            return convert(x)
        if (number := interpreter.known.number(x)) is not None:
            return convert(number)
        number = interpreter.known.read(x, Tensor.item)
        return convert(x.item() if number is None else number)

    return run


@implements("aten::Int", "aten::IntImplicit")
def _int(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    plain = _value_of(interpreter, step, PLAIN["aten::Int"])

    def run(frame: Frame, x: Any) -> Any:
        whole = (
            interpreter.known.numbers.get(id(x), (x, None))[1] if isinstance(x, Tensor) else None
        )
        return whole if type(whole) in (int, SymInt) else plain(frame, x)

    return run


@implements("aten::Float", "aten::FloatImplicit")
def _float(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return _value_of(interpreter, step, PLAIN["aten::Float"])


@implements("aten::item", "aten::ScalarImplicit")
def _item(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return _value_of(interpreter, step, lambda x: x)


@implements("aten::Bool", "aten::is_nonzero")
def _bool(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    plain = PLAIN["aten::Bool"]

    def run(_: Frame, x: Any) -> Any:
        if not isinstance(x, Tensor):
            interpreter.asks = max(interpreter.asks, depends_on_small_sizes(operator.ne, x, 0))
            return plain(x)
        if (number := interpreter.known.number(x)) is not None:
            return bool(number)
        if (answer := interpreter.known.read(x, bool)) is not None:
            return answer
        constant = getattr(x, "constant", None)
        if constant is not None:
            return bool(constant)
        if not interpreter.code.writes:
            return Truth(x)
        condition = as_condition(x)  # of now: the tensor may be written to before it is used
        return Truth(condition.clone() if x.dtype is torch.bool else condition)

    return run


@implements("aten::__not__")
def _not(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    plain = PLAIN["aten::__not__"]
    step.takes_truth = True

    def run(_: Frame, x: Any) -> Any:
        if isinstance(x, Truth) and isinstance(x.of, Tensor):
            return Truth(torch.ops.aten.logical_not.default(x.of))
        return plain(x.of if isinstance(x, Truth) else x)

    return run


def _both(interpreter: Interpreter, step: Step, decides: bool, join: Any) -> Kernel:
    plain = PLAIN[step.node.kind()]
    step.takes_truth = True

    def run(_: Frame, a: Any, b: Any) -> Any:
        for one, other in ((a, b), (b, a)):
            if type(one) is bool and isinstance(other, Truth):
                return one if one is decides else other
        tensors = [x.of for x in (a, b) if isinstance(x, Truth) and isinstance(x.of, Tensor)]
        if len(tensors) == 2:
            return Truth(join(*map(as_condition, tensors)))
        return plain(*(interpreter.forced(x) if isinstance(x, Truth) else x for x in (a, b)))

    return run


@implements("aten::__and__")
def _and(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    if not _is_of_bools(step.node):
        return interpreter.operator(step)
    return _both(interpreter, step, False, torch.ops.aten.logical_and.default)


@implements("aten::__or__")
def _or(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    if not _is_of_bools(step.node):
        return interpreter.operator(step)
    return _both(interpreter, step, True, torch.ops.aten.logical_or.default)


@implements("aten::remainder")
def _remainder(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    """Of a size by division, which PyTorch simplifies: padding to a multiple makes of sizes
    ``size + (b - size % b) % b``."""
    plain = interpreter.operator(step)

    def run(frame: Frame, a: Any, b: Any) -> Any:
        if not (isinstance(a, SymInt) and type(b) is int and b > 0):
            return plain(frame, a, b)
        result = a - b * (a // b)
        if isinstance(result, SymInt):
            interpreter.remainders[result.node.expr] = (a, b)
        return result

    return run


def _comparison(interpreter: Interpreter, step: Step) -> Kernel:
    """``size % b == 0`` says more of a size than the division does."""
    plain = interpreter.operator(step)

    def run(frame: Frame, a: Any, b: Any) -> Any:
        if isinstance(a, SymInt) and type(b) is int and a.node.expr in interpreter.remainders:
            of, by = interpreter.remainders[a.node.expr]
            a = of % by
        return plain(frame, a, b)

    return run


def _are_equal(interpreter: Interpreter, step: Step, equal: bool) -> Kernel:
    """``aten::eq``, or ``aten::ne``, of two bools."""
    plain = PLAIN[step.node.kind()]
    step.takes_truth = True

    def run(_: Frame, a: Any, b: Any) -> Any:
        if isinstance(a, SymBool) and isinstance(b, SymBool):
            inverse: Any = torch.sym_not  # has no types
            same = (a & b) | (inverse(a) & inverse(b))
            return same if equal else inverse(same)
        for one, other in ((a, b), (b, a)):
            is_known = type(one) is bool and isinstance(other, Truth)
            if is_known and isinstance(other.of, Tensor):
                return other if one is equal else Truth(_inverse(other.of))
        tensors = [x.of for x in (a, b) if isinstance(x, Truth) and isinstance(x.of, Tensor)]
        if len(tensors) == 2:
            differ = torch.ops.aten.logical_xor.default(*map(as_condition, tensors))
            return Truth(_inverse(differ) if equal else differ)
        return plain(*(interpreter.forced(x) if isinstance(x, Truth) else x for x in (a, b)))

    return run


@implements("aten::eq")
def _eq(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return (
        _are_equal(interpreter, step, True)
        if _is_of_bools(step.node)
        else _comparison(interpreter, step)
    )


@implements("aten::ne")
def _ne(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return (
        _are_equal(interpreter, step, False)
        if _is_of_bools(step.node)
        else _comparison(interpreter, step)
    )


@implements("aten::__xor__")
def _xor(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return (
        _are_equal(interpreter, step, False)
        if _is_of_bools(step.node)
        else interpreter.operator(step)
    )


@implements("aten::str", "aten::format", "aten::percentFormat")
def _text(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    """A text with a tensor in it is known at run time only, and one with a size fixes the size;
    but one that is printed, or raised, is nobody's."""
    plain = interpreter.operator(step)
    is_told = _is_told(step.node.output())

    def run(frame: Frame, *values: Any) -> Any:
        if is_told:
            return plain(frame, *pytree.tree_map(told, values))
        if any(isinstance(each, Tensor) for each in pytree.tree_leaves(values)):
            interpreter.refuse(step, 504, ["a text with the values of a tensor in it"])
        return plain(frame, *values)

    return run


@implements("aten::_pack_padded_sequence")
def _pack_padded_sequence(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return interpreter.unknown(step, " (how long the sequences are is known at run time only)")


@implements("aten::_nested_tensor_from_mask")
def _nested_tensor_from_mask(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    """The fast path of nn.TransformerEncoder; what torch.export exports has other values where
    the padding is."""
    instead = "nn.TransformerEncoder(..., enable_nested_tensor=False) makes none"
    return interpreter.unknown(step, f" (PyTorch exports no nested tensors: {instead})")


@implements("aten::is_grad_enabled")
def _is_grad_enabled(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    """`no_grad` asks too, to put things back."""
    uses = {use.user.kind() for value in step.node.outputs() for use in value.uses()}
    decides = bool(uses - {"prim::SetAttr", "aten::set_grad_enabled"})

    def run(*_: Any) -> bool:
        interpreter.records_gradients |= decides and torch.is_grad_enabled()
        return torch.is_grad_enabled()

    return run


@implements("aten::is_contiguous", "aten::stride")
def _of_layout(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    plain = interpreter.operator(step)

    def run(frame: Frame, *operands: Any) -> Any:
        interpreter.asks_layout = True
        return plain(frame, *operands)

    return run


@implements("aten::cudnn_is_acceptable")
def _cudnn_is_acceptable(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def run(_: Frame, x: Tensor) -> bool:
        with torch.backends.cudnn.flags(enabled=interpreter.has_cudnn):
            return torch.cudnn_is_acceptable(x)

    return run


def _inverse(condition: Tensor) -> Tensor:
    made: Tensor = torch.ops.aten.logical_not.default(as_condition(condition))
    return made


def _is_told(text: torch._C.Value) -> bool:
    """Whether a text is only printed, or told in a warning or an error, or part of such a text."""
    users = [use.user for use in text.uses()]
    return all(
        user.kind() in _TELL or (_is_text(user) and _is_told(user.output())) for user in users
    )


_TELL = {"prim::Print", "aten::warn", "aten::warnings", "prim::RaiseException"}


def _is_text(node: torch._C.Node) -> bool:
    return node.outputsSize() == 1 and str(node.output().type()) == "str"


def _is_of_bools(node: torch._C.Node) -> bool:
    return all(str(value.type()) == "bool" for value in node.inputs())
