"""Branches, loops, tasks and errors of a TorchScript program, as the interpreter runs them."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import SymInt
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from jit_amp._export.interpreter.interpreter import Interpreter, implements
from jit_amp._export.interpreter.steps import Code, Kernel, Step
from jit_amp._export.interpreter.values import (
    Frame,
    Raised,
    Truth,
)


@implements("prim::fork")
def _fork(interpreter: Interpreter, step: Step, blocks: list[Code]) -> Kernel:
    [code] = blocks

    def run(frame: Frame, *_: Any) -> Any:
        frame.update(dict.fromkeys(code.parameters))
        results = interpreter.run(code, frame)
        return results[0] if len(results) == 1 else tuple(results)

    return run


@implements("prim::Enter", "prim::Exit")
def _enter(interpreter: Interpreter, step: Step, blocks: list[Code]) -> Kernel:
    return _fork(interpreter, step, blocks) if blocks else interpreter.unknown(step)


@implements("prim::RaiseException")
def _raise_exception(interpreter: Interpreter, step: Step, _: list[Code]) -> Kernel:
    def run(_: Frame, message: Any, *kind: Any) -> NoReturn:
        where = f"\n{step.trace}" if step.trace else ""
        raise Raised(f"the program raises for these inputs: {message}{where}")

    return run


@implements("prim::Loop")
def _loop(interpreter: Interpreter, step: Step, blocks: list[Code]) -> Kernel:
    [body] = blocks
    step.takes_truth = True
    counter = _counter_of(step.node)

    def run(frame: Frame, most: Any, goes_on: Any, *carried: Any) -> Any:
        values = list(carried)
        turn = 0
        if isinstance(most, SymInt):
            most = _decided(interpreter, step, most, int)
        while turn < most:
            if isinstance(goes_on, Truth) and most >= WITHOUT_END and not counter:
                values = interpreter.whole.while_loop(step, frame, body, goes_on.of, values)
                break
            if not isinstance(goes_on, Truth) and not _decided(interpreter, step, goes_on, bool):
                break
            if turn == (MAX_TURNS if isinstance(goes_on, Truth) else MAX_STEPS):
                interpreter.refuse(step, 502, [])
            frame.update(zip(body.parameters, [turn, *values], strict=True))
            if isinstance(goes_on, Truth):
                goes_on, *values = interpreter.whole.turn(step, frame, goes_on.of, body, counter)
            else:
                goes_on, *values = interpreter.run(body, frame)
            turn += 1
        return values[0] if len(values) == 1 else values

    return run


def _decided(interpreter: Interpreter, step: Step, value: Any, kind: type) -> Any:
    """A number that a loop needs. A size becomes fixed by it."""
    try:
        return kind(value)
    except GuardOnDataDependentSymNode:
        interpreter.refuse(step, 502, [])


@implements("prim::If")
def _if(interpreter: Interpreter, step: Step, blocks: list[Code]) -> Kernel:
    step.takes_truth = True

    def run(frame: Frame, condition: Any) -> Any:
        if not isinstance(condition, Truth):
            try:
                taken = blocks[0] if condition else blocks[1]
            except GuardOnDataDependentSymNode:
                condition = Truth(condition)
        if isinstance(condition, Truth):
            values = interpreter.whole.branches(step, frame, condition.of, blocks)
        else:
            values = interpreter.run(taken, frame)
        return values[0] if len(values) == 1 else values

    return run


MAX_STEPS = 200_000  # of a loop whose end depends on what is known when exporting
MAX_TURNS = 1_000  # of a loop that may have ended before, where each turn is a branch
WITHOUT_END = 2**62  # turns: of a while loop


def _counter_of(loop: torch._C.Node) -> int:
    """Of a ``for`` with a ``break`` or ``return`` in it the compiler makes a ``while``, whose
    condition is that a number of its own is less than another, and a bool
    (torch/csrc/jit/frontend/exit_transforms.cpp). Which of the body's results the number is; else
    0."""
    [body] = loop.blocks()
    condition, *carried = body.outputs()
    if condition.node().kind() != "aten::__and__":
        return 0
    less = next(condition.node().inputs()).node()
    if less.kind() != "aten::lt":
        return 0
    counted = next(less.inputs()).unique()
    return next((i for i, x in enumerate(carried, 1) if x.unique() == counted), 0)
