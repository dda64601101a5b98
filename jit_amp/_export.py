"""jit_amp.export: a TorchScript program as an ExportedProgram."""

from __future__ import annotations

import inspect
import keyword
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import traceback as fx_traceback
from torch.fx.experimental import _config as symbolic_shapes_config
from torch.jit import ScriptFunction, ScriptModule
from torch.utils import _pytree as pytree

from jit_amp import _C, _check, _kept
from jit_amp._free_sizes import Traced, freest, guarded, may_be_of_sizes
from jit_amp._freeze import _misfit
from jit_amp._graph_values import without_tensors
from jit_amp._holder import Holder
from jit_amp._interpreter import Decided, Interpreter
from jit_amp._larger_hints import put_larger_hints
from jit_amp._one_way import OneWay
from jit_amp._same_program import is_same_program
from jit_amp._savable import make_savable
from jit_amp._script import _scripted


@_kept.onednn()
def export(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> ExportedProgram:
    """Makes a ``torch.export`` program of a TorchScript one, with its autocast scopes resolved.

    The casts are operators of the program, and results are those of eager autocast, bit for bit.
    Nothing is frozen: the program's ``state_dict`` is the model's, tensors that are shared stay
    shared, and buffers that the program writes to are buffers. Branches and loops on numbers and
    sizes are followed while it is exported, and torch.export guards what that took for granted; a
    branch on the value of a tensor becomes ``torch.cond``. Of a branch on how many elements there
    are, which values tell, the program may have one side alone, and raises for the other; then a
    warning has the line. What asks whether gradients are recorded is answered once: export inside
    ``torch.no_grad()`` what will run inside it.

    Args:
        model (nn.Module | Callable | ScriptModule | ScriptFunction | str | Path): a module or
            function, which is scripted first; what ``torch.jit.script``, ``torch.jit.trace``,
            ``torch.jit.load`` or ``jit_amp.freeze`` returned; or the path of a file that
            ``torch.jit.save`` wrote. Its source is not needed. It stays as it is.
        args: example arguments, as a tuple; tensors may stand in lists, tuples and dictionaries.
            Their dtypes and devices are the program's; values of other types are fixed.
        kwargs: example arguments by name.
        dynamic_shapes: which sizes may change, as ``torch.export.export`` takes it; ``{}`` is none.
            Without it, all that the program does not fix may: a size that a loop is unrolled for is
            fixed. Where a program cannot be exported so, the first size of each tensor may change,
            or none, and a warning says which.
        strict: as ``torch.export.export`` has it: whether the program is traced once more by
            TorchDynamo.

    Returns:
        ExportedProgram: of PyTorch's own operators, to save by ``torch.export.save`` and load where
            jit_amp is not. A NamedTuple that the model returns is a tuple.

    Raises:
        AutocastError: what cannot be said in an exported program, or a scope that cannot be known;
            the text has the line.
        FileNotFoundError: there is no such file.
        ValueError: a file that is no TorchScript archive.
        TypeError: arguments that the model does not take; its signature is in the message.
        RuntimeError: what the program raises for the arguments; a file whose device this machine
            does not have; or what ``torch.export.export`` raises.
    """
    _check.instance("jit_amp.export: args", args, tuple, "a tuple of arguments")
    named = dict(kwargs or {})
    program = _program_of(model)
    scripted = program if isinstance(program, ScriptModule) else None
    with _ambient_suspended(), _kept.random_state():
        if scripted is not None:
            if not scripted._c._has_method("forward"):
                raise TypeError(
                    f"jit_amp.export: {_check.shown(model)} has no `forward` in TorchScript, as "
                    "nn.LSTM and nn.GRU have one for each kind of input: export a module that "
                    "calls it"
                )
            schema = scripted._c._get_method("forward").schema
            graph = _C.interpretable_graph(scripted._c, "forward")
        else:
            schema = program.schema
            graph = _C.interpretable_graph(program)
        formals = schema.arguments[1:] if scripted is not None else schema.arguments
        _check_arguments(formals, args, named)
        args, named = _each_once((args, named))
        kept = set(model.state_dict()) if isinstance(model, nn.Module) else None

        def trace(shapes: Any, is_bounded: bool) -> Traced:
            one_way: dict[int, OneWay] = {}  # by the number of the branch
            reasons: list[Exception] = []  # for what is decided
            some: set[tuple[int, int]] = set()  # what is assumed to be at least 1

            def once(found: Mapping[str, Any]) -> tuple[ExportedProgram, Interpreter]:
                while True:
                    sides = {number: branch.side for number, branch in one_way.items()}
                    decided = Decided(sides, frozenset(some))
                    program = _Program(graph, scripted, formals, kept, is_bounded, found, decided)
                    interpreter: Interpreter = program.__dict__["_jit_amp_interpreter"]
                    try:
                        made = torch.export.export(
                            program, args, named, dynamic_shapes=shapes, strict=False
                        )
                    except OneWay as branch:
                        one_way[branch.number] = branch
                        reasons.append(branch.error)
                        continue
                    except Exception as error:
                        undecided = interpreter.undecided(error) - some
                        if not undecided or not may_be_of_sizes(error):
                            raise
                        some.update(undecided)
                        reasons.append(error)
                        continue
                    _check_no_fakes(made)
                    if reasons and not _takes(made, args, named):
                        raise reasons[-1]
                    return made, interpreter

            made, interpreter = once({})
            if left := interpreter.attributes.left:
                known = len(reasons)
                again, second = once(left)
                if len(reasons) > known:
                    made, interpreter = once({})
                if not is_same_program(again, made) or not _is_kept(left, second.attributes.left):
                    interpreter.attributes.refuse_left()
            return Traced(
                made,
                asks_small=interpreter.asks_small,
                records_gradients=interpreter.records_gradients,
                one_way=list(one_way.values()),
                some=[own.line for own in interpreter.own.values() if own.key in some],
                is_oblivious=bool(symbolic_shapes_config.backed_size_oblivious),
            )

        with fx_traceback.preserve_node_meta(), _kept.modes():
            if dynamic_shapes is None:
                given = dict(zip(_signature(formals).parameters, args, strict=False)) | named
                traced, shapes = freest(trace, given)
            else:
                traced, shapes = trace(dynamic_shapes, False), dynamic_shapes
                if traced.asks_small:
                    traced = guarded(trace, shapes, traced)
        exported = traced.program
        for note in (*traced.notes, *_notes(traced)):
            warnings.warn(f"jit_amp.export: {note}", stacklevel=3)  # past the decorator
        if strict:
            with symbolic_shapes_config.patch(backed_size_oblivious=traced.is_oblivious):  # type: ignore[attr-defined]
                exported = torch.export.export(
                    exported.module(), args, named, dynamic_shapes=shapes, strict=True
                )
            if traced.is_oblivious and dynamic_shapes is None:
                put_larger_hints(exported)
        make_savable(exported)
    return exported


def _notes(traced: Traced) -> Iterator[str]:
    if traced.records_gradients:
        yield (
            "the program asks whether gradients are recorded, and goes on otherwise where they are "
            "not, as nn.MultiheadAttention does. The exported program keeps the answer, yes: for "
            "inference, export inside torch.no_grad()"
        )
    if traced.some:
        yield (
            "the program computes sizes from the values of tensors. The exported program assumes "
            "that each is at least 1, and raises otherwise. They come from:\n"
            + "\n".join(dict.fromkeys(traced.some))
        )
    for branch in traced.one_way:
        which = "the condition holds" if branch.side == 0 else "the condition does not hold"
        yield (
            "a branch on how many there are, which the values of tensors tell: one side cannot be "
            "exported beside the other. The exported program is for where "
            f"{which}, and raises elsewhere\n{branch.line}"
        )


def _takes(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the program is for its own example; runs on copies."""
    given, named = pytree.tree_map(
        lambda x: x.detach().clone() if isinstance(x, Tensor) else x, (args, kwargs)
    )
    run = program.module()
    with torch.no_grad():
        buffers = {name: buffer.clone() for name, buffer in run.named_buffers()}
        try:
            torch.func.functional_call(run, buffers, given, named)
        except RuntimeError as error:
            return "Runtime assertion failed" not in str(error)
        except Exception:  # raised by the program itself, as OverflowError for an infinite float
            return False
    return True


def _each_once(given: Any) -> Any:
    """With copies of tensors that are given twice, as ``q, k, v`` often are: torch.export takes
    them for one in every call."""
    seen: set[int] = set()

    def own(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if id(x) in seen:
            return x.detach().clone().requires_grad_(x.requires_grad)
        seen.add(id(x))
        return x

    return pytree.tree_map(own, given)


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


class _Program(nn.Module):
    """What torch.export is given: the program's tensors, and its interpreter."""

    def __init__(
        self,
        graph: torch._C.Graph,
        module: ScriptModule | None,
        formals: list[Any],
        kept: set[str] | None,
        is_bounded: bool,
        found: Mapping[str, Any],
        decided: Decided,
    ) -> None:
        super().__init__()
        run = Interpreter(graph, Holder(self, module, graph, kept), is_bounded, found, decided)
        self.__dict__["_jit_amp_interpreter"] = run  # beside the names of the model
        if module is not None:
            self.training = bool(getattr(module, "training", False))
        signature = _signature(formals)

        def forward(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = [
                _as(formal.type, value)
                for formal, value in zip(formals, bound.arguments.values(), strict=True)
            ]
            return run(given)

        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward


def _signature(formals: list[Any]) -> inspect.Signature:
    """With names that Python takes; a trace's may be none."""
    parameters: list[inspect.Parameter] = []
    taken: set[str] = set()
    for i, formal in enumerate(formals):
        name = re.sub(r"\W", "_", formal.name)
        if not name.isidentifier() or keyword.iskeyword(name) or name in taken:
            name = f"argument_{i}"
        taken.add(name)
        default = _default(formal)
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


def _program_of(model: Any) -> Any:
    if isinstance(model, torch._C.ScriptMethod):
        raise TypeError(
            f"jit_amp.export: {_check.shown(model)} is a method: only a module, by its `forward`, "
            "or a function can be exported"
        )
    if isinstance(model, (str, Path)):
        return _loaded(Path(model))
    if isinstance(model, type) and issubclass(model, nn.Module):
        _check.module("jit_amp.export", model)
    _check.scriptable("jit_amp.export", model)
    program = _scripted(model, 1)
    if not isinstance(program, (ScriptModule, ScriptFunction)):
        raise TypeError(f"jit_amp.export: {_check.shown(model)} is not a function or an nn.Module")
    return program


def _loaded(path: Path) -> Any:
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"jit_amp.export: {str(path)!r}: {what}")
    try:
        if not zipfile.is_zipfile(path):
            raise RuntimeError("no archive")
        return torch.jit.load(path)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        said = str(error)
        for device in ("CUDA", "MPS", "XPU"):
            if f"on a {device} device but" in said or f"No {device} GPUs" in said:
                raise RuntimeError(
                    f"jit_amp.export: {str(path)!r} is a model on {device}, which this machine "
                    "does not have: give what torch.jit.load(path, map_location='cpu') returns"
                ) from error
        raise ValueError(
            f"jit_amp.export: {str(path)!r} is no TorchScript file, as torch.jit.save writes it"
        ) from error


def _check_arguments(formals: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wrong = _misfit(formals, args, kwargs)
    if not wrong:
        values = [*args, *(kwargs.get(f.name, f.default_value) for f in formals[len(args) :])]
        wrong = next(
            (
                f"`{formal.name}` is {_check.shown(value)}"
                for formal, value in zip(formals, values, strict=True)
                if not (_fits(formal.type, value) or value is None is _default(formal))
            ),
            "",
        )
    if wrong:
        takes = ", ".join(
            f"{f.name}: {f.type.annotation_str}"
            + (f" = {f.default_value}" if f.has_default_value() else "")
            for f in formals
        )
        raise TypeError(f"jit_amp.export: {wrong}: the model takes ({takes})")


def _default(formal: Any) -> Any:
    """Of `x: Tensor = None` it is None, as TorchScript has it too."""
    return formal.default_value if formal.has_default_value() else inspect.Parameter.empty


def _fits(kind: Any, value: Any) -> bool:
    name = kind.kind()
    if name == "OptionalType":
        return value is None or _fits(kind.getElementType(), value)
    if name == "TupleType" and isinstance(value, (list, tuple)):
        return len(value) == len(kind.elements()) and all(map(_fits, kind.elements(), value))
    if name == "ListType" and isinstance(value, (list, tuple)):
        return all(_fits(kind.getElementType(), each) for each in value)
    if name == "DictType" and isinstance(value, Mapping):
        return all(_fits(kind.getValueType(), each) for each in value.values())
    plain = {
        "TensorType": Tensor,
        "IntType": int,
        "FloatType": (int, float),
        "BoolType": bool,
        "StringType": str,
        "NoneType": type(None),
        "TupleType": (),
        "ListType": (),
        "DictType": (),
    }
    return name not in plain or isinstance(value, plain[name])  # type: ignore[arg-type]


@contextmanager
def _ambient_suspended() -> Iterator[None]:
    """Autocast off for CPU and CUDA, as the scopes of the program are part of it already."""
    before = {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")}
    try:
        for device in before:
            torch.set_autocast_enabled(device, False)
        yield
    finally:
        for device, enabled in before.items():
            torch.set_autocast_enabled(device, enabled)
