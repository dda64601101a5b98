"""The command line: ``jit-amp`` or ``python -m jit_amp``.

A model is a TorchScript file, for ``verify`` one of another format too, or ``package.module:name``
of a module, of a function, or of a class or factory that is called without arguments and gives one;
``path/file.py:name`` names a file.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import os
import re
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

import jit_amp
from jit_amp import _C, policy
from jit_amp._base import arguments as _check
from jit_amp._base import source_files
from jit_amp._base.json_records import as_json
from jit_amp._base.trees import leaves
from jit_amp._cli import errors, formats
from jit_amp._cli.environment import environment
from jit_amp._cli.triton import write_repository
from jit_amp._explain import verdict
from jit_amp._explain.explain import place_of, weights_of
from jit_amp._explain.records import REDUCED, Place
from jit_amp._explain.report import Report
from jit_amp._freeze.freeze import in_dtype
from jit_amp._freeze.packed import emulates
from jit_amp._runs.copies import fresh

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_TENSOR = re.compile(r"(\w+)\[([\d\s,]*)\]")
MODEL_HELP = "a TorchScript file, or package.module:name, such as net:Net of net.py"
INPUT_HELP = (
    "an argument, repeated for several: float32[1,3,224,224] is a random tensor, 3 or true or null "
    "a value, JSON a list or dictionary of these, a path what torch.save wrote there (a tuple is "
    "all arguments)"
)


class Mistaken(Exception):
    """Something that the user wrote in the command."""


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with characters that none has
        return False


def _said(error: BaseException) -> str:
    """The first line of an error, with its class where the text alone may be a mere name."""
    text = next(iter(str(error).strip().splitlines()), "")
    return text if text and type(error) is RuntimeError else f"{type(error).__name__}: {text}"


@contextlib.contextmanager
def _mistaken_if_refused() -> Iterator[None]:
    """A TypeError or ValueError that jit_amp itself raises is about an argument, and the command
    has given it. What PyTorch or the model raises is not."""
    try:
        yield
    except (TypeError, ValueError) as error:
        places = traceback.extract_tb(error.__traceback__)
        if places and source_files.is_jit_amps(places[-1].filename):
            raise Mistaken(str(error)) from error
        raise


@contextlib.contextmanager
def _mistaken_if_not_written(path: Path) -> Iterator[None]:
    """PyTorch's writer raises its own assertions where a file cannot be written."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        is_of_writer = "inline_container" in str(error) or "miniz" in str(error)
        if isinstance(error, OSError) or is_of_writer:
            why = error.strerror if isinstance(error, OSError) else "is the disk full?"
            raise Mistaken(f"--output {path}: it could not be written ({why})") from error
        raise


def model_of(name: str) -> Any:
    """The model of a name on the command line."""
    if _is_file(name) and not name.endswith(".py"):
        try:
            return torch.jit.load(name)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            text = f"{name}: no TorchScript file, as torch.jit.save writes it: {_said(error)}"
            raise Mistaken(text) from error
    module, colon, attribute = name.partition(":")
    if module.endswith(".py") and not (Path(module).is_file() and attribute):
        raise Mistaken(_of_python_file(name, Path(module), attribute))
    if not colon:
        raise Mistaken(
            f"{name!r} is no file, and no package.module:name, such as net:Net of net.py"
        )
    if not module or not attribute:
        raise Mistaken(f"{name!r} names no model: write package.module:name")
    found = _named(module, attribute)
    is_model = isinstance(found, (nn.Module, torch.jit.ScriptFunction))
    if not is_model and (isinstance(found, type) or not _takes_something(found)):
        found = _made(name, found)  # by a class, or a factory
    if not isinstance(found, (nn.Module, torch.jit.ScriptFunction)) and not inspect.isroutine(
        found
    ):
        raise Mistaken(
            f"{name} gives {_check.shown(found)}: write the name of a module, of a function, or of "
            "a class or factory that gives one"
        )
    return found


def _of_python_file(name: str, path: Path, attribute: str) -> str:
    """What to write for a Python file."""
    if not path.is_file():
        return f"{name!r}: there is no file {str(path)!r}"
    if not attribute:
        try:
            body = ast.parse(path.read_text(encoding="utf-8")).body
        except (SyntaxError, ValueError) as error:
            return f"{name}: {_said(error)}"
        kinds = (ast.ClassDef, ast.FunctionDef)
        names = [each.name for each in body if isinstance(each, kinds) and each.name[0] != "_"]
        if not names:
            return f"{name!r} is Python, and defines no class and no function"
        attribute = names[-1]
        others = f"; it has {', '.join(names)}" if len(names) > 1 else ""
    else:
        others = ""
    folder = "" if str(path.parent) == "." else f"in the folder {path.parent}: "
    return f"{name!r} is Python: write {folder}{path.stem}:{attribute}{others}"


def _named(module: str, attribute: str) -> Any:
    """What a module of that name, or a file, has of that name."""
    sys.path.insert(0, os.getcwd())
    if module.endswith(".py"):
        if not _is_file(module):
            raise Mistaken(f"{module}: there is no such file")
        sys.path.insert(0, str(Path(module).resolve().parent))
        module = Path(module).stem
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise Mistaken(f"{module}: {error}") from error
    except (SyntaxError, TypeError) as error:  # of that file; a relative name
        raise Mistaken(f"{module}: {_said(error)}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Mistaken(f"{module} has no `{attribute}`")
        found = getattr(found, part)
    return found


def data_of(name: str) -> Any:
    """The batches of ``--data``."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise Mistaken(f"--data {name!r} is no package.module:name, and no file.py:name")
    found = _named(module, attribute)
    return _made(name, found) if callable(found) and not hasattr(found, "__iter__") else found


def _made(name: str, factory: Any) -> Any:
    if not callable(factory):
        return factory
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise Mistaken(
            f"{name} is called without arguments, and does not take that ({error}): write a "
            "function without arguments that makes the model"
        ) from error
    except ValueError:  # has no signature
        pass
    return factory()


def _takes_something(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    required = (each.default is each.empty for each in parameters if each.kind not in _VARIADIC)
    return any(required)


_TENSORS = (Tensor, "Tensor", "torch.Tensor")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def inputs_of(texts: Sequence[str], device: str, seed: int = 0) -> tuple[Any, ...]:
    """The arguments that ``--input`` stands for."""
    generator = torch.Generator().manual_seed(seed)

    def made(value: Any) -> Any:
        if isinstance(value, str) and (tensor := _TENSOR.fullmatch(value.strip())):
            return _random(value, tensor[1], tensor[2], generator, device)
        if isinstance(value, list):
            return [made(each) for each in value]
        if isinstance(value, dict):
            return {key: made(each) for key, each in value.items()}
        return value

    arguments: list[Any] = []
    for text in texts:
        if _TENSOR.fullmatch(text.strip()):
            arguments.append(made(text))
            continue
        try:
            value = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            if not _is_file(text):
                raise Mistaken(
                    f"--input {text!r} is no tensor such as float32[2,3], no JSON and no file"
                ) from error
            loaded = _loaded_input(text, device)
            arguments += loaded if isinstance(loaded, tuple) else [loaded]
        else:
            arguments.append(made(value))
    return tuple(arguments)


def _loaded_input(path: str, device: str) -> Any:
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # of unpickling: of any class
        raise Mistaken(
            f"--input {path}: write a file that torch.save made of tensors and plain values "
            f"({_said(error)})"
        ) from error


def _random(text: str, name: str, sizes: str, generator: torch.Generator, device: str) -> Tensor:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise Mistaken(f"--input: {name!r} is no dtype of PyTorch's")
    try:
        shape = [int(size) for size in sizes.split(",") if size.strip()]
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(shape, generator=generator).to(dtype).to(device)
        return torch.randint(0, 2, shape, generator=generator).to(dtype).to(device)
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise Mistaken(f"--input {text}: no such tensor can be made ({_said(error)})") from error


def _check_command(given: argparse.Namespace) -> None:
    """What is wrong whatever the model is, before anything is loaded."""
    if device := getattr(given, "device", None):
        try:
            torch.empty(1, device=device)
        except Exception as error:  # of a backend that is not there: of any class
            raise Mistaken(f"--device {device}: {_said(error)}") from error
        if given.autocast and not torch.amp.is_autocast_available(torch.device(device).type):
            raise Mistaken(f"--autocast: there is no autocast for {device!r}")
    for option in ("output", "html", "resume"):
        path: Path | None = getattr(given, option, None)
        is_folder = getattr(given, "triton", False)
        if path and not is_folder and (path.is_dir() or not path.parent.is_dir()):
            why = "is a folder" if path.is_dir() else f"there is no folder {str(path.parent)!r}"
            raise Mistaken(f"--{option} {path}: {why}; write the path of a file to be written")
        if (
            path
            and not is_folder
            and not os.access(path if path.exists() else path.parent, os.W_OK)
        ):
            raise Mistaken(f"--{option} {path}: it may not be written there")
    if getattr(given, "triton", False) and not given.input:
        raise Mistaken("--triton needs --input: the configuration has its dtypes")


def _check_call(name: str, model: Any, method: str, inputs: Sequence[Any]) -> None:
    """Whether the model takes so many arguments."""
    called = getattr(model, method, None) if isinstance(model, nn.Module) else model
    if not callable(called):
        raise Mistaken(f"--method: {name} has no method {method!r}")
    if isinstance(model, torch.jit.ScriptFunction):
        return
    if isinstance(model, torch.jit.ScriptModule):
        if method == "forward":
            with _mistaken_if_refused():
                _C.check_examples(model._c, [tuple(inputs)])
        return
    try:
        bound = inspect.signature(called).bind(*inputs)
        for argument, value in bound.arguments.items():
            wanted = bound.signature.parameters[argument].annotation
            if wanted in _TENSORS and not isinstance(value, Tensor):
                raise Mistaken(
                    f"{name} takes a Tensor as `{argument}`, not {_check.shown(value)}: write "
                    "--input 'float32[2,3]', with its dtype and sizes"
                )
    except TypeError as error:
        raise Mistaken(
            f"{name} takes {inspect.signature(called)}, one --input for each ({error})"
        ) from error
    except ValueError:  # has no signature
        pass


@contextlib.contextmanager
def _step(text: str) -> Iterator[None]:
    """Says what is being done, and how long it took where that is more than a second."""
    shows = sys.stderr.isatty()
    if shows:
        print(f"{text} ...", end="\r", file=sys.stderr, flush=True)
    begin = time.monotonic()
    yield
    took = time.monotonic() - begin
    if shows or took > 1:
        print(f"{text}: {took:.1f} s".ljust(60), file=sys.stderr, flush=True)


def _on(model: Any, device: str) -> Any:
    return model.to(device).eval() if isinstance(model, nn.Module) else model


def _loaded(given: argparse.Namespace, *names: str) -> tuple[list[Any], tuple[Any, ...]]:
    """The models, in eval mode and on their device, and the arguments."""
    with _step("loading"):
        models = [_on(model_of(name), given.device) for name in names]
        inputs = inputs_of(given.input, given.device)
        if given.input or given.run is not run_freeze:
            for name, model in zip(names, models, strict=True):
                _check_call(name, model, getattr(given, "method", "forward"), inputs)
        return models, inputs


def _scoped(model: Any, autocast: str | None, device: str) -> Any:
    if autocast is None:
        return model
    return jit_amp.script(model, autocast=torch.autocast(device, dtype=_DTYPES[autocast]))


def _print(given: argparse.Namespace, text: object) -> None:
    print(text, file=given.out)


def run_explain(given: argparse.Namespace) -> int:
    limits = _limits(given)
    [model], inputs = _loaded(given, given.model)
    report = _explained(given, model, inputs, given.autocast, "")
    other: Report | None = None
    if given.against:
        other = report
        report = _reference(given, model, inputs)
    compared = report.compare(other) if other else None
    shown = other or report
    if given.html:
        (compared or shown).to_html(given.html)
    if given.json:
        _print(given, shown.to_json())
    else:
        _print(given, compared or shown.to_text(all=given.all))
    told = verdict.over(shown, limits) if limits else []
    for each in told:
        print(f"jit-amp: {each}", file=sys.stderr)
    return 1 if shown.refusal or told else 0


def _limits(given: argparse.Namespace) -> dict[str, float]:
    """The limits of ``--fail-over``, which have measured what they need."""
    if given.fail_over is None:
        return {}
    try:
        limits = verdict.limits_of(given.fail_over)
    except ValueError as error:
        raise Mistaken(f"--fail-over {error}") from error
    for what, names in verdict.NEEDS.items():
        if names & set(limits):
            setattr(given, what, True)
    return limits


def _explained(
    given: argparse.Namespace, model: Any, inputs: tuple[Any, ...], autocast: str | None, which: str
) -> Report:
    """The report of a model under an autocast around the call, where one is asked for."""
    scope: Any = contextlib.nullcontext()
    if autocast:
        scope = torch.autocast(given.device, dtype=_DTYPES[autocast])
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        model, scope = _scoped(model, autocast, given.device), contextlib.nullcontext()
    with (
        _step(f"running{which}"),
        torch.set_grad_enabled(given.gradients),
        _mistaken_if_refused(),
        scope,
    ):
        report = jit_amp.explain(
            model,
            inputs,
            method=given.method,
            numerics=given.numerics,
            gradients=given.gradients,
            timing=given.timing,
        )
    return dataclasses.replace(report, command=given.command)


def _reference(given: argparse.Namespace, model: Any, inputs: tuple[Any, ...]) -> Report:
    """The report that ``--against`` names: of a file, or of the same model in another dtype."""
    if given.against in (*_DTYPES, "none"):
        autocast = None if given.against == "none" else given.against
        return _explained(given, model, inputs, autocast, f" {given.against}")
    if not _is_file(given.against):
        raise Mistaken(
            f"--against {given.against!r} is no file that `jit-amp explain --json` wrote, and none "
            f"of {', '.join((*_DTYPES, 'none'))}"
        )
    try:
        return Report.from_json(Path(given.against).read_text(encoding="utf-8"))
    except ValueError as error:
        raise Mistaken(f"--against {given.against}: {error}") from error


def _written(path: Path, size: int, operators: Sequence[str]) -> str:
    """A line about a file."""
    in_words = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"
    return f"{path}: {in_words}, {len(operators)} kind{'s' * (len(operators) != 1)} of operators"


def run_export(given: argparse.Namespace) -> int:
    [model], inputs = _loaded(given, given.model)
    with _step("exporting"), torch.no_grad(), _mistaken_if_refused():
        scoped = _scoped(model, given.autocast, given.device)
        program = jit_amp.export(scoped, inputs, strict=given.strict)
    with _step("saving"):
        torch.export.save(program, given.output)
    operators = sorted({str(node.target) for node in program.graph.nodes if _is_operator(node)})
    size = given.output.stat().st_size
    text = _written(given.output, size, operators)
    if given.json:
        text = as_json({"output": str(given.output), "bytes": size, "operators": operators})
    _print(given, text)
    return 0


def _is_operator(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)


def run_freeze(given: argparse.Namespace) -> int:
    if given.precision and given.autocast:
        raise Mistaken("--autocast and --precision: the precision has the scope")
    [model], inputs = _loaded(given, given.model)
    if not isinstance(model, nn.Module):
        raise Mistaken(f"{given.model} is a function: write the name of a module to freeze")
    with _step("freezing"), torch.no_grad(), _mistaken_if_refused():
        scoped = _scoped(model, given.autocast, given.device)
        examples = inputs if given.input else None
        io_dtype = getattr(torch, given.io_dtype) if given.io_dtype else None
        frozen = jit_amp.freeze(
            scoped,
            example_inputs=examples,
            target=given.target,
            precision=given.precision,
            io_dtype=io_dtype,
        )
        if io_dtype:
            inputs = in_dtype(inputs, io_dtype)
    if not (given.autocast or given.precision or _has_scopes(model)):
        print(
            f"jit-amp: {given.model} has no autocast scope, so nothing is cast; --autocast bf16 "
            "puts one around it",
            file=sys.stderr,
        )
    saved = given.output / "1" / "model.pt" if given.triton else given.output
    with _mistaken_if_not_written(given.output):
        if given.triton:
            with _mistaken_if_refused():
                write_repository(given.output.parent, given.output.name, frozen, inputs)
        elif given.lite:
            frozen._save_for_lite_interpreter(str(saved))
        else:
            torch.jit.save(frozen, saved)
    operators = torch.jit.export_opnames(frozen)  # type: ignore[no-untyped-call]
    size = Path(saved).stat().st_size
    text = _written(given.output, size, operators)
    held = {weight.dtype for weight in weights_of(frozen, "forward")}
    for name in sorted(held.intersection(REDUCED)):
        if given.device == "cpu" and emulates(getattr(torch, name)):
            print(f"{name} is emulated on this processor: elsewhere it is faster", file=sys.stderr)
    if given.triton:
        text = f"{given.output}: a model of Triton's, with config.pbtxt and 1/model.pt"
    if given.json:
        text = as_json({"output": str(given.output), "bytes": size, "operators": operators})
    _print(given, text)
    return 0


def _has_scopes(model: nn.Module) -> bool:
    scripted = model if isinstance(model, torch.jit.ScriptModule) else torch.jit.script(model)
    return _C.has_scopes(scripted._c)


def run_tune(given: argparse.Namespace) -> int:
    if bool(given.data) == bool(given.input):
        raise Mistaken("tune needs either --data or --input")
    with _step("loading"):
        model = model_of(given.model)
        if not isinstance(model, nn.Module):
            raise Mistaken(f"{given.model} is a function: write the name of a module to tune")
        model = model.to(given.device)
        model = model if given.train else model.eval()
        data = data_of(given.data) if given.data else inputs_of(given.input, given.device)
        metric = _named(*given.metric.rsplit(":", 1)) if given.metric else None
    with _mistaken_if_refused():
        result = jit_amp.tune(
            model,
            data,
            dtype=_DTYPES.get(given.dtype) or getattr(torch, given.dtype),
            device_type=torch.device(given.device).type,
            metric=metric,
            tolerance=given.tolerance,
            units=given.units,
            budget=given.budget,
            seed=given.seed,
            resume=given.resume,
        )
    if given.output:
        given.output.write_text(result.to_json() + "\n", encoding="utf-8")
    if given.html:
        result.to_html(given.html)
    text = result.to_code(model) if given.code else result
    _print(given, result.to_json() if given.json else text)
    return 0


def _compared(path: str, a: Any, b: Any, steps: float) -> dict[str, Any]:
    """One output of both: whether it agrees, and how far apart it is in steps of its dtype."""
    found: dict[str, Any] = {"output": path, "agrees": True, "off": 0.0, "why": ""}
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        found["agrees"] = type(a) is type(b) and a == b
        found["why"] = "" if found["agrees"] else f"{a!r} and {b!r}"
    elif (a.dtype, a.shape) != (b.dtype, b.shape):
        found["agrees"] = False
        found["why"] = f"{a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}"
    elif not torch.equal(a, b):
        found["off"] = off = _steps_apart(a.detach().cpu(), b.detach().cpu())
        found["agrees"] = off <= steps
        found["why"] = f"{off:.3g} steps of {str(a.dtype).removeprefix('torch.')} apart"
    return found


def _steps_apart(a: Tensor, b: Tensor) -> float:
    """How far, in steps of the dtype at the largest entry; infinite where it is no rounding."""
    if not (a.dtype.is_floating_point or a.is_complex()):
        return float("inf")
    wide = torch.complex128 if a.is_complex() else torch.float64
    apart = (a != b) & ~(a.isnan() & b.isnan())
    x, y = a.to(wide)[apart], b.to(wide)[apart]
    if not x.numel():
        return 0.0
    if not (x.isfinite().all() and y.isfinite().all()):
        return float("inf")
    scale = a.to(wide)[a.isfinite()].abs().max().item()
    return (x - y).abs().max().item() / max(scale, 1e-30) / torch.finfo(a.dtype).eps


def _callable_of(name: str, device: str) -> Any:
    """A model, or what runs a file of another format."""
    if not (_is_file(name) and Path(name).suffix in formats.NEEDS):
        return _on(model_of(name), device)
    try:
        run, is_flat = formats.load(name)
    except (ImportError, ValueError) as error:
        raise Mistaken(str(error)) from error
    return _Foreign(run, is_flat)


class _Foreign:
    """A model of another format. ``is_flat``: it gives a list of tensors in any case."""

    def __init__(self, run: Callable[..., Any], is_flat: bool) -> None:
        self.run, self.is_flat = run, is_flat

    def __call__(self, *arguments: Any) -> Any:
        return self.run(*arguments)


def _forms(model: Any, name: str, plain: bool) -> Iterator[tuple[str, Any]]:
    """The model, and what is saved and loaded of it."""
    yield name, model
    if isinstance(model, torch.jit.ScriptModule) and not plain:
        file = io.BytesIO()
        torch.jit.save(model, file)
        file.seek(0)
        loaded = torch.jit.load(file)  # type: ignore[no-untyped-call]
        yield f"{name}, saved and loaded", loaded
        mobile = importlib.import_module("torch.jit.mobile")
        try:
            lite = io.BytesIO(model._save_to_buffer_for_lite_interpreter())
            yield f"{name}, lite interpreter", mobile._load_for_lite_interpreter(lite)
        except RuntimeError as error:
            print(f"{name}: no lite form: {str(error).splitlines()[0]}", file=sys.stderr)


def run_verify(given: argparse.Namespace) -> int:
    with _step("loading"):
        first, *others = (_callable_of(n, given.device) for n in (given.first, *given.second))
        inputs = inputs_of(given.input, given.device)
        for name, model in zip((given.first, *given.second), (first, *others), strict=True):
            if not isinstance(model, _Foreign):
                _check_call(name, model, "forward", inputs)
        if isinstance(first, torch.jit.ScriptModule) and _C.has_scopes(first._c):
            first = jit_amp.script(first)  # its scopes as eager means them
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        scope: Any = contextlib.nullcontext()
        if given.autocast:
            scope = torch.autocast(given.device, dtype=_DTYPES[given.autocast])
        with _step(given.first), scope:
            written = fresh(inputs)
            expected = list(leaves(first(*written), "output"))
        named = zip(given.second, others, strict=True)
        for form, called in (each for n, m in named for each in _forms(m, n, given.plain)):
            for call in range(3):
                arguments = fresh(inputs)
                with _step(f"{form}, call {call + 1}"):
                    actual = list(leaves(called(*arguments), "output"))
                rows += [
                    {**row, "form": form, "call": call + 1}
                    for row in _changed_arguments(inputs, written, arguments, given.steps)
                ]
                if isinstance(called, _Foreign) and called.is_flat and len(actual) == len(expected):
                    actual = [(path, b) for (path, _), (_, b) in zip(expected, actual, strict=True)]
                if [path for path, _ in actual] != [path for path, _ in expected]:
                    why = f"{[p for p, _ in expected]} and {[p for p, _ in actual]}"
                    rows.append({"output": "output", "agrees": False, "off": 0.0, "why": why})
                    rows[-1] |= {"form": form, "call": call + 1}
                    continue
                for (path, a), (_, b) in zip(expected, actual, strict=True):
                    rows.append(
                        {**_compared(path, a, b, given.steps), "form": form, "call": call + 1}
                    )
    ordered = sorted(rows, key=lambda row: (row["agrees"], -row["off"]))
    worst = ordered[0] if rows else None
    lines = {path: at for m in (first, *others) for path, at in _lines_of_outputs(m).items()}
    if worst:
        place = lines.get(worst["output"])
        worst["line"] = str(place) if place else None
    wrong = [row for row in rows if not row["agrees"]]
    if given.json:
        _print(given, as_json({"agrees": not wrong, "worst": worst, "rows": rows}))
    else:
        print(f"{len(rows) - len(wrong)} of {len(rows)} outputs agree, of three calls of each form")
        if worst and (wrong or worst["off"]):
            made_in = f", made in {place}: {place.text}" if place else ""
            print(f"worst: {worst['output']} of {worst.get('form', '')}: {worst['why']}{made_in}")
        if len(others) > 1:
            print(_table_of_forms(ordered))
    return 1 if wrong else 0


def _changed_arguments(
    inputs: Any, expected: Any, actual: Any, steps: float
) -> Iterator[dict[str, Any]]:
    """The arguments that one of two calls has written to, compared as outputs are."""
    before, first, second = (dict(leaves(each, "argument")) for each in (inputs, expected, actual))
    for path in before | first | second:
        a, b = first.get(path), second.get(path)
        if not all(_compared(path, before.get(path), each, 0)["agrees"] for each in (a, b)):
            yield _compared(f"{path} after the call", a, b, steps)


def _table_of_forms(rows: list[dict[str, Any]]) -> str:
    """A line for each form, with its worst output; the worst form first."""
    worst: dict[str, dict[str, Any]] = {}
    for row in rows:  # sorted
        worst.setdefault(row["form"], row)
    lines = [("form", "agrees", "worst output", "")]
    for form, row in worst.items():
        lines.append((form, "yes" if row["agrees"] else "no", row["output"], row["why"] or "equal"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _lines_of_outputs(model: Any) -> dict[str, Place]:
    """The source line that makes each output, as far as the graph says it."""

    def walk(value: Any, path: str) -> Iterator[tuple[str, Place]]:
        node = value.node()
        inputs = list(node.inputs())
        if node.kind() in ("prim::TupleConstruct", "prim::ListConstruct"):
            for i, each in enumerate(inputs):
                yield from walk(each, f"{path}[{i}]")
        elif node.kind() == "prim::DictConstruct":
            for key, each in zip(inputs[::2], inputs[1::2], strict=True):
                yield from walk(each, f"{path}[{key.toIValue()!r}]")
        elif place := place_of(node):
            yield path, place

    graph = getattr(model, "inlined_graph", None)
    return dict(walk(next(graph.outputs()), "output")) if graph else {}


def run_lower(given: argparse.Namespace) -> int:
    model = _on(model_of(given.model), "cpu")
    with _mistaken_if_refused():
        graph = jit_amp.lowered_graph(model, given.method, ambient=tuple(given.ambient))
    _print(given, as_json({"graph": str(graph)}) if given.json else graph)
    return 0


def run_policy(given: argparse.Namespace) -> int:
    if not given.json:
        only = [] if given.operator is None else [given.operator]
        return policy.main([*only, *(["--reach"] if given.reach else [])])
    if given.operator is not None:
        with _mistaken_if_refused():
            _print(given, as_json(policy.known_of(given.operator)))
        return 0
    told = policy.reach if given.reach else policy.table
    _print(given, as_json({device: told(device) for device in get_args(policy.DeviceType)}))
    return 0


def run_env(given: argparse.Namespace) -> int:
    found = environment()
    if given.json:
        _print(given, as_json(found))
        return 0
    wide = max(map(len, found))
    _print(given, "\n".join(f"{name:{wide}}  {value}" for name, value in found.items()))
    return 0


def run_errors(given: argparse.Namespace) -> int:
    if given.code is None:
        numbers = errors.codes()
        told = [errors.told(each) for each in numbers]
        _print(given, as_json(told) if given.json else errors.listed())
        return 0
    try:
        number = errors.number_of(given.code)
    except ValueError as error:
        raise Mistaken(str(error)) from error
    if given.json:
        _print(given, as_json(errors.told(number)))
    else:
        _print(given, errors.text_of(number))
    return 0


def run_completion(given: argparse.Namespace) -> int:
    script = errors.completion(_parser(), given.shell)
    _print(given, as_json({"script": script}) if given.json else script)
    return 0


def _metric(text: str) -> str:
    if not all(text.partition(":")):
        raise argparse.ArgumentTypeError(f"{text!r} is no package.module:name, nor file.py:name")
    return text


def _steps(text: str) -> float:
    try:
        steps = float(text)
    except ValueError:
        steps = -1.0
    if not 0 <= steps < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on, such as 8")
    return steps


def _file(text: str) -> Path:
    if not _is_file(text):
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jit-amp", description=jit_amp.__doc__)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument(
        "--version",
        action="version",
        version=f"jit-amp {jit_amp.__version__}, torch {torch.__version__}",
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> Any:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        made.add_argument("--json", action="store_true", help="print JSON")
        return made

    def takes_inputs(made: Any) -> None:
        made.add_argument(
            "--input", "--inputs", action="append", default=[], metavar="INPUT", help=INPUT_HELP
        )
        made.add_argument(
            "--device", default="cpu", help="where it runs, such as cuda; cpu if not given"
        )
        made.add_argument("--autocast", choices=[*_DTYPES], help="a scope around all of it")

    made = command("explain", run_explain, "which line runs in which precision, and why")
    made.add_argument("model", help=MODEL_HELP)
    takes_inputs(made)
    made.add_argument(
        "--method", default="forward", help="the module's method; forward if not given"
    )
    made.add_argument("--numerics", action="store_true", help="where accuracy is lost")
    made.add_argument(
        "--gradients", action="store_true", help="where gradients overflow or underflow"
    )
    made.add_argument("--timing", action="store_true", help="where time goes")
    made.add_argument("--html", type=Path, help="write the page there")
    made.add_argument("--all", action="store_true", help="all lines, with their operators")
    made.add_argument(
        "--against",
        metavar="REPORT",
        help="compare with a report that --json wrote, or with the same under bf16, fp16 or none",
    )
    made.add_argument(
        "--fail-over",
        metavar="LIMITS",
        help='exit status 1 over a limit, as in "overflows=0, error=1e-2"; of '
        + ", ".join(verdict.LIMITS),
    )

    made = command("freeze", run_freeze, "a frozen module of stock operators")
    made.add_argument("model", help=MODEL_HELP)
    takes_inputs(made)
    made.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    made.add_argument(
        "--target",
        choices=["portable", "server"],
        default="portable",
        help="server: faster, for x86 alone; portable if not given",
    )
    made.add_argument("--precision", type=_file, help="the file that jit-amp tune has written")
    made.add_argument(
        "--io-dtype",
        choices=["float32", "float64", "bfloat16", "float16"],
        help="the dtype of floating-point inputs and results; the model's if not given",
    )
    form = made.add_mutually_exclusive_group()
    form.add_argument("--lite", action="store_true", help="for the lite interpreter, on phones")
    form.add_argument(
        "--triton", action="store_true", help="a folder for the model repository of Triton"
    )

    made = command("tune", run_tune, "the fewest units that have to stay in float32")
    made.add_argument("model", help=MODEL_HELP)
    made.add_argument("--data", help="batches: file.py:name of what has them, or of what makes it")
    made.add_argument("--input", action="append", default=[], help=INPUT_HELP)
    made.add_argument("--device", default="cpu")
    made.add_argument("--train", action="store_true", help="in training mode, and not in eval mode")
    made.add_argument("--dtype", choices=["float16", "bfloat16", *_DTYPES], required=True)
    made.add_argument("--metric", type=_metric, help="file.py:name of a function")
    made.add_argument("--tolerance", type=_steps, help="the largest error that is accepted")
    made.add_argument("--units", choices=["module", "function", "line"], default="module")
    made.add_argument("--budget", type=_steps, help="seconds")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--resume", type=Path, help="a file to keep what was measured in")
    made.add_argument("-o", "--output", type=Path, help="write the precision there, as JSON")
    made.add_argument("--html", type=Path, help="write the page there")
    made.add_argument("--code", action="store_true", help="print a diff for the model's source")
    made.set_defaults(autocast=None)

    made = command("export", run_export, "a program of torch.export's, a .pt2 file")
    made.add_argument("model", help=MODEL_HELP)
    takes_inputs(made)
    made.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    made.add_argument("--strict", action="store_true", help="traced by TorchDynamo too")

    made = command("verify", run_verify, "whether models give the same, in whatever format")
    made.add_argument("first", help=MODEL_HELP)
    made.add_argument("second", nargs="+", help="the same")
    takes_inputs(made)
    made.add_argument("--plain", action="store_true", help="not what is saved and loaded of it")
    made.add_argument(
        "--steps", type=_steps, default=8.0, help="how many steps of the dtype apart is the same"
    )

    made = command("lower", run_lower, "the graph that a call runs")
    made.add_argument("model", help=MODEL_HELP)
    made.add_argument(
        "--method", default="forward", help="the module's method; forward if not given"
    )
    made.add_argument(
        "--ambient",
        nargs="*",
        default=[],
        choices=["cpu", "cuda"],
        help="the devices whose autocast is on around the call",
    )

    made = command("policy", run_policy, "autocast's tables beside the installed torch")
    made.add_argument("operator", nargs="?", help="all that is known of it, such as aten::cat")
    made.add_argument("--reach", action="store_true", help="what freezing can do with operators")

    command("env", run_env, "versions, processor and settings, for a bug report")

    made = command("errors", run_errors, "what an error's code means, and what to write instead")
    made.add_argument("code", nargs="?", help="such as JA101; all codes if not given")

    made = command("completion", run_completion, "a script by which a shell completes jit-amp")
    made.add_argument(
        "shell", choices=["bash", "zsh", "fish"], help='eval "$(jit-amp completion bash)"'
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status: 1 where something is wrong, 2 for a mistake."""
    given = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            for known in ("`torch.jit.[a-z_]+` is deprecated", "Lite Interpreter is deprecated"):
                warnings.filterwarnings("ignore", known)
            given.out = sys.stdout
            given.command = shlex.join(
                ["jit-amp", *(sys.argv[1:] if arguments is None else arguments)]
            )
            # What a model prints is no JSON.
            with contextlib.redirect_stdout(sys.stderr if given.json else sys.stdout):
                _check_command(given)
                return int(given.run(given))
    except BrokenPipeError:
        return 0
    except Exception as error:
        if given.debug:
            raise
        is_told = isinstance(error, (Mistaken, RuntimeError)) and str(error)
        text = str(error) if is_told else f"{type(error).__name__}: {error}"
        if " " not in text:  # a mere number or name
            text = f"{type(error).__name__}: {text}"
        print(f"jit-amp: {text}", file=sys.stderr)
        return 2 if isinstance(error, Mistaken) else 1


if __name__ == "__main__":
    sys.exit(main())
