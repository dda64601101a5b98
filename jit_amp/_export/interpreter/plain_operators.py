"""What TorchScript's operators on plain values do, in Python: for numbers that are symbols, for
lists and dictionaries that a program changes, for questions that a tensor answers at once.

What stands in neither table is PyTorch's own operator.

In one piece: tables, a row for each operator.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from jit_amp._export.checked_inputs import check_kind

_torch: Any = torch  # its functions for symbols have no types
_LIKE = {SymBool: False, SymFloat: 0.0, SymInt: 0}
SYMBOLS = tuple(_LIKE)

# A dtype, a layout and a memory format are numbers in TorchScript.
_DTYPES = {
    getattr(torch, name) for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)
}
_numbers: Any = torch._C.Graph()
DTYPE_OF: dict[int, torch.dtype] = {
    _numbers.insertConstant(dtype).toIValue(): dtype for dtype in _DTYPES
}
NUMBER_OF: dict[Any, int] = {dtype: number for number, dtype in DTYPE_OF.items()}
LAYOUT_OF: dict[int, torch.layout] = {
    _numbers.insertConstant(layout).toIValue(): layout
    for layout in (torch.strided, torch.sparse_coo, torch.sparse_csr)
}
NUMBER_OF |= {layout: number for number, layout in LAYOUT_OF.items()}
FORMAT_OF: dict[int, torch.memory_format] = dict(  # c10/core/MemoryFormat.h
    enumerate(
        (
            torch.contiguous_format,
            torch.preserve_format,
            torch.channels_last,
            torch.channels_last_3d,
        )
    )
)


@contextmanager
def for_real() -> Iterator[None]:
    """Runs what is inside without torch.export recording it."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


def dtype_of(number: Any) -> Any:
    return DTYPE_OF[number] if isinstance(number, int) else number


def tensor_of(
    data: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: Any = False,
    *,
    may_be_constant: bool = True,
) -> Tensor:
    """``torch.tensor``; of numbers that are symbols too. Inside a branch it may be no constant:
    ``torch.export.save`` takes none there."""
    dtype = dtype_of(dtype)
    if may_be_constant and not _has_symbols(data):
        return torch.tensor(data, dtype=dtype, device=device, requires_grad=bool(requires_grad))
    if dtype is None:
        with for_real():
            dtype = torch.tensor(pytree.tree_map(lambda x: _LIKE.get(type(x), x), data)).dtype
    if not isinstance(data, list):
        return torch.scalar_tensor(data, dtype=dtype, device=device)
    if not data:
        return torch.empty(0, dtype=dtype, device=device)
    each = (tensor_of(x, dtype, device, may_be_constant=may_be_constant) for x in data)
    return torch.stack(list(each))


def _has_symbols(data: Any) -> bool:
    if isinstance(data, list):
        return any(_has_symbols(each) for each in data)
    return isinstance(data, SYMBOLS)


def _to(x: Tensor, dtype: Any, device: Any, non_blocking: bool, copy: bool) -> Tensor:
    if not copy and dtype_of(dtype) in (None, x.dtype) and device in (None, x.device):
        check_kind(x)
        return x  # as in eager
    return x.to(device=device, dtype=dtype_of(dtype), non_blocking=non_blocking, copy=copy)


def _to_other(x: Tensor, non_blocking: bool, copy: bool) -> Tensor:
    return x.to(non_blocking=non_blocking, copy=copy)


def _int(x: Any) -> Any:
    return _torch.sym_int(x) if isinstance(x, SYMBOLS) else int(x)


def _float(x: Any) -> Any:
    return _torch.sym_float(x) if isinstance(x, (SymInt, SymFloat)) else float(x)


def _bool(x: Any) -> Any:
    if isinstance(x, SymBool):
        return x
    return x != 0 if isinstance(x, SYMBOLS) else bool(x)


def fixed(x: Any) -> Any:
    """What a text or a key is made of has to be known; torch.export guards that it is so."""
    if isinstance(x, SymInt):
        return int(x)
    if isinstance(x, SymFloat):
        return float(x)
    return bool(x) if isinstance(x, SymBool) else x


def _math(name: str) -> Callable[..., Any]:
    plain = getattr(math, name)
    symbolic = getattr(torch, f"_sym_{name}", plain)

    def run(x: Any) -> Any:
        return symbolic(x) if isinstance(x, SYMBOLS) else plain(x)

    return run


def _not(x: Any) -> Any:
    return _torch.sym_not(x) if isinstance(x, SymBool) else not x


def _equal(a: Any, b: Any) -> Any:
    """Lists of sizes too, without asking of those that are symbols."""
    if not (_has_symbols(a) or _has_symbols(b)) or not isinstance(a, list):
        return a == b
    result: Any = len(a) == len(b)
    for x, y in zip(a, b, strict=False):
        same = _equal(x, y)
        if result is False or same is False:
            return False
        result = same if result is True else result if same is True else result & same
    return result


def _min(*values: Any) -> Any:
    given = values[0] if len(values) == 1 else values
    if len(values) == 2 and isinstance(values[0], list):
        return min(values)
    result = given[0]
    for each in given[1:]:
        result = _torch.sym_min(result, each) if _either(result, each) else min(result, each)
    return result


def _max(*values: Any) -> Any:
    given = values[0] if len(values) == 1 else values
    if len(values) == 2 and isinstance(values[0], list):
        return max(values)
    result = given[0]
    for each in given[1:]:
        result = _torch.sym_max(result, each) if _either(result, each) else max(result, each)
    return result


def _either(a: Any, b: Any) -> bool:
    return isinstance(a, SYMBOLS) or isinstance(b, SYMBOLS)


def _sum(values: list[Any]) -> Any:
    return sum(values)


def _round(x: Any, digits: int | None = None) -> Any:
    return float(round(x)) if digits is None else round(x, digits)


def _percent_format(text: str, *values: Any) -> str:
    given = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
    return text % tuple(map(fixed, given))


def _getitem(container: Any, index: Any) -> Any:
    plain = isinstance(container, (dict, str))
    return container[fixed(index) if plain else operator.index(index)]


def _set_item(container: Any, index: Any, value: Any) -> Any:
    container[fixed(index)] = value
    return container


def _delete(container: Any, index: Any) -> None:
    del container[fixed(index)]


def _append(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _insert(values: list[Any], index: int, value: Any) -> None:
    values.insert(index, value)


def _slice(values: Any, start: Any, end: Any, step: int) -> Any:
    return values[start:end:step]


def _sort(values: list[Any], reverse: bool = False) -> None:
    values.sort(reverse=reverse)


def _add_in_place(values: Any, more: Any) -> Any:
    values += more
    return values


def _mul_in_place(values: Any, times: int) -> Any:
    values *= times
    return values


def _range_length(low: Any, high: Any, step: Any) -> Any:
    """How often ``range(low, high, step)`` runs, without asking which is larger where both are
    symbols of sizes: ``range(n)`` with a size n runs n times."""
    if step == 0:
        raise ValueError("range() arg 3 must not be zero")
    if step > 0:
        if not _either(low, high):
            return len(range(low, high, step))
        return _max(0, (high - low + step - 1) // step)
    return _max(0, (low - high - step - 1) // -step)


def _pop_dict(container: dict[Any, Any], key: Any, *default: Any) -> Any:
    return container.pop(key, *default)


def _get(container: Mapping[Any, Any], key: Any, default: Any = None) -> Any:
    return container.get(fixed(key), default)


def _contains(container: Any, value: Any) -> bool:
    is_key = isinstance(container, dict)
    return operator.contains(container, fixed(value) if is_key else value)


def _device(text: Any, index: Any = None) -> torch.device:
    return torch.device(text) if index is None else torch.device(text, index)


def _dict(pairs: Any = ()) -> dict[Any, Any]:
    return dict(pairs)


def _slice_indices(total: int, *bounds: Any) -> Any:
    return tuple(slice(*bounds).indices(total))


def _nothing(*_: Any) -> None:
    return None


def _same(x: Any, *_: Any) -> Any:
    return x


def _unwrapped(x: Any) -> Any:
    if x is None:
        raise RuntimeError("Unwrapping null optional")
    return x


# By an operator's full name.
OF_TENSORS: dict[str, Callable[..., Any]] = {
    # Questions.
    "aten::size": lambda x: list(x.shape),
    "aten::size.int": lambda x, dim: x.shape[dim],
    "aten::sym_size.int": lambda x, dim: x.shape[dim],
    "aten::len.Tensor": lambda x: x.shape[0],
    "aten::dim": lambda x: x.dim(),
    "aten::numel": lambda x: x.numel(),
    "aten::stride": lambda x: list(x.stride()),
    "aten::stride.int": lambda x, dim: x.stride(dim),
    "aten::storage_offset": lambda x: x.storage_offset(),
    "aten::element_size": lambda x: x.element_size(),
    "aten::is_contiguous": lambda x: x.is_contiguous(),
    "aten::is_contiguous.memory_format": lambda x, f: x.is_contiguous(memory_format=FORMAT_OF[f]),
    "aten::is_floating_point": lambda x: x.is_floating_point(),
    "aten::is_complex": lambda x: x.is_complex(),
    "aten::is_signed": lambda x: x.is_signed(),
    "aten::is_neg": lambda x: x.is_neg(),
    "aten::is_conj": lambda x: x.is_conj(),
    "aten::is_leaf": lambda x: x.is_leaf,
    "aten::is_same_size": lambda x, y: list(x.shape) == list(y.shape),
    "aten::get_device": lambda x: x.get_device(),
    "aten::requires_grad_": lambda x, requires_grad: x.requires_grad_(requires_grad),
    "prim::dtype": lambda x: NUMBER_OF[x.dtype],
    "prim::device": lambda x: x.device,
    "prim::layout": lambda x: NUMBER_OF[x.layout],
    "prim::shape": lambda x: list(x.shape),
    "prim::requires_grad": lambda x: x.requires_grad,
    "prim::is_cuda": lambda x: x.is_cuda,
    "prim::is_cpu": lambda x: x.is_cpu,
    "prim::is_xla": lambda x: x.is_xla,
    "prim::is_xpu": lambda x: x.is_xpu,
    "prim::is_ipu": lambda x: x.is_ipu,
    "prim::is_hpu": lambda x: x.device.type == "hpu",
    "prim::is_mps": lambda x: x.is_mps,
    "prim::is_vulkan": lambda x: x.is_vulkan,
    "prim::is_maia": lambda x: x.is_maia,
    "prim::is_sparse": lambda x: x.is_sparse,
    "prim::is_sparse_csr": lambda x: x.is_sparse_csr,
    "prim::is_mkldnn": lambda x: x.is_mkldnn,
    "prim::is_mtia": lambda x: x.is_mtia,
    "prim::is_quantized": lambda x: x.is_quantized,
    "prim::is_meta": lambda x: x.device.type == "meta",
    "prim::is_nested": lambda x: x.is_nested,
    "prim::ndim": lambda x: x.dim(),
    "prim::itemsize": lambda x: x.element_size(),
    "prim::nbytes": lambda x: x.numel() * x.element_size(),
    "prim::data": lambda x: x.detach(),
    "prim::type": lambda d: d.type,
    "prim::index": lambda d: d.index,
    # Other spellings of PyTorch's operators.
    "aten::to.prim_Device": lambda x, device, dtype, non_blocking, copy: _to(
        x, dtype, device, non_blocking, copy
    ),
    "aten::to.prim_dtype": lambda x, dtype, non_blocking, copy: _to(
        x, dtype, None, non_blocking, copy
    ),
    "aten::to.prim_other": _to_other,
    "aten::cuda": lambda x: x.cuda(),
    "aten::cpu": lambda x: x.cpu(),
    "aten::tensor": tensor_of,
    "aten::tensor.int": tensor_of,
    "aten::tensor.float": tensor_of,
    "aten::tensor.bool": tensor_of,
    "aten::tensor.complex": tensor_of,
    "aten::as_tensor": lambda data, dtype, device: (
        torch.as_tensor(data, dtype=dtype_of(dtype), device=device)
        if isinstance(data, Tensor)
        else tensor_of(data, dtype, device)
    ),
    "aten::as_tensor.list": tensor_of,
    "aten::as_tensor.int": tensor_of,
    "aten::as_tensor.float": tensor_of,
    "aten::as_tensor.bool": tensor_of,
    "aten::as_tensor.complex": tensor_of,
}


@dataclass(frozen=True)
class Quotient:
    """What a true division of whole numbers gives, until it is rounded."""

    above: Any
    below: int


MOST_EXACT = 2**24  # whole numbers up to here, divided by whole ones, are rounded right in float32


def _of_whole(compute: Callable[..., Any]) -> Callable[..., Any]:
    def run(*numbers: Any) -> Any:
        whole = all(type(x) in (int, SymInt) for x in numbers)
        return compute(*numbers) if whole else None

    return run


def _floor_divide(a: Any, b: Any) -> Any:
    return None if type(b) is int and b == 0 else a // b


def _remainder(a: Any, b: Any) -> Any:
    return None if type(b) is int and b == 0 else a - b * (a // b)


def _divide(a: Any, b: Any, mode: str | None = None) -> Any:
    if mode == "floor":
        return _of_whole(_floor_divide)(a, b)
    is_known = mode is None and type(a) in (int, SymInt) and type(b) is int and b > 0
    return Quotient(a, b) if is_known else None


def _ceil(a: Any) -> Any:
    return -(-a.above // a.below) if isinstance(a, Quotient) else a


def _floor(a: Any) -> Any:
    return a.above // a.below if isinstance(a, Quotient) else a


def _clamp(a: Any, least: Any = None, most: Any = None) -> Any:
    if any(type(x) not in (int, SymInt, type(None)) for x in (a, least, most)) or a is None:
        return None
    a = a if least is None else _max(a, least)
    return a if most is None else _min(a, most)


# By an operator's name, on whole numbers that are tensors, of floats too: the number of the result,
# which is None where it is not known.
OF_WHOLE_NUMBERS: dict[str, Callable[..., Any]] = {
    "aten::add": _of_whole(lambda a, b, alpha: a + alpha * b),
    "aten::sub": _of_whole(lambda a, b, alpha: a - alpha * b),
    "aten::rsub": _of_whole(lambda a, b, alpha: b - alpha * a),
    "aten::mul": _of_whole(operator.mul),
    "aten::neg": _of_whole(operator.neg),
    "aten::floor_divide": _of_whole(_floor_divide),
    "aten::div": _divide,
    "aten::remainder": _of_whole(_remainder),
    "aten::minimum": _of_whole(_min),
    "aten::maximum": _of_whole(_max),
    "aten::ceil": _ceil,
    "aten::floor": _floor,
    "aten::clamp": _clamp,
    "aten::clamp_min": _clamp,
    "aten::clamp_max": lambda a, most: _clamp(a, None, most),
    "aten::to": lambda a, *_: a,
    "aten::detach": lambda a: a,
    "aten::clone": lambda a, *_: a,
}

# By an operator's full name, or its name alone, where neither operands nor results are tensors; and
# of what has no schema.
PLAIN: dict[str, Callable[..., Any]] = {
    "aten::is_autocast_enabled": lambda *_: False,
    "aten::is_autocast_cpu_enabled": lambda: False,
    "aten::set_grad_enabled": lambda on: torch._C._set_grad_enabled(on),
    "aten::is_scripting": lambda: True,
    "aten::is_tracing": lambda: False,
    "aten::get_autocast_cpu_dtype": lambda: NUMBER_OF[torch.get_autocast_dtype("cpu")],
    "aten::get_autocast_gpu_dtype": lambda: NUMBER_OF[torch.get_autocast_dtype("cuda")],
    "aten::get_autocast_dtype": lambda device: NUMBER_OF[torch.get_autocast_dtype(device)],
    "aten::wait": _same,
    "aten::warn": _nothing,
    "aten::warnings": _nothing,
    "prim::Print": _nothing,
    "prim::unchecked_cast": _same,
    "prim::unchecked_unwrap_optional": _same,
    "aten::_unwrap_optional": _unwrapped,
    # Numbers.
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": operator.mul,
    "aten::div": operator.truediv,
    "aten::truediv": operator.truediv,
    "aten::floordiv": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::pow": operator.pow,
    "aten::pow.int": lambda a, b: float(a) ** b,
    "aten::neg": operator.neg,
    "aten::eq": _equal,
    "aten::ne": lambda a, b: _not(_equal(a, b)),
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__not__": _not,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__lshift__": operator.lshift,
    "aten::__rshift__": operator.rshift,
    "aten::bitwise_not": operator.invert,
    "aten::Int": _int,
    "aten::Float": _float,
    "aten::Bool": _bool,
    "aten::IntImplicit": _int,
    "aten::FloatImplicit": _float,
    "aten::ScalarImplicit": _same,
    "aten::ceil": _math("ceil"),
    "aten::floor": _math("floor"),
    "aten::round": _round,
    "aten::sqrt": _math("sqrt"),
    "aten::log": lambda x, *base: math.log(x, *base),
    "aten::log2": _math("log2"),
    "aten::exp": _math("exp"),
    "prim::min": _min,
    "prim::max": _max,
    "prim::abs": abs,
    "aten::sum": _sum,
    "aten::__range_length": _range_length,
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "prim::rangelist": lambda n: list(range(n)),
    "aten::str": lambda value: str(fixed(value)),
    "aten::format": lambda text, *values: text.format(*map(fixed, values)),
    "aten::percentFormat": _percent_format,
    "aten::device": _device,
    # Lists, dictionaries and texts.
    "aten::len": len,
    "aten::__getitem__": _getitem,
    "aten::_set_item": _set_item,
    "aten::Delete": _delete,
    "aten::append": _append,
    "aten::insert": _insert,
    "aten::extend": lambda values, more: values.extend(more),
    "aten::clear": lambda values: values.clear(),
    "aten::pop": lambda values, *where: values.pop(*where),
    "aten::remove": lambda values, value: values.remove(value),
    "aten::reverse": lambda values: values.reverse(),
    "aten::copy": lambda values: values.copy(),
    "aten::list": list,
    "aten::slice": _slice,
    "aten::sort": _sort,
    "aten::sorted": lambda values, reverse=False: sorted(values, reverse=reverse),
    "aten::add_": _add_in_place,
    "aten::mul_": _mul_in_place,
    "aten::__contains__": _contains,
    "aten::keys": lambda values: list(values.keys()),
    "aten::values": lambda values: list(values.values()),
    "aten::items": lambda values: list(values.items()),
    "aten::get": _get,
    "aten::setdefault": lambda values, key, default: values.setdefault(fixed(key), default),
    "aten::popitem": lambda values: values.popitem(),
    "aten::update": lambda values, more: values.update(more),
    "aten::dict": _dict,
    "aten::slice_indices_adjust": _slice_indices,
    "prim::StringIndex": operator.getitem,
    "prim::EnumName": operator.attrgetter("name"),
    "prim::EnumValue": operator.attrgetter("value"),
    "prim::TupleIndex": operator.getitem,
}
