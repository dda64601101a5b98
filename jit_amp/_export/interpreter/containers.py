"""Constants, attributes and containers of a TorchScript program, as the interpreter has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from jit_amp._export.interpreter.attributes import NO_BUFFER
from jit_amp._export.interpreter.interpreter import Interpreter, implements
from jit_amp._export.interpreter.plain_operators import fixed
from jit_amp._export.interpreter.steps import Code, Kernel, Step, runner
from jit_amp._export.interpreter.values import (
    UNINITIALIZED,
    Frame,
    Object,
    Outside,
    Submodule,
    is_of,
    own,
)


@implements("prim::Constant")
def _constant(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    node = step.node
    value = node.output().toIValue() if node.hasAttributes() else None
    step.is_fixed = True
    if isinstance(value, Tensor):
        name = interpreter.holder.hold(value, node.output().debugName())
        is_number = value.dim() == 0 and value.device.type == "cpu" and not value.is_complex()
        if is_number and not _is_written(node.output()):
            number = value.item()

            def run(*_: Any) -> Tensor:
                tensor = interpreter.holder.tensor(name)
                interpreter.known.is_number(tensor, number)
                return tensor

            return run
        return lambda *_: interpreter.holder.tensor(name)
    plain = own(value)
    if isinstance(plain, (list, dict)):
        return lambda *_: own(value)
    return lambda *_: plain


@implements("prim::GetAttr")
def _get_attr(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    name = step.node.s("name")
    step.is_fixed = True

    def run(_: Frame, owner: Any) -> Any:
        if isinstance(owner, Object):
            return owner.fields[name]
        if not isinstance(owner, Submodule):
            return own(getattr(owner, name))
        path = owner.child(name)
        if interpreter.holder.is_module(path):
            return Submodule(path)
        return interpreter.attributes.get(step, path)

    return run


@implements("prim::SetAttr")
def _set_attr(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    name = step.node.s("name")

    def run(_: Frame, owner: Any, value: Any) -> None:
        if isinstance(owner, Object):
            if owner.source is not None:  # of the module
                interpreter.refuse(step, 503, [name, NO_BUFFER])
            if owner.depth < interpreter.whole.depth:
                raise Outside("a side sets a field of an object that is there before")
            owner.fields[name] = value
            return
        interpreter.attributes.set(
            step, owner.child(name), value, is_inside=interpreter.whole.depth > 0
        )

    return run


@implements("prim::CreateObject")
def _create_object(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    kind: Any = step.node.output().type()
    return lambda *_: Object(kind.qualified_name(), depth=interpreter.whole.depth)


@implements("prim::ListConstruct")
def _list_construct(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return lambda _, *values: list(values)


@implements("prim::TupleConstruct")
def _tuple_construct(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return lambda _, *values: values


@implements("prim::DictConstruct")
def _dict_construct(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return lambda _, *values: dict(zip(map(fixed, values[::2]), values[1::2], strict=True))


@implements("prim::ListUnpack", "prim::TupleUnpack")
def _list_unpack(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    count = len(step.outputs)

    def run(_: Frame, values: Sequence[Any]) -> Any:
        if len(values) != count:
            raise ValueError(f"{len(values)} values where {count} are unpacked")
        return values[0] if count == 1 else values

    return run


@implements("prim::TupleSlice")
def _tuple_slice(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    begin, end = step.node.i("beg"), step.node.i("end")
    return lambda _, values: values[begin:end]


@implements("prim::Uninitialized")
def _uninitialized(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    return lambda *_: UNINITIALIZED


@implements("prim::isinstance")
def _isinstance(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    kinds = step.node.tys("types")

    def run(_: Frame, value: Any) -> bool:
        try:
            return any(is_of(value, kind) for kind in kinds)
        except LookupError:
            interpreter.refuse(step, 505, ["isinstance", " of such a type"])

    return run


def _is_written(value: torch._C.Value) -> bool:
    """Whether a step writes to the value, which is another one in the next call then."""
    for use in value.uses():
        text = use.user.schema()
        try:
            if text != "(no schema)" and use.offset in runner(text)[1]:
                return True
        except LookupError:  # not to be run
            continue
    return False
