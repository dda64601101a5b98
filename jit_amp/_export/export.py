"""jit_amp.export: a TorchScript program as an ExportedProgram."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import traceback as fx_traceback
from torch.jit import ScriptFunction, ScriptModule
from torch.utils import _pytree as pytree

from jit_amp import _C
from jit_amp._base import arguments, process_state
from jit_amp._export.alone import alone
from jit_amp._export.checked_inputs import check_places, checks_kinds
from jit_amp._export.free_sizes import as_told, freest
from jit_amp._export.interpreter.values import Raised
from jit_amp._export.program.savable import make_savable
from jit_amp._export.sizes.hints import is_for_larger_alone, put_larger_hints
from jit_amp._export.sizes.oblivious import without_looking
from jit_amp._export.tracer import (
    NotForItsExample,
    Traced,
    Tracer,
    default_of,
    has_size,
    signature_of,
)
from jit_amp._runs import example_runs
from jit_amp._runs.schema import misfit
from jit_amp._script.script import _scripted


@process_state.around(process_state.onednn)
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
        ValueError: a file that is no TorchScript archive; or ``dynamic_shapes`` with free sizes in
            PyTorch before 2.9, whose programs keep no conditions on them. Without
            ``dynamic_shapes`` all sizes are fixed there, and a warning says so.
        TypeError: arguments that the model does not take; its signature is in the message. Or the
            model is what ``torch.compile``, ``torch.export`` or ``Precision.apply`` returned.
        RuntimeError: what the program raises for the arguments; a file whose device this machine
            does not have; PyTorch before 2.8; what ``torch.export.export`` raises; or
            ``PYTORCH_JIT=0`` has switched TorchScript off, and the model was not scripted before.
    """
    if not checks_kinds():
        raise RuntimeError(
            f"jit_amp.export: programs of PyTorch {torch.__version__} cannot check the dtype of"
            " their inputs: save the model with torch.jit.save, and export the file with PyTorch"
            " 2.8 or newer"
        )
    arguments.instance("jit_amp.export: args", args, tuple, "a tuple of arguments")
    named = dict(kwargs or {})
    program = _program_of(model)
    scripted = program if isinstance(program, ScriptModule) else None
    with process_state.no_autocast(), process_state.random_state():
        with alone():
            if scripted is not None:
                if not scripted._c._has_method("forward"):
                    raise TypeError(
                        f"jit_amp.export: {arguments.shown(model)} has no `forward` in TorchScript,"
                        " as nn.LSTM and nn.GRU have one for each kind of input: export a module"
                        " that calls it"
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

            example = *args, *(named.get(f.name, f.default_value) for f in formals[len(args) :])
            check = partial(example_runs.check, "export", program, [example])
            trace = Tracer(graph, scripted, formals, kept, args, named, check)
            with (
                _raising_as_it_runs(check),
                fx_traceback.preserve_node_meta(),
                process_state.modes(),
            ):
                if dynamic_shapes is None:
                    given = dict(zip(signature_of(formals).parameters, args, strict=False)) | named
                    traced, shapes = freest(trace, given)
                else:
                    traced, shapes = as_told(trace, dynamic_shapes), dynamic_shapes
            exported = traced.program
            for note in (*traced.notes, *_notes(traced)):
                warnings.warn(f"jit_amp.export: {note}", stacklevel=3)  # past the decorator
        if strict:
            is_oblivious = traced.is_oblivious and (
                has_size(1, traced.example) or is_for_larger_alone(exported)
            )
            with without_looking() if is_oblivious else nullcontext():
                exported = torch.export.export(
                    exported.module(), *traced.example, dynamic_shapes=shapes, strict=True
                )
                exported.example_inputs = args, named
            if is_oblivious:
                put_larger_hints(exported)
            check_places(exported)
            if (error := trace.failure(exported)) is not None:
                raise NotForItsExample(error)
        make_savable(exported)
        check()
    return exported


@contextmanager
def _raising_as_it_runs(check: Callable[[], None]) -> Iterator[None]:
    """What a program raises for its example is told as it is raised when it runs, with the line,
    and not as it is raised where it is traced."""
    try:
        yield
    except (_C.AutocastError, Raised):
        raise
    except Exception as error:  # of any class: by PyTorch
        try:
            check()
        except RuntimeError as raised:
            raise Raised(str(raised)) from error
        raise


def _notes(traced: Traced) -> Iterator[str]:
    if traced.records_gradients:
        yield (
            "the program asks whether gradients are recorded, and goes on otherwise where they are "
            "not, as nn.MultiheadAttention does. The exported program keeps the answer, yes: for "
            "inference, export inside torch.no_grad()"
        )
    if traced.asks_layout:
        yield (
            "the program asks how a tensor lies in memory (is_contiguous or stride). The exported "
            "program keeps the answers of the example: give it tensors in the same memory format, "
            "and sizes of 1 only where the example has them"
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


def _program_of(model: Any) -> Any:
    if isinstance(model, torch._C.ScriptMethod):
        raise TypeError(
            f"jit_amp.export: {arguments.shown(model)} is a method: only a module, by its "
            "`forward`, or a function can be exported"
        )
    if isinstance(model, (str, Path)):
        return _loaded(Path(model))
    if isinstance(model, type) and issubclass(model, nn.Module):
        arguments.module("jit_amp.export", model)
    arguments.scriptable("jit_amp.export", model)
    arguments.compilable("export", model)
    program = _scripted(model, 1)
    if not isinstance(program, (ScriptModule, ScriptFunction)):
        raise TypeError(
            f"jit_amp.export: {arguments.shown(model)} is not a function or an nn.Module"
        )
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
    wrong = misfit(formals, args, kwargs)
    if not wrong:
        values = [*args, *(kwargs.get(f.name, f.default_value) for f in formals[len(args) :])]
        wrong = next(
            (
                f"`{formal.name}` is {arguments.shown(value)}"
                for formal, value in zip(formals, values, strict=True)
                if not (_fits(formal.type, value) or value is None is default_of(formal))
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
