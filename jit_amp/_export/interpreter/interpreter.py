"""A TorchScript graph, run operator by operator in Python while torch.export looks on.

What the graph does with tensors is recorded as PyTorch's own operators. What it does with
numbers, lists, dictionaries and objects is done here and now; sizes are symbols. A branch on a
number takes one side, a loop is unrolled. A branch on the value of a tensor becomes ``torch.cond``.
What cannot be said so is refused at the line of the program (``csrc/core/diagnostics.inc``, 5xx).

The graph is that of ``csrc/runtime/export.h``: flat, lowered, not frozen. What the dialect's
operators mean stands in ``csrc/core/dialect.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import SymInt, Tensor
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import FloorDiv

from jit_amp import _C
from jit_amp._export.checked_inputs import check_kind
from jit_amp._export.interpreter.aliases import Parted
from jit_amp._export.interpreter.attributes import Attributes
from jit_amp._export.interpreter.decided import Decided, Own
from jit_amp._export.interpreter.higher_order import WholeBlocks
from jit_amp._export.interpreter.holder import Holder, graph_called
from jit_amp._export.interpreter.known_values import KnownValues
from jit_amp._export.interpreter.one_sided import OneWay, has_floats
from jit_amp._export.interpreter.plain_operators import (
    OF_TENSORS,
    PLAIN,
)
from jit_amp._export.interpreter.ranks import Ranks
from jit_amp._export.interpreter.steps import Code, Kernel, Step, plainly, runner
from jit_amp._export.interpreter.trail import Trail
from jit_amp._export.interpreter.values import (
    Frame,
    Outside,
    Raised,
    Submodule,
    TooLong,
    Truth,
    outside,
)
from jit_amp._export.sizes.small import (
    COMPARISONS,
    QUESTIONS,
    UNSEEN,
    asks_of_small_sizes,
    depends_on_small_sizes,
    env_of,
)

# Of a size's expression, where sizes may be fixed instead. PyTorch takes minutes to reason about
# products of sizes that were divided often, such as the number of windows in a Swin Transformer.
LONGEST = 150  # parts
DIVISIONS = 4  # in a product
# What makes the function that runs a step, by the kind of its node.
Implementation = Callable[["Interpreter", Step, list[Code]], Kernel]
IMPLEMENTATIONS: dict[str, Implementation] = {}


def implements(*kinds: str) -> Callable[[Implementation], Implementation]:
    """Registers what runs these operators, in place of PyTorch's own kernels."""

    def register(implementation: Implementation) -> Implementation:
        IMPLEMENTATIONS.update(dict.fromkeys(kinds, implementation))
        return implementation

    return register


class Interpreter:
    """Runs the graph. ``holder`` has the tensors of the module and of the graph. Where it is
    bounded, sizes do not become expressions of any length: TooLong is raised. ``found`` are values
    of attributes, by path, that the program finds in place of the module's.

    Attributes:
        asks: the program has compared sizes, and for a size of 0 or 1 the answer is another: as
            depends_on_small_sizes has it.
        asks_layout: the program has asked how a tensor lies in memory.
        records_gradients: the program has asked whether gradients are recorded, they were, and
            something depends on that.
        own: numbers that were replaced by symbols of their own, by the expressions they had.
        attributes, known, parted, ranks, trail, whole: of the run, each with its own file.
    """

    def __init__(
        self,
        graph: torch._C.Graph,
        holder: Holder,
        is_bounded: bool = False,
        found: Mapping[str, Any] | None = None,
        decided: Decided | None = None,
    ) -> None:
        self.graph, self.holder, self.is_bounded = graph, holder, is_bounded
        self.found = found or {}
        self.asks = 0
        self.records_gradients = False
        self.asks_layout = False
        self.decided = decided or Decided()
        self.has_cudnn = torch.backends.cudnn.enabled  # torch.export switches it off to look on
        self._graphs = [graph]  # nodes belong to their graph, and do not keep it
        self._last: Step | None = None
        self._steps = 0
        self._begin(())
        self.code = self._compiled(graph, lambda value: int(value.unique()))

    def _begin(self, given: Iterable[Any]) -> None:
        tensors = [x for x in given if isinstance(x, Tensor)]

        def lasting() -> Iterable[Tensor]:
            return (*self.holder.root.parameters(), *self.holder.root.buffers(), *tensors)

        self._unchecked = {id(x) for x in lasting()} - {id(x) for x in tensors}
        self.attributes = Attributes(self.holder, self.found, self.refuse)
        self.known = KnownValues()
        self.ranks = Ranks()
        self.trail = Trail()
        self.parted = Parted(lasting, self.refuse)
        self.whole = WholeBlocks(self)
        self._guards: list[Any] = []
        self.remainders: dict[Any, tuple[Any, int]] = {}
        self.own: dict[Any, Own] = {}

    def __call__(self, arguments: Sequence[Any]) -> Any:
        self._begin(pytree.tree_leaves(arguments))
        self.holder.begin()
        env = env_of(arguments)
        self._guards = [] if env is None else env.guards  # the list itself, which grows
        values = [Submodule("")] if self.holder.module is not None else []
        frame: Frame = dict(zip(self.code.parameters, [*values, *arguments], strict=True))
        results = self.run(self.code, frame)
        self.attributes.end(self.parted.wrote)
        self.attributes.use(pytree.tree_leaves(results))
        self.parted.watch(results, ())
        try:
            result = outside(results[0] if len(results) == 1 else tuple(results), self.forced)
        except TypeError as error:
            name, what = error.args
            _C.refuse_export(self.graph.return_node(), 505, [name, f", {what}, as a result"])
        return self.holder.end(result)

    # From nodes to steps.

    def _compiled(self, block: Any, number: Callable[[Any], int]) -> Code:
        """``number`` tells which value of the program a value of the block's graph is."""
        code = Code([number(value) for value in block.inputs()])
        for node in block.nodes():
            blocks = [self._compiled(inner, number) for inner in node.blocks()]
            blocks += self._called(node, number)
            if blocks:
                code.blocks[len(code.steps)] = blocks
            code.steps.append(self._step(node, blocks, number))
        code.results = [number(value) for value in block.outputs()]
        return code

    def _called(self, node: torch._C.Node, number: Callable[[Any], int]) -> list[Code]:
        """What stands in a graph of its own, as a block: of a task, of a method that no call shows,
        of an operator in its scope. Inputs that it is not given are parameters of the block."""
        graph = graph_called(node)
        if graph is None:
            return []
        self._graphs.append(graph)
        start = len(self._graphs) * 10**9  # values of each graph are counted from 0
        skipped = 2 * len(node.ss("devices")) if node.hasAttribute("devices") else 0
        inputs = [value.unique() for value in graph.inputs()]
        given = [number(value) for value in node.inputs()][skipped:]
        known = dict(zip(inputs, given, strict=False))
        code = self._compiled(graph, lambda x: known.get(x.unique(), start + x.unique()))
        code.parameters = [start + each for each in inputs if each not in known]
        return [code]

    def _step(self, node: torch._C.Node, blocks: list[Code], number: Callable[[Any], int]) -> Step:
        step = Step(
            node,
            _nothing,
            [number(value) for value in node.inputs()],
            [number(value) for value in node.outputs()],
            trace=self.holder.trace_of(node),
            number=self._steps,
        )
        self._steps += 1
        if special := IMPLEMENTATIONS.get(node.kind()):
            step.run = special(self, step, blocks)
        else:
            step.run = self.operator(step)
        return step

    def operator(self, step: Step) -> Kernel:
        node = step.node
        text = node.schema()
        if text == "(no schema)":
            meaning = OF_TENSORS.get(node.kind()) or PLAIN.get(node.kind())
            return plainly(meaning) if meaning else self.unknown(step)
        try:
            run, step.written, step.is_pure = runner(text)
        except LookupError:  # a library that registers it may be loaded later
            return self.unknown(step)
        if compare := COMPARISONS.get(node.kind()):
            return self._comparison(run, compare)
        return self._question(run, node.kind()) if node.kind() in QUESTIONS else run

    def _comparison(self, plain: Kernel, compare: Callable[[Any, Any], bool]) -> Kernel:
        def run(frame: Frame, a: Any, b: Any) -> Any:
            self.asks = max(self.asks, depends_on_small_sizes(compare, a, b))
            return plain(frame, a, b)

        return run

    def _question(self, plain: Kernel, kind: str) -> Kernel:
        def run(frame: Frame, *operands: Any) -> Any:
            self.asks = max(self.asks, asks_of_small_sizes(kind, operands))
            return plain(frame, *operands)

        return run

    def unknown(self, step: Step, reason: str = "", name: str = "") -> Kernel:
        def run(*_: Any) -> NoReturn:
            self.refuse(step, 505, [name or step.node.kind(), reason])

        return run

    # Running.

    def run(self, code: Code, frame: Frame, fixed: bool = False) -> list[Any]:
        """``fixed``: what a branch reads of the module is in the frame."""
        for step in code.steps:
            if fixed and step.is_fixed and step.outputs[0] in frame:
                continue
            operands = [frame[number] for number in step.inputs]
            if not step.takes_truth and any(isinstance(each, Truth) for each in operands):
                operands = [
                    self.forced(each) if isinstance(each, Truth) else each for each in operands
                ]
            if step.trace:
                self._last = step
                fx_traceback.set_stack_trace([step.trace])
            if self.parted or step.writes:
                self.parted.watch(operands, [operands[i] for i in step.written])
            try:
                self.asks = max(self.asks, self.ranks.asks(step, operands))
                known = len(self._guards)
                made = self._of_its_own(step, step.run(frame, *operands))
                self.trail.add(step.number, made)
                self.ranks.watch(step, operands, made)
                if guards := self._guards[known:]:
                    matters = self.ranks.matter(step, operands, made, guards)
                    self.asks = UNSEEN if matters else self.asks
                    self._guards[known:] = [
                        guard
                        for guard in guards
                        if not self.ranks.is_needless(step, operands, made, guard)
                    ]
                self.known.learn(step, operands, made)
                self.attributes.watch(step, operands, made)
                if self.is_bounded and isinstance(made, (SymInt, Tensor, list)):
                    _check_length(made)
            except (_C.AutocastError, Raised, TooLong, MemoryError, Outside, OneWay):
                raise
            except Exception as error:
                self._failed(step, error)
            if len(step.outputs) == 1:
                frame[step.outputs[0]] = made
            elif step.outputs:
                frame.update(zip(step.outputs, made, strict=True))
        return [frame[number] for number in code.results]

    def _of_its_own(self, step: Step, made: Any) -> Any:
        """A number that comes from values of tensors by way of floats, as sizes that detectors
        scale pictures to, is one of its own: of such expressions torch.export can decide nothing.
        A size that a tensor has stays its size."""
        if not isinstance(made, SymInt) or self.whole.depth or step.node.kind() == "aten::size":
            return made
        symbols = free_unbacked_symbols(made)
        if not symbols or not has_floats(made):
            return made
        expression = made.node.expr
        if expression not in self.own:
            bounds: Any = made.node.shape_env.bound_sympy(expression)
            least, most = (int(x) if x.is_Integer else None for x in (bounds.lower, bounds.upper))
            if expression.free_symbols - symbols:  # a call may have smaller sizes than are assumed
                least = most = None
            if least is not None and least == most:
                return made
            key = step.number, sum(each.key[0] == step.number for each in self.own.values())
            if key in self.decided.some:
                least = max(least or 1, 1)
            own: Any = torch.ops.aten.scalar_tensor.default(made, dtype=torch.int64).item()
            check: Any = torch._check
            if least is not None:
                check(own >= least)
            if most is not None:
                check(own <= most)
            self.own[expression] = Own(own, key, self._last.trace if self._last else "")
        return self.own[expression].number

    def refuse(self, step: Step, code: int, arguments: list[str]) -> NoReturn:
        """At the step's line; or at the last one before it that a user wrote."""
        shown = self._last if self._last and not step.trace else step
        _C.refuse_export(shown.node, code, arguments)

    def undecided(self, error: BaseException) -> set[tuple[int, int]]:
        """The keys of the numbers of their own that torch.export could not decide about."""
        cause: Any = error
        while cause and not isinstance(cause, GuardOnDataDependentSymNode):
            cause = cause.__cause__ or cause.__context__
        asked = cause.cond.free_symbols if cause else ()
        return {own.key for own in self.own.values() if own.number.node.expr in asked}

    def _failed(self, step: Step, error: Exception) -> NoReturn:
        said = str(error).strip().splitlines()
        first = said[0] if said else type(error).__name__
        name = type(error).__name__
        if isinstance(error, GuardOnDataDependentSymNode):
            self.refuse(
                step,
                504,
                ["a decision that depends on the values of tensors, while the program is exported"],
            )
        # An operator that takes numbers alone.
        is_of_symbols = "but instead found type 'Sym" in str(error)
        if not isinstance(error, _OF_THE_PROGRAM) or name in _UNSUPPORTED or is_of_symbols:
            self.refuse(step, 505, [step.node.kind(), f" ({name}: {first})"])
        is_told = hasattr(error, "__notes__") or not hasattr(error, "add_note")  # Python 3.10
        if step.trace and not is_told:
            error.add_note(f"while the program is exported, at\n{step.trace}")
        raise error

    def forced(self, truth: Truth) -> Any:
        """As a number: a symbol that torch.export makes for a value."""
        if not isinstance(truth.of, Tensor):
            return truth.of
        value = truth.of.item()  # of a bool it is a symbol without a `!=`
        return value if truth.of.dtype is torch.bool else value != 0

    def check_dtype(self, x: Tensor) -> None:
        """Has the program check the dtype of a weight or buffer, on which a decision depends."""
        if id(x) in self._unchecked:
            self._unchecked.remove(id(x))
            check_kind(x)


# What an operator raises for operands that it does not take. Other errors, such as a TypeError of
# PyTorch's code for tensors without values, say that it cannot be exported.
_OF_THE_PROGRAM = (RuntimeError, ValueError, IndexError, KeyError)
_UNSUPPORTED = (
    "NotImplementedError",
    "UnsupportedOperatorException",
    "UnsupportedFakeTensorException",
    "DynamicOutputShapeException",
    "DataDependentOutputException",
    "UnsupportedMutationAliasingException",
    "PendingUnbackedSymbolNotFound",
    "RecursionError",
)


def _check_length(made: Any) -> None:
    sizes = made.shape if isinstance(made, Tensor) else made if isinstance(made, list) else [made]
    for size in sizes:
        if isinstance(size, SymInt):
            expression = size.node.expr
            if expression.free_symbols <= free_unbacked_symbols(size):
                continue  # fixing the arguments' sizes would not make it shorter
            parts = 0
            waiting = [expression]
            while waiting and parts <= LONGEST:
                waiting.extend(waiting.pop().args)
                parts += 1
            if parts > LONGEST or (expression.is_Mul and expression.count(FloorDiv) > DIVISIONS):
                raise TooLong("a size becomes an expression too long to reason about")


def _nothing(*_: Any) -> None:
    return None
