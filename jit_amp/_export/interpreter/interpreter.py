"""A TorchScript graph, run operator by operator in Python while torch.export looks on.

What the graph does with tensors is recorded as PyTorch's own operators. What it does with
numbers, lists, dictionaries and objects is done here and now; sizes are symbols. A branch on a
number takes one side, a loop is unrolled. A branch on the value of a tensor becomes ``torch.cond``.
What cannot be said so is refused at the line of the program (``csrc/core/diagnostics.inc``, 5xx).

The graph is that of ``csrc/runtime/export.h``: flat, lowered, not frozen. What the dialect's
operators mean stands in ``csrc/core/dialect.h``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import SymBool, SymInt, Tensor
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import FloorDiv

from jit_amp import _C
from jit_amp._export.checked_inputs import check_kind
from jit_amp._export.interpreter.aliases import Parted
from jit_amp._export.interpreter.attributes import NO_BUFFER, Attributes
from jit_amp._export.interpreter.higher_order import WholeBlocks
from jit_amp._export.interpreter.holder import Holder, graph_called
from jit_amp._export.interpreter.known_values import KnownValues
from jit_amp._export.interpreter.meanings import (
    DTYPE_OF,
    NUMBER_OF,
    OF_TENSORS,
    PLAIN,
    fixed,
    tensor_of,
)
from jit_amp._export.interpreter.one_sided import OneWay, has_floats
from jit_amp._export.interpreter.ranks import Ranks
from jit_amp._export.interpreter.steps import Code, Step, plainly, runner
from jit_amp._export.interpreter.trail import Trail
from jit_amp._export.interpreter.values import (
    UNINITIALIZED,
    Frame,
    Object,
    Outside,
    Raised,
    Submodule,
    TooLong,
    Truth,
    as_condition,
    is_of,
    outside,
    own,
)
from jit_amp._export.sizes.small import (
    COMPARISONS,
    QUESTIONS,
    UNSEEN,
    asks_of_small_sizes,
    depends_on_small_sizes,
    env_of,
    told,
)

# Of a size's expression, where sizes may be fixed instead. PyTorch takes minutes to reason about
# products of sizes that were divided often, such as the number of windows in a Swin Transformer.
LONGEST = 150  # parts
DIVISIONS = 4  # in a product
MAX_STEPS = 200_000  # of a loop whose end depends on what is known when exporting
MAX_TURNS = 1_000  # of a loop that may have ended before, where each turn is a branch
WITHOUT_END = 2**62  # turns: of a while loop


@dataclass(frozen=True)
class Decided:
    """What the program takes for granted, with a check, as it could not be exported otherwise."""

    one_way: Mapping[int, int] = field(default_factory=dict)
    """By a step's number, the side of a branch that it has alone."""
    some: frozenset[tuple[int, int]] = frozenset()
    """Which of the numbers of their own, by their keys, are at least 1."""


@dataclass(frozen=True)
class Own:
    """A number that was replaced by a symbol of its own."""

    number: SymInt
    key: tuple[int, int]
    """The step that made it, and how many that step had made before."""
    line: str


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
        self._remainders: dict[Any, tuple[Any, int]] = {}
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
        kind = node.kind()
        if special := getattr(self, "_" + kind.replace("::", "_"), None):
            step.run = special(step, blocks)
        else:
            step.run = self._operator(step)
        return step

    def _operator(self, step: Step) -> Callable[..., Any]:
        node = step.node
        text = node.schema()
        if text == "(no schema)":
            meaning = OF_TENSORS.get(node.kind()) or PLAIN.get(node.kind())
            return plainly(meaning) if meaning else self._unknown(step)
        try:
            run, step.written, step.is_pure = runner(text)
        except LookupError:  # a library that registers it may be loaded later
            return self._unknown(step)
        if compare := COMPARISONS.get(node.kind()):
            return self._comparison(run, compare)
        return self._question(run, node.kind()) if node.kind() in QUESTIONS else run

    def _comparison(
        self, plain: Callable[..., Any], compare: Callable[[Any, Any], bool]
    ) -> Callable[..., Any]:
        def run(frame: Frame, a: Any, b: Any) -> Any:
            self.asks = max(self.asks, depends_on_small_sizes(compare, a, b))
            return plain(frame, a, b)

        return run

    def _question(self, plain: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def run(frame: Frame, *operands: Any) -> Any:
            self.asks = max(self.asks, asks_of_small_sizes(kind, operands))
            return plain(frame, *operands)

        return run

    def _unknown(self, step: Step, reason: str = "", name: str = "") -> Callable[..., Any]:
        def run(*_: Any) -> NoReturn:
            self.refuse(step, 505, [name or step.node.kind(), reason])

        return run

    def _aten_grad(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """An exported program has no autograd of its own: torch.export raises when all is traced,
        and names no line."""
        return self._unknown(step)

    _aten_backward = _aten_grad

    def _prim_PythonOp(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        node: Any = step.node
        reason = ", which is Python that TorchScript does not compile (@torch.jit.ignore)"
        return self._unknown(step, reason, f"{node.pyname()}()")

    def _prim_ModuleContainerIndex(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """Which module is chosen is known by then, and what its method is has not been compiled."""
        return self._unknown(step)

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

    def _check_kind(self, x: Tensor) -> None:
        """Has the program check the dtype of a weight or buffer, on which a decision depends."""
        if id(x) in self._unchecked:
            self._unchecked.remove(id(x))
            check_kind(x)

    # Constants and attributes.

    def _prim_Constant(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        node = step.node
        value = node.output().toIValue() if node.hasAttributes() else None
        step.is_fixed = True
        if isinstance(value, Tensor):
            name = self.holder.hold(value, node.output().debugName())
            is_number = value.dim() == 0 and value.device.type == "cpu" and not value.is_complex()
            if is_number and not _is_written(node.output()):
                number = value.item()

                def run(*_: Any) -> Tensor:
                    tensor = self.holder.tensor(name)
                    self.known.is_number(tensor, number)
                    return tensor

                return run
            return lambda *_: self.holder.tensor(name)
        plain = own(value)
        if isinstance(plain, (list, dict)):
            return lambda *_: own(value)
        return lambda *_: plain

    def _prim_GetAttr(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        name = step.node.s("name")
        step.is_fixed = True

        def run(_: Frame, owner: Any) -> Any:
            if isinstance(owner, Object):
                return owner.fields[name]
            if not isinstance(owner, Submodule):
                return own(getattr(owner, name))
            path = owner.child(name)
            if self.holder.is_module(path):
                return Submodule(path)
            return self.attributes.get(step, path)

        return run

    def _prim_SetAttr(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        name = step.node.s("name")

        def run(_: Frame, owner: Any, value: Any) -> None:
            if isinstance(owner, Object):
                if owner.source is not None:  # of the module
                    self.refuse(step, 503, [name, NO_BUFFER])
                if owner.depth < self.whole.depth:
                    raise Outside("a side sets a field of an object that is there before")
                owner.fields[name] = value
                return
            self.attributes.set(step, owner.child(name), value, is_inside=self.whole.depth > 0)

        return run

    def _prim_CreateObject(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        kind: Any = step.node.output().type()
        return lambda *_: Object(kind.qualified_name(), depth=self.whole.depth)

    # Containers.

    def _prim_ListConstruct(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda _, *values: list(values)

    def _prim_TupleConstruct(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda _, *values: values

    def _prim_DictConstruct(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda _, *values: dict(zip(map(fixed, values[::2]), values[1::2], strict=True))

    def _prim_ListUnpack(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        count = len(step.outputs)

        def run(_: Frame, values: Sequence[Any]) -> Any:
            if len(values) != count:
                raise ValueError(f"{len(values)} values where {count} are unpacked")
            return values[0] if count == 1 else values

        return run

    _prim_TupleUnpack = _prim_ListUnpack

    def _prim_TupleSlice(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        begin, end = step.node.i("beg"), step.node.i("end")
        return lambda _, values: values[begin:end]

    def _prim_Uninitialized(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return lambda *_: UNINITIALIZED

    def _prim_isinstance(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        kinds = step.node.tys("types")

        def run(_: Frame, value: Any) -> bool:
            try:
                return any(is_of(value, kind) for kind in kinds)
            except LookupError:
                self.refuse(step, 505, ["isinstance", " of such a type"])

        return run

    def _prim_tolist(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, x: Tensor, dim: Any, kind: Any) -> Any:
            if (number := self.known.number(x)) is not None:
                return number
            if (values := self.known.read(x, Tensor.tolist)) is not None:
                return values
            self.refuse(step, 504, ["the values of a tensor as a list"])

        return run

    # Numbers and tensors.

    def _aten_tensor(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        of_tensor = self._operator(step)

        def run(frame: Frame, data: Any, *options: Any) -> Tensor:
            if not isinstance(data, Tensor):
                return tensor_of(data, *options, may_be_constant=not self.whole.depth)
            made: Tensor = of_tensor(frame, data, *options)
            return made

        return run

    _aten_as_tensor = _aten_tensor

    def _prim_dtype(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        plain = self._operator(step)

        def run(frame: Frame, x: Tensor) -> Any:
            self._check_kind(x)
            return plain(frame, x)

        return run

    def _aten_slice(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """Where torch.export does not know whether a bound is negative, as that of a table which is
        cut around its middle, it takes the length for a number that only a run tells, and decides
        what follows without the example. It is guarded instead, as torch.export does by default."""
        plain = self._operator(step)

        def run(frame: Frame, x: Any, *bounds: Any) -> Any:
            if isinstance(x, Tensor):
                for bound in bounds[1:3]:
                    if isinstance(bound, SymInt) and not free_unbacked_symbols(bound):
                        bool(bound >= 0)
            return plain(frame, x, *bounds)

        return run

    def _aten_narrow(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """In a trace the start is a tensor."""
        plain = self._operator(step)

        def run(frame: Frame, x: Tensor, dim: int, start: Any, length: Any) -> Any:
            number = self.known.number(start) if isinstance(start, Tensor) else None
            if number is None:
                return plain(frame, x, dim, start, length)
            return torch.ops.aten.narrow.default(x, dim, number, length)

        return run

    def _prim_NumToTensor(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, number: Any) -> Tensor:
            made = tensor_of(number, may_be_constant=not self.whole.depth)
            self.known.is_number(made, number)
            return made

        return run

    def _value_of(self, step: Step, convert: Callable[..., Any]) -> Callable[..., Any]:
        def run(_: Frame, x: Any) -> Any:
            if not isinstance(x, Tensor):
                return convert(x)
            if (number := self.known.number(x)) is not None:
                return convert(number)
            number = self.known.read(x, Tensor.item)
            return convert(x.item() if number is None else number)

        return run

    def _aten_Int(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        plain = self._value_of(step, PLAIN["aten::Int"])

        def run(frame: Frame, x: Any) -> Any:
            whole = self.known.numbers.get(id(x), (x, None))[1] if isinstance(x, Tensor) else None
            return whole if type(whole) in (int, SymInt) else plain(frame, x)

        return run

    def _aten_Float(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._value_of(step, PLAIN["aten::Float"])

    def _aten_item(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._value_of(step, lambda x: x)

    _aten_IntImplicit = _aten_Int
    _aten_FloatImplicit = _aten_Float
    _aten_ScalarImplicit = _aten_item

    def _aten_Bool(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        plain = PLAIN["aten::Bool"]

        def run(_: Frame, x: Any) -> Any:
            if not isinstance(x, Tensor):
                self.asks = max(self.asks, depends_on_small_sizes(operator.ne, x, 0))
                return plain(x)
            if (number := self.known.number(x)) is not None:
                return bool(number)
            if (answer := self.known.read(x, bool)) is not None:
                return answer
            constant = getattr(x, "constant", None)
            if constant is not None:
                return bool(constant)
            if not self.code.writes:
                return Truth(x)
            condition = as_condition(x)  # of now: the tensor may be written to before it is used
            return Truth(condition.clone() if x.dtype is torch.bool else condition)

        return run

    _aten_is_nonzero = _aten_Bool

    def _aten___not__(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        plain = PLAIN["aten::__not__"]
        step.takes_truth = True

        def run(_: Frame, x: Any) -> Any:
            if isinstance(x, Truth) and isinstance(x.of, Tensor):
                return Truth(torch.ops.aten.logical_not.default(x.of))
            return plain(x.of if isinstance(x, Truth) else x)

        return run

    def _both(self, step: Step, decides: bool, join: Any) -> Callable[..., Any]:
        plain = PLAIN[step.node.kind()]
        step.takes_truth = True

        def run(_: Frame, a: Any, b: Any) -> Any:
            for one, other in ((a, b), (b, a)):
                if type(one) is bool and isinstance(other, Truth):
                    return one if one is decides else other
            tensors = [x.of for x in (a, b) if isinstance(x, Truth) and isinstance(x.of, Tensor)]
            if len(tensors) == 2:
                return Truth(join(*map(as_condition, tensors)))
            return plain(*(self.forced(x) if isinstance(x, Truth) else x for x in (a, b)))

        return run

    def _aten___and__(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        if not _is_of_bools(step.node):
            return self._operator(step)
        return self._both(step, False, torch.ops.aten.logical_and.default)

    def _aten___or__(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        if not _is_of_bools(step.node):
            return self._operator(step)
        return self._both(step, True, torch.ops.aten.logical_or.default)

    def _aten_remainder(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """Of a size by division, which PyTorch simplifies: padding to a multiple makes of sizes
        ``size + (b - size % b) % b``."""
        plain = self._operator(step)

        def run(frame: Frame, a: Any, b: Any) -> Any:
            if not (isinstance(a, SymInt) and type(b) is int and b > 0):
                return plain(frame, a, b)
            result = a - b * (a // b)
            if isinstance(result, SymInt):
                self._remainders[result.node.expr] = (a, b)
            return result

        return run

    def _compared(self, step: Step) -> Callable[..., Any]:
        """``size % b == 0`` says more of a size than the division does."""
        plain = self._operator(step)

        def run(frame: Frame, a: Any, b: Any) -> Any:
            if isinstance(a, SymInt) and type(b) is int and a.node.expr in self._remainders:
                of, by = self._remainders[a.node.expr]
                a = of % by
            return plain(frame, a, b)

        return run

    def _are_equal(self, step: Step, equal: bool) -> Callable[..., Any]:
        """Of two bools."""
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
            return plain(*(self.forced(x) if isinstance(x, Truth) else x for x in (a, b)))

        return run

    def _aten_eq(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._are_equal(step, True) if _is_of_bools(step.node) else self._compared(step)

    def _aten_ne(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._are_equal(step, False) if _is_of_bools(step.node) else self._compared(step)

    def _aten___xor__(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._are_equal(step, False) if _is_of_bools(step.node) else self._operator(step)

    def _text(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """A text with a tensor in it is known at run time only, and one with a size fixes the size;
        but one that is printed, or raised, is nobody's."""
        plain = self._operator(step)
        is_told = _is_told(step.node.output())

        def run(frame: Frame, *values: Any) -> Any:
            if is_told:
                return plain(frame, *pytree.tree_map(told, values))
            if any(isinstance(each, Tensor) for each in pytree.tree_leaves(values)):
                self.refuse(step, 504, ["a text with the values of a tensor in it"])
            return plain(frame, *values)

        return run

    _aten_str = _aten_format = _aten_percentFormat = _text

    def _aten__pack_padded_sequence(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        return self._unknown(step, " (how long the sequences are is known at run time only)")

    def _aten__nested_tensor_from_mask(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """The fast path of nn.TransformerEncoder; what torch.export exports has other values where
        the padding is."""
        instead = "nn.TransformerEncoder(..., enable_nested_tensor=False) makes none"
        return self._unknown(step, f" (PyTorch exports no nested tensors: {instead})")

    def _aten_is_grad_enabled(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        """`no_grad` asks too, to put things back."""
        uses = {use.user.kind() for value in step.node.outputs() for use in value.uses()}
        decides = bool(uses - {"prim::SetAttr", "aten::set_grad_enabled"})

        def run(*_: Any) -> bool:
            self.records_gradients |= decides and torch.is_grad_enabled()
            return torch.is_grad_enabled()

        return run

    def _of_layout(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        plain = self._operator(step)

        def run(frame: Frame, *operands: Any) -> Any:
            self.asks_layout = True
            return plain(frame, *operands)

        return run

    _aten_is_contiguous = _aten_stride = _of_layout

    def _aten_cudnn_is_acceptable(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, x: Tensor) -> bool:
            with torch.backends.cudnn.flags(enabled=self.has_cudnn):
                return torch.cudnn_is_acceptable(x)

        return run

    # What runs other code.

    def _prim_fork(self, step: Step, blocks: list[Code]) -> Callable[..., Any]:
        [code] = blocks

        def run(frame: Frame, *_: Any) -> Any:
            frame.update(dict.fromkeys(code.parameters))
            results = self.run(code, frame)
            return results[0] if len(results) == 1 else tuple(results)

        return run

    def _prim_Enter(self, step: Step, blocks: list[Code]) -> Callable[..., Any]:
        return self._prim_fork(step, blocks) if blocks else self._unknown(step)

    _prim_Exit = _prim_Enter

    def _prim_RaiseException(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, message: Any, *kind: Any) -> NoReturn:
            where = f"\n{step.trace}" if step.trace else ""
            raise Raised(f"the program raises for these inputs: {message}{where}")

        return run

    def _prim_Loop(self, step: Step, blocks: list[Code]) -> Callable[..., Any]:
        [body] = blocks
        step.takes_truth = True
        counter = _counter_of(step.node)

        def run(frame: Frame, most: Any, goes_on: Any, *carried: Any) -> Any:
            values = list(carried)
            turn = 0
            if isinstance(most, SymInt):
                most = self._decided(step, most, int)
            while turn < most:
                if isinstance(goes_on, Truth) and most >= WITHOUT_END and not counter:
                    values = self.whole.while_loop(step, frame, body, goes_on.of, values)
                    break
                if not isinstance(goes_on, Truth) and not self._decided(step, goes_on, bool):
                    break
                if turn == (MAX_TURNS if isinstance(goes_on, Truth) else MAX_STEPS):
                    self.refuse(step, 502, [])
                frame.update(zip(body.parameters, [turn, *values], strict=True))
                if isinstance(goes_on, Truth):
                    goes_on, *values = self.whole.turn(step, frame, goes_on.of, body, counter)
                else:
                    goes_on, *values = self.run(body, frame)
                turn += 1
            return values[0] if len(values) == 1 else values

        return run

    def _decided(self, step: Step, value: Any, kind: type) -> Any:
        """A number that a loop needs. A size becomes fixed by it."""
        try:
            return kind(value)
        except GuardOnDataDependentSymNode:
            self.refuse(step, 502, [])

    def _prim_If(self, step: Step, blocks: list[Code]) -> Callable[..., Any]:
        step.takes_truth = True

        def run(frame: Frame, condition: Any) -> Any:
            if not isinstance(condition, Truth):
                try:
                    taken = blocks[0] if condition else blocks[1]
                except GuardOnDataDependentSymNode:
                    condition = Truth(condition)
            if isinstance(condition, Truth):
                values = self.whole.branches(step, frame, condition.of, blocks)
            else:
                values = self.run(taken, frame)
            return values[0] if len(values) == 1 else values

        return run

    # The dialect.

    def _jit_amp_cast(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def cast(x: Tensor, targets: dict[str, Any]) -> Tensor:
            made = _cast(x, targets)
            if made is x:
                self._check_kind(x)
            return made

        def run(_: Frame, x: Any, cpu: Any, other: Any, accelerator: str = "cuda") -> Any:
            targets = {"cpu": cpu, accelerator: other}
            if isinstance(x, list):
                return [cast(each, targets) for each in x]
            return x if x is None else cast(x, targets)

        return run

    def _jit_amp_widest(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, xs: list[Tensor], lower: Any, device: str) -> Any:
            result = lower
            for x in xs if lower is not None else ():
                if x.device.type == device and _is_eligible(x):
                    if x.dtype is torch.float32:
                        result = NUMBER_OF[torch.float32]
                    elif result == lower and NUMBER_OF[x.dtype] != lower:
                        raise RuntimeError(
                            "Unexpected floating ScalarType in at::autocast::prioritize"
                        )
            return result

        return run

    def _jit_amp_opt_dtype(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, x: Tensor, dtype: Any, on: bool, accelerator: str = "cuda") -> Any:
            needs = dtype is None and on and x.device.type == accelerator and _is_eligible(x)
            return NUMBER_OF[torch.float32] if needs else dtype

        return run

    def _jit_amp_known_device(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, name: str, accelerator: str = "cuda") -> None:
            if name not in ("cpu", accelerator):
                raise Raised(
                    "jit_amp: a scripted torch.autocast whose device_type is known at run time can "
                    f"be for 'cpu' or '{accelerator}'"
                )

        return run

    def _jit_amp_fail(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        def run(_: Frame, message: str) -> NoReturn:
            raise Raised(f"jit_amp: {message}")

        return run

    def _jit_amp_deferred(self, step: Step, _: list[Code]) -> Callable[..., Any]:
        number = step.node.i("value")
        step.is_fixed = True
        return lambda *_: number

    def _jit_amp_scoped(self, step: Step, blocks: list[Code]) -> Callable[..., Any]:
        """An operator that autocast's policies do not cover stands free of its scope where none of
        its operands is on the scope's device."""
        [code] = blocks
        devices = step.node.ss("devices")
        inner = next(s.node for s in code.steps if s.node.kind() != "prim::Constant")

        def run(frame: Frame, *operands: Any) -> Any:
            given = operands[2 * len(devices) :]
            for i, device in enumerate(devices):
                if operands[2 * i] and _C.policy_of(inner, device) != "untouched":
                    tensors = [x for x in pytree.tree_leaves(given) if isinstance(x, Tensor)]
                    if any(x.device.type == device for x in tensors):
                        self.refuse(step, 301, [inner.kind(), device, ""])
            results = self.run(code, frame)
            return results[0] if len(results) == 1 else results

        return run

    _jit_amp_scoped_effect = _jit_amp_scoped


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


def _inverse(condition: Tensor) -> Tensor:
    made: Tensor = torch.ops.aten.logical_not.default(as_condition(condition))
    return made


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


def _is_eligible(x: Tensor) -> bool:
    return x.is_floating_point() and x.dtype is not torch.float64


def _cast(x: Tensor, targets: dict[str, Any]) -> Tensor:
    target = targets.get(x.device.type)
    if target is None or not _is_eligible(x) or x.dtype is DTYPE_OF[target]:
        return x
    made: Tensor = torch.ops.aten.to.dtype(x, DTYPE_OF[target])
    return made
