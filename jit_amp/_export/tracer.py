"""An ExportedProgram of a TorchScript program, for the free sizes that are asked for."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import SymInt, Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.jit import ScriptModule
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._export.checked_inputs import check_kinds, check_places
from jit_amp._export.interpreter.decided import Decided
from jit_amp._export.interpreter.holder import Holder
from jit_amp._export.interpreter.interpreter import Interpreter
from jit_amp._export.interpreter.one_sided import OneWay
from jit_amp._export.interpreter.values import Raised, without_tensors
from jit_amp._export.program.parts import parts_of
from jit_amp._export.program.same import is_same_program
from jit_amp._export.sizes.oblivious import is_oblivious
from jit_amp._export.sizes.small import know_as_large
from jit_amp._export.sizes.solving import solve_as_far_as_possible


@dataclass
class Traced:
    """A program that torch.export has made, and what was seen on the way."""

    program: ExportedProgram
    asks: int
    """Whether it asks if a size is 0 or 1: 0, GUARDED or UNSEEN, as _small_sizes has it."""
    records_gradients: bool
    """Whether it asks if gradients are recorded, and they are."""
    asks_layout: bool
    """Whether it asks how a tensor lies in memory."""
    one_way: list[OneWay]
    """The branches of which it has one side."""
    some: list[str]
    """The lines of sizes that come from values by way of floats, and are taken for at least 1."""
    example: tuple[tuple[Any, ...], dict[str, Any]]
    """Positional arguments and those by name that it was traced with."""
    trail: int
    """What was done, without numbers."""
    is_oblivious: bool
    """Whether torch.export took free sizes without a look at the example's."""
    notes: list[str] = field(default_factory=list)
    """What the caller should know of it."""


@dataclass(frozen=True)
class Tracer:
    """A TorchScript program and its example."""

    graph: torch._C.Graph
    module: ScriptModule | None
    formals: list[Any]
    """What the graph takes, without the module."""
    kept: set[str] | None
    """The names in the model's ``state_dict``."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    check: Callable[[], None]
    """Raises RuntimeError where the TorchScript program itself cannot run the example."""
    are_large: bool = False
    """Whether free sizes are known to be at least two, in the end, if the example's are: what was
    asked is guarded for such sizes alone."""

    def __call__(self, shapes: Any, is_bounded: bool) -> Traced:
        """Traces it, again with each decision that torch.export cannot take itself; and once more
        if the call leaves attributes, to see that the next call computes the same.

        Args:
            shapes: ``dynamic_shapes`` of torch.export.export.
            is_bounded: whether there is a limit to how long expressions of sizes become.
        """
        decisions = _Decisions()
        made, interpreter = self._decided(shapes, is_bounded, {}, decisions)
        if left := interpreter.attributes.left:
            known = len(decisions.reasons)
            again, second = self._decided(shapes, is_bounded, left, decisions)
            if len(decisions.reasons) > known:
                made, interpreter = self._decided(shapes, is_bounded, {}, decisions)
            if not is_same_program(again, made) or not _is_kept(left, second.attributes.left):
                interpreter.attributes.refuse_left()
        return Traced(
            made,
            asks=interpreter.asks,
            records_gradients=interpreter.records_gradients,
            asks_layout=interpreter.asks_layout,
            one_way=list(decisions.one_way.values()),
            some=[own.line for own in interpreter.own.values() if own.key in decisions.some],
            example=(self.args, self.kwargs),
            trail=interpreter.trail.value,
            is_oblivious=is_oblivious(),
        )

    def _decided(
        self, shapes: Any, is_bounded: bool, found: Mapping[str, Any], decisions: _Decisions
    ) -> tuple[ExportedProgram, Interpreter]:
        """
        Args:
            found: attributes that an earlier call has left.
            decisions: those known; more are added.
        """
        while True:
            interpreted = _Interpreted(self, is_bounded, found, decisions.taken())
            interpreter: Interpreter = interpreted.__dict__["_jit_amp_interpreter"]
            try:
                made = torch.export.export(
                    interpreted, self.args, self.kwargs, dynamic_shapes=shapes, strict=False
                )
            except Exception as error:  # of any class: by torch.export, about what it cannot decide
                if not decisions.add(error, interpreter):
                    raise
                continue
            _check_no_fakes(made)
            check_places(made)
            if decisions.reasons and not self._is_taken_by(made):
                raise decisions.reasons[-1]
            return made, interpreter

    def _is_taken_by(self, program: ExportedProgram) -> bool:
        """Returns whether the program takes its own example."""
        try:
            self._run(program)
        except RuntimeError as error:
            return "Runtime assertion failed" not in str(error)
        except Exception:  # raised by the program itself, as OverflowError for an infinite float
            return False
        return True

    def failure(self, program: ExportedProgram) -> Exception | None:
        """What the program raises for its own example, for which the TorchScript program raises
        nothing. A program with operators that are not PyTorch's is not run, since these may do
        anything.

        Raises:
            Raised: the TorchScript program raises for the example, too.
        """
        operators = list(_operators(program))
        if not all(x.namespace in ("aten", "prim", "prims") for x in operators):
            return None
        try:
            self._run(program, any(x._schema.is_mutable for x in operators))
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # of any class: by the program
            try:
                self.check()
            except RuntimeError as raised:
                raise Raised(str(raised)) from raised
            return error
        return None

    def gives_the_same(self, one: ExportedProgram, other: ExportedProgram) -> bool:
        """Whether two programs give the same for the example, and leave the same in buffers."""
        try:
            results = [self._run(one), self._run(other)]
            torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)
        except MemoryError:
            raise
        except Exception:  # of any class: by the programs
            return False
        return True

    def _run(self, program: ExportedProgram, copies_parameters: bool = True) -> Any:
        """Its results, and what it leaves in arguments, parameters and buffers, which are copies;
        from one state of the CPU's random generator.

        Args:
            program: what runs.
            copies_parameters: whether parameters are copied, as buffers always are: norms in
                training write to them.
        """
        given, named = pytree.tree_map(
            lambda x: x.detach().clone() if isinstance(x, Tensor) else x, (self.args, self.kwargs)
        )
        run = program.module()
        with torch.no_grad():
            torch.default_generator.manual_seed(0)
            held = {name: x.clone() for name, x in run.named_buffers()}
            if copies_parameters:
                held |= {name: x.detach().clone() for name, x in run.named_parameters()}
            return torch.func.functional_call(run, held, given, named), held, given, named

    def ones(self, program: ExportedProgram | None = None) -> dict[tuple[int, int], Any]:
        """The example's sizes of 1, by argument and dimension.

        Args:
            program: only those that are free in it, with their symbols.
        """
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        sizes: dict[tuple[int, int], Any] = {
            (i, dim): None
            for i, x in enumerate(leaves)
            if isinstance(x, Tensor)
            for dim in range(x.dim())
            if x.shape[dim] == 1
        }
        if program is None:
            return sizes
        taken = {node.name: node.meta.get("val") for node in program.graph.nodes}
        shapes = [getattr(taken.get(x), "shape", ()) for x in program.graph_signature.user_inputs]
        return {
            (i, dim): shapes[i][dim].node.expr
            for i, dim in sizes
            if isinstance(shapes[i][dim], SymInt)
        }

    def with_twos(self, ones: Collection[tuple[int, int]]) -> Tracer:
        """Returns a tracer whose example has sizes of 2 in the place of these."""
        leaves, spec = pytree.tree_flatten((self.args, self.kwargs))
        for i, dim in ones:
            x = leaves[i].detach()
            leaves[i] = torch.cat((x, x), dim).requires_grad_(leaves[i].requires_grad)
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return replace(self, args=args, kwargs=kwargs)


@dataclass
class _Decisions:
    """What torch.export could not decide about a program, and was decided for it."""

    one_way: dict[int, OneWay] = field(default_factory=dict)
    """By the number of the branch."""
    some: set[tuple[int, int]] = field(default_factory=set)
    """What is assumed to be at least 1."""
    reasons: list[Exception] = field(default_factory=list)
    """What was raised without each."""

    def taken(self) -> Decided:
        sides = {number: branch.side for number, branch in self.one_way.items()}
        return Decided(sides, frozenset(self.some))

    def add(self, error: Exception, interpreter: Interpreter) -> bool:
        """Whether another decision can help against the error."""
        if isinstance(error, OneWay):
            self.one_way[error.number] = error
            self.reasons.append(error.error)
            return True
        undecided = interpreter.undecided(error) - self.some
        if not undecided or not may_be_of_sizes(error):
            return False
        self.some.update(undecided)
        self.reasons.append(error)
        return True


def has_size(size: int, given: Any) -> bool:
    """Returns whether a tensor in the arguments has a size."""
    return any(size in x.shape for x in pytree.tree_leaves(given) if isinstance(x, Tensor))


class NotForItsExample(RuntimeError):
    """A program that raises for its own example."""

    def __init__(self, error: Exception) -> None:
        said = str(error).strip().splitlines()
        words = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
        super().__init__(
            f"jit_amp.export: the exported program cannot run its own example, as the model can "
            f"({words}): try dynamic_shapes={{}}, or jit_amp.freeze"
        )


def may_be_of_sizes(error: Exception) -> bool:
    """Whether it may go otherwise where sizes are numbers."""
    if isinstance(error, _C.AutocastError):
        return any(f"[JA{code}]" in str(error) for code in (501, 502, 504, 505))
    return not isinstance(error, (Raised, MemoryError))


def _check_no_fakes(program: ExportedProgram) -> None:
    """A tensor without values that has stayed in the program is one of another of its graphs."""
    held = list(program.constants.values())
    for part in program.graph_module.modules():
        held += [each for each in vars(part).values() if isinstance(each, Tensor)]
        held += [each for each in part._buffers.values() if each is not None]
    if any(isinstance(each, FakeTensor) for each in held):
        said = "it reads what the program computes outside of it, and torch.cond does not see that"
        _C.refuse(501, [said])


def _is_kept(left: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a call that found what another has left leaves it so."""
    return all(p in left and without_tensors(x) == without_tensors(left[p]) for p, x in now.items())


def _operators(program: ExportedProgram) -> Iterator[torch._ops.OpOverload]:
    for part in parts_of(program):
        for node in part.graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload):
                yield node.target


class _Interpreted(nn.Module):
    """What torch.export is given: the program's tensors, and its interpreter."""

    def __init__(
        self, tracer: Tracer, is_bounded: bool, found: Mapping[str, Any], decided: Decided
    ) -> None:
        super().__init__()
        module, formals = tracer.module, tracer.formals
        holder = Holder(self, module, tracer.graph, tracer.kept)
        run = Interpreter(tracer.graph, holder, is_bounded, found, decided)
        self.__dict__["_jit_amp_interpreter"] = run  # beside the names of the model
        if module is not None:
            self.training = bool(getattr(module, "training", False))
        signature = signature_of(formals)

        def forward(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = [
                _as(formal.type, value)
                for formal, value in zip(formals, bound.arguments.values(), strict=True)
            ]
            solve_as_far_as_possible(given)
            check_kinds(given)
            made = run(given)
            if tracer.are_large:
                know_as_large(given)
            return made

        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward


def signature_of(formals: list[Any]) -> inspect.Signature:
    """With names that Python takes; a trace's may be none."""
    parameters: list[inspect.Parameter] = []
    taken: set[str] = set()
    for i, formal in enumerate(formals):
        name = re.sub(r"\W", "_", formal.name)
        if not name.isidentifier() or keyword.iskeyword(name) or name in taken:
            name = f"argument_{i}"
        taken.add(name)
        default = default_of(formal)
        of = inspect.Parameter
        kind = of.KEYWORD_ONLY if formal.kwarg_only else of.POSITIONAL_OR_KEYWORD
        parameters.append(of(name, kind, default=default))
    return inspect.Signature(parameters)


def _as(kind: Any, value: Any) -> Any:
    """An argument as a value of the graph: with containers of its own, an int that is a float."""
    name = kind.kind()
    if name == "OptionalType":
        return None if value is None else _as(kind.getElementType(), value)
    if name == "FloatType" and isinstance(value, int):
        return float(value)
    if name == "ListType" and isinstance(value, (list, tuple)):
        return [_as(kind.getElementType(), each) for each in value]
    if name == "TupleType" and isinstance(value, (list, tuple)):
        return tuple(_as(k, each) for k, each in zip(kind.elements(), value, strict=True))
    if name == "DictType" and isinstance(value, Mapping):
        return {key: _as(kind.getValueType(), each) for key, each in value.items()}
    return value


def default_of(formal: Any) -> Any:
    """Of `x: Tensor = None` it is None, as TorchScript has it too."""
    return formal.default_value if formal.has_default_value() else inspect.Parameter.empty
