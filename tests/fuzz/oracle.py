"""Runs a program in eager and as jit_amp makes it, and says where they differ."""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import re
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from artefact import casts_at_run_time, same
from jit.support import (
    AMBIENTS,
    autocast_state,
    fresh,
    imported,
    restore_autocast,
    tensors_of,
)
from torch import Tensor, nn

import jit_amp

from .programs import Program

CALLS = 3  # the executor changes its plan between the first ones
ROUNDING = 2.0**-6  # of gradients, relative to the largest entry
OVERFLOW = 2.0**14  # of float16, where a sum has up to four terms
CANCELLED = 2.0**-20  # relative to the largest of all: what is left where large terms cancel
NOISE = 1e-8  # absolute: the inputs are of the order of 1
REFUSED = re.compile("AssertionError: jit_amp: |This module was frozen by jit_amp")
"""What an artefact's own checks raise, by the line that is kept."""
NOT_RESIZABLE = "Trying to resize storage that is not resizable"
IN_PROCESS = "in process"
_count = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """What came of a program.

    Attributes:
        verdict: "agrees"; "raises", where eager raises and so does the scripted program;
            "refused", with AutocastError; "not scriptable", by PyTorch; "differs"; or "PyTorch's",
            where it differs, and so does what torch.jit.script makes of it without its scopes.
        kind: what differs, in a few words that are the same for programs that differ alike; of the
            others, the first line of what was raised.
        detail: where, and how.
        frozen: what freezing came to: "frozen", "refused", or nothing where it was not tried.
        let_in, turned_away: of the other inputs than the example that eager takes, how many an
            artefact took, and how many its check refused.
        asks: whether the artefact decides about casts at run time.
    """

    verdict: str
    kind: str = ""
    detail: str = ""
    frozen: str = ""
    let_in: int = 0
    turned_away: int = 0
    asks: bool = False


class Difference(Exception):
    """The first thing in which eager and jit_amp differ."""

    def __init__(self, kind: str, detail: str, line: int = 0) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.line = kind, detail, line


def load(source: str, folder: Path) -> ModuleType:
    """Imports source as a module of its own."""
    return imported(source, folder / f"program_{next(_count)}.py")


def compare(actual: Any, expected: Any, where: str) -> None:
    """The same structure, dtypes, shapes and values; a NaN is a NaN."""
    if isinstance(expected, Tensor):
        if not isinstance(actual, Tensor):
            raise Difference("structure", f"{where}: {type(actual).__name__}, eager a tensor")
        if actual.dtype != expected.dtype:
            raise Difference("dtype", f"{where}: {actual.dtype}, eager {expected.dtype}")
        if actual.shape != expected.shape:
            raise Difference("shape", f"{where}: {actual.shape}, eager {expected.shape}")
        if actual.requires_grad != expected.requires_grad:
            raise Difference(
                "requires_grad", f"{where}: {actual.requires_grad}, eager {expected.requires_grad}"
            )
        if not same_values(actual, expected):
            raise Difference("values", f"{where}: {actual.tolist()}, eager {expected.tolist()}")
    elif isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            raise Difference("structure", f"{where}: {type(actual).__name__}")
        for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            compare(ours, theirs, f"{where}[{i}]")
    elif isinstance(expected, dict):
        if list(actual) != list(expected):
            raise Difference("structure", f"{where}: {list(actual)}, eager {list(expected)}")
        for key, value in expected.items():
            compare(actual[key], value, f"{where}[{key!r}]")
    elif type(actual) is not type(expected) or actual != expected:
        raise Difference("number", f"{where}: {actual!r}, eager {expected!r}")


def same_values(actual: Tensor, expected: Tensor) -> bool:
    actual, expected = actual.detach(), expected.detach()
    if torch.equal(actual, expected):
        return True
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return False
    nans = expected.isnan()
    return torch.equal(actual.isnan(), nans) and torch.equal(
        actual.masked_fill(nans, 0), expected.masked_fill(nans, 0)
    )


def aliasing(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor, the first one that has its storage."""
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [storages.index(storage) for storage in storages]


def attributes(module: nn.Module, like: nn.Module) -> dict[str, Any]:
    """Parameters, buffers and the attributes that `like` has, of all submodules."""
    found: dict[str, Any] = dict(module.state_dict(keep_vars=True))
    submodules = dict(module.named_modules())
    for path, child in like.named_modules():
        for name, value in vars(child).items():
            if name != "training" and isinstance(value, (bool, int, Tensor)):
                found[f"{path}.{name}"] = getattr(submodules[path], name)
    return found


@dataclass
class _Run:
    """One call: what it returned or raised, and what it left behind."""

    raised: str | None
    state_kept: bool
    result: Any
    arguments: tuple[Any, ...]
    state: dict[str, Any]
    shared: list[int]
    gradients: dict[str, Tensor] | None
    raised_backward: str | None = None
    line: int = 0  # of the program's file, where it raised


@dataclass
class _Side:
    """A callable, the module that it is of, and how it is called."""

    function: Callable[..., Any]
    program: Program
    owner: nn.Module | None = None
    like: nn.Module | None = None
    frozen: bool = False  # it is an artefact, or what one is compared with

    def run(self, inputs: Sequence[Any], ambient: str) -> _Run:
        arguments = fresh(tuple(inputs))
        torch.manual_seed(0)
        result, raised, kept, line = None, None, True, 0
        with _cache(self.program.cache), AMBIENTS[ambient]():
            before = _thread_state()
            try:
                result = self.function(*arguments)
            except Exception as error:
                raised, line = _first_line(error), _line_of(error)
            kept = _thread_state() == before
            _restore(before)
        owner = attributes(self.owner, self.like or self.owner) if self.owner else {}
        state = {name: _copied(value) for name, value in owner.items()}
        outputs = tensors_of(result)
        leaves = tensors_of(arguments)
        if self.frozen:
            # Of an artefact, results may be one constant.
            shared = [i for i in aliasing([*leaves, *outputs])[len(leaves) :] if i < len(leaves)]
        else:
            shared = aliasing([*leaves, *outputs, *tensors_of(owner)])
        gradients, raised_backward = None, None
        if self.program.gradients and raised is None:
            names = {f"input {i}": leaf for i, leaf in enumerate(leaves)}
            if isinstance(self.owner, nn.Module):
                names.update(self.owner.named_parameters())
            gradients, raised_backward = _gradients(outputs, names)
        return _Run(
            raised, kept, result, arguments, state, shared, gradients, raised_backward, line
        )


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _gradients(
    outputs: Sequence[Tensor], leaves: dict[str, Tensor]
) -> tuple[dict[str, Tensor], str | None]:
    for leaf in leaves.values():
        leaf.grad = None
    parts = [output.float().pow(2).sum() for output in outputs if output.requires_grad]
    if not parts:
        return {}, None
    try:
        torch.autograd.backward(torch.stack(parts).sum())
    except Exception as error:
        return {}, _first_line(error)
    return {key: leaf.grad for key, leaf in leaves.items() if leaf.grad is not None}, None


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    of_torchscript = lines and "failed in the TorchScript interpreter" in lines[0]
    last = lines[-1] if isinstance(error, torch.jit.Error) or of_torchscript else ""
    return f"{type(error).__name__}: {last or (lines[0] if lines else '')}"[:300]


def _line_of(error: BaseException) -> int:
    line = 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        if Path(frame.f_code.co_filename).name.startswith("program_"):
            line = number
    return line


def kept_alive(source: str, line: int) -> str:
    """The source with a use of what the statement on a line assigns, which TorchScript keeps."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            body: Any = getattr(node, name, None)
            for i, statement in enumerate(body if isinstance(body, list) else []):
                if getattr(statement, "lineno", 0) == line and (target := _written(statement)):
                    body[i + 1 : i + 1] = ast.parse(f"assert {target}.numel() >= 0").body
                    return ast.unparse(tree)
    return source


def _written(statement: ast.stmt) -> str | None:
    """What a statement assigns or writes to."""
    target: ast.expr
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign):
        target = statement.target
    elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        out = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
        method = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value)
        target = (out or call.args)[0] if method in ("torch", "F") else call.func
    else:
        return None
    while not isinstance(target, ast.Name):
        if isinstance(target, ast.Tuple):
            target = target.elts[0]
        elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            break
        elif isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        elif isinstance(target, ast.Call):
            target = target.func
        else:
            return None
    return ast.unparse(target)


@contextlib.contextmanager
def _cache(enabled: bool) -> Iterator[None]:
    torch.set_autocast_cache_enabled(enabled)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(True)


def _thread_state() -> tuple[Any, ...]:
    return (torch.is_grad_enabled(), *autocast_state())


def _restore(state: tuple[Any, ...]) -> None:
    """The thread as it was: a scope entered by hand is not left by an exception."""
    if _thread_state() == state:
        return
    torch.set_grad_enabled(state[0])
    restore_autocast(state[1:])


def compare_runs(actual: _Run, expected: _Run, where: str, exact: bool = False) -> None:
    """`exact`: gradients too are the same bit for bit."""
    if expected.raised is not None or actual.raised is not None:
        if actual.raised is None:
            raise Difference("raises in eager only", f"{where}: {expected.raised}", expected.line)
        if expected.raised is None:
            if "loaded" in where and NOT_RESIZABLE in (actual.raised or ""):
                return  # PyTorch's: what was loaded from a file has memory of a fixed size
            raise Difference("raises scripted only", f"{where}: {actual.raised}")
        if expected.state_kept and not actual.state_kept:
            raise Difference("state of the thread", f"{where}: not the same after an error")
        return
    compare(actual.result, expected.result, f"{where}, result")
    compare(list(actual.arguments), list(expected.arguments), f"{where}, inputs")
    try:
        compare(actual.state, expected.state, f"{where}, attributes")
    except Difference as difference:
        raise Difference(f"attributes' {difference.kind}", difference.detail) from None
    if actual.shared != expected.shared:
        raise Difference("memory shared", f"{where}: {actual.shared}, eager {expected.shared}")
    if actual.state_kept != expected.state_kept:
        raise Difference("state of the thread", f"{where}: not the same after the call")
    if expected.gradients is not None and actual.gradients is not None:
        _compare_gradients(actual, expected, where, exact)


def _compare_gradients(actual: _Run, expected: _Run, where: str, exact: bool) -> None:
    if actual.raised_backward or expected.raised_backward:
        # TorchScript drops a write that nobody reads, and has operators for numbers, which save
        # nothing for the backward: so it may go on.
        theirs_alone = ("by an inplace operation", "through the graph a second time")
        if any(text in (expected.raised_backward or "") for text in theirs_alone):
            return
        if bool(actual.raised_backward) != bool(expected.raised_backward):
            raise Difference(
                "backward raises on one side",
                f"{where}: {actual.raised_backward}, eager {expected.raised_backward}",
            )
        return
    ours, theirs = actual.gradients or {}, expected.gradients or {}
    if ours.keys() != theirs.keys():
        raise Difference("gradients' names", f"{where}: {sorted(ours)}, eager {sorted(theirs)}")
    whole = max((g.abs().max().item() for g in theirs.values() if g.isfinite().all()), default=0.0)
    for name, gradient in theirs.items():
        if ours[name].dtype != gradient.dtype:
            raise Difference(
                "gradients' dtype", f"{where}, {name}: {ours[name].dtype}, eager {gradient.dtype}"
            )
        if exact:
            if not same(ours[name], gradient):
                off = (ours[name] - gradient).abs().max().item()
                raise Difference("gradients", f"{where}, {name}: not the same, off by {off:.3g}")
            continue
        if not gradient.isfinite().all():
            continue
        largest = gradient.abs().max().item()
        if largest > OVERFLOW and not ours[name].isfinite().all():
            continue  # a sum of gradients in float16, where eager has one cast more
        off = (ours[name] - gradient).abs().max().item()
        if not off <= max(ROUNDING * largest, CANCELLED * whole, NOISE):
            raise Difference("gradients", f"{where}, {name}: off by {off:.3g} of {largest:.3g}")


@dataclass(frozen=True)
class _Makers:
    """What makes the scripted and the frozen program."""

    script: Callable[[Any], Any]
    freeze: Callable[[Any, Any], Any]


def _loaded(file: io.BytesIO) -> Any:
    return torch.jit.load(file)  # type: ignore[no-untyped-call]


def _plainly_frozen(made: Any, examples: Any) -> Any:
    return torch.jit.freeze(torch.jit.script(made))


# The functions are looked up at each call.
JIT_AMP = _Makers(
    lambda made: jit_amp.script(made),
    lambda made, examples: jit_amp.freeze(made, example_inputs=examples, optimize_numerics=False),
)
PYTORCH = _Makers(torch.jit.script, _plainly_frozen)


def _resized(value: Any, size: int) -> Any:
    """The same with `size` wherever the program's shapes have 4."""
    if isinstance(value, list):
        return [_resized(item, size) for item in value]
    if not isinstance(value, Tensor):
        return value
    shape = [size if n == 4 else n for n in value.shape]
    if value.dtype is torch.int64 and value.dim() == 1:
        return torch.randperm(size)  # indices
    if not value.dtype.is_floating_point:
        return torch.randint(1, 4, shape).to(value.dtype)
    return (torch.randn(shape) / 2).to(value.dtype)


def _of_rank(value: Any, rank: int) -> Any:
    """The same of a vector, with another number of dimensions."""
    is_vector = isinstance(value, Tensor) and value.dim() == 1 and value.is_floating_point()
    return value.detach()[0] if is_vector and rank == 0 else value


def _strided(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dim() == 2:
        return value.detach().t().contiguous().t()
    return value


def _otherwise(value: Any, n: int) -> Any:
    """Numbers, switches, None and lists as they are not in the example."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return n
    if value is None:
        return torch.randn(4) / 2
    if isinstance(value, list):
        return [value[i % len(value)].detach().clone() for i in range(n)]
    return value


def varied(inputs: tuple[Any, ...], seed: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Other inputs of the same types: sizes, ranks, lengths, numbers, strides. None is of other
    dtypes: what holds of a dtype is checked by the artefact."""
    torch.manual_seed(seed)
    sizes = (1, 2, 5, 0)
    size = sizes[seed % len(sizes)]
    yield f"sizes of {size}", tuple(_resized(value, size) for value in inputs)
    yield "a vector without dimensions", tuple(_of_rank(value, 0) for value in inputs)
    yield "other strides", tuple(_strided(value) for value in inputs)
    for n in (seed % 4, (seed + 1) % 4):
        yield f"other paths, {n}", tuple(_otherwise(value, n) for value in inputs)
    yield "sizes of 3", tuple(_resized(value, 3) for value in inputs)


class _Checker:
    def __init__(self, program: Program, module: ModuleType, makers: _Makers) -> None:
        self.program, self.module, self.makers = program, module, makers
        self.is_module = hasattr(module, "Program")
        torch.manual_seed(0)
        self.inputs: tuple[Any, ...] = module.inputs()

    def made(self) -> Any:
        """The program, and where it is a module, a new one of the same weights."""
        if not self.is_module:
            return self.module.program
        torch.manual_seed(1)
        made = self.module.Program().eval()
        return made if self.program.gradients else made.requires_grad_(False)

    def eager(self) -> _Side:
        made = self.made()
        return _Side(made, self.program, made if self.is_module else None)

    def in_process(self) -> str | None:
        """Compares what jit_amp.script makes.

        Returns:
            What eager raised under the first ambient, if it did.
        """
        made = self.made()
        reference = self.eager()
        scripted = _Side(self.makers.script(made), self.program)
        if self.is_module:
            scripted.owner, scripted.like = cast(nn.Module, scripted.function), made
        raised = None
        exact = "torch.jit.fork" not in self.program.source  # tasks have casts in their graphs
        for ambient in self.program.ambients:
            for call in range(CALLS):
                expected = reference.run(self.inputs, ambient)
                raised = raised or expected.raised
                actual = scripted.run(self.inputs, ambient)
                compare_runs(actual, expected, f"ambient {ambient}, call {call + 1}", exact)
        return raised

    @torch.no_grad()
    def frozen(self) -> str:
        """Compares what jit_amp.freeze makes, without and with example inputs."""
        reference = replace(self.eager(), owner=None, frozen=True)
        runs = []
        for _ in range(CALLS):
            run = reference.run(self.inputs, "none")
            # A later call may write to what an earlier one was given or returned.
            result, arguments = fresh(run.result), fresh(run.arguments)
            runs.append(replace(run, result=result, arguments=arguments, state={}))
        if any(run.raised for run in runs):
            return ""
        others = self._others(reference)
        for examples in (None, fresh(self.inputs)):
            made = self.made()
            before = {name: _copied(value) for name, value in attributes(made, made).items()}
            try:
                artefact = self.makers.freeze(made, examples)
            except jit_amp.AutocastError:
                return "refused"
            where = "frozen with examples" if examples else "frozen"
            compare(attributes(made, made), before, f"{where}, module given")
            file = io.BytesIO()
            torch.jit.save(artefact, file)
            file.seek(0)
            for name, runner in ((where, artefact), (f"{where}, loaded", _loaded(file))):
                side = _Side(runner, self.program, frozen=True)
                for call, expected in enumerate(runs):
                    actual = side.run(self.inputs, "none")
                    if REFUSED.search(actual.raised or ""):
                        return "refused"  # by a check in the artefact
                    try:
                        compare_runs(actual, expected, f"{name}, call {call + 1}")
                    except Difference as difference:
                        raise Difference(f"frozen: {difference.kind}", difference.detail) from None
            self._compare_others(side, others, where)
        return "frozen"

    def _others(self, reference: _Side) -> list[tuple[str, tuple[Any, ...], _Run]]:
        """Other inputs than the example, and what eager gives for them, as far as it takes them."""
        others: list[tuple[str, tuple[Any, ...], _Run]] = []
        for name, inputs in varied(self.inputs, zlib.crc32(self.program.source.encode())):
            run = reference.run(inputs, "none")
            if run.raised and self.is_module:
                break  # and may have changed the module before
            if not run.raised:
                result, arguments = fresh(run.result), fresh(run.arguments)
                others.append(
                    (name, inputs, replace(run, result=result, arguments=arguments, state={}))
                )
        return others

    def _compare_others(
        self, side: _Side, others: Sequence[tuple[str, tuple[Any, ...], _Run]], where: str
    ) -> None:
        for name, inputs, expected in others:
            actual = side.run(inputs, "none")
            if REFUSED.search(actual.raised or ""):
                if self.is_module:
                    return  # its state is no longer the reference's
                continue
            try:
                compare_runs(actual, expected, f"{where}, loaded, {name}")
            except Difference as difference:
                raise Difference(
                    f"frozen, other inputs: {difference.kind}", f"{name}: {difference.detail}"
                ) from None


class _ArtefactChecker(_Checker):
    """Of a program of `artefacts`: frozen with its example, and called with others."""

    let_in = turned_away = 0
    asks = False

    def compare_calls(self, side: _Side, calls: Sequence[tuple[str, Any, _Run]], of: str) -> None:
        """Twice over: what the executor made for some is used for others."""
        for turn in range(2):
            for name, inputs, expected in calls:
                actual = side.run(inputs, "none")
                refused = bool(REFUSED.search(actual.raised or ""))
                if name != "example" and turn == 0 and of != IN_PROCESS:
                    self.turned_away += refused
                    self.let_in += not refused
                if refused:
                    continue
                try:
                    compare_runs(actual, expected, f"{of}, turn {turn}, {name}")
                except Difference as difference:
                    raise Difference(f"{of}: {difference.kind}", difference.detail) from None

    def in_process(self) -> str | None:
        eager = replace(self.eager(), owner=None, frozen=True)
        self.calls = []
        others = enumerate(self.module.others())
        for name, inputs in (("example", self.inputs), *((f"B {n}", other) for n, other in others)):
            run = eager.run(inputs, "none")
            if run.raised and name == "example":
                return run.raised
            if not run.raised:
                self.calls.append((name, inputs, run))
        if zlib.crc32(self.program.source.encode()) % 4 == 0:
            side = _Side(self.makers.script(self.made()), self.program, frozen=True)
            self.compare_calls(side, self.calls, IN_PROCESS)
        return None

    def frozen(self) -> str:
        if not self.calls:
            return ""
        crc = zlib.crc32(self.program.source.encode())
        for examples in (fresh(self.inputs), None):
            if examples is None and crc % 8:
                continue  # most programs with examples alone: without them nothing is believed
            try:
                artefact = self.makers.freeze(self.made(), examples)
            except jit_amp.AutocastError:
                return "refused"
            if examples:
                self.asks = casts_at_run_time(artefact.graph) > 0
            of = "frozen with examples" if examples else "frozen"
            self.compare_calls(_Side(artefact, self.program, frozen=True), self.calls, of)
        return "frozen"


def _scriptable(checker: _Checker, freeze: bool) -> bool:
    try:
        scripted = torch.jit.script(checker.made())
        if freeze:
            torch.jit.freeze(scripted)
    except Exception:
        return False
    return True


def check(program: Program) -> Outcome:
    """Compares eager and jit_amp on one program."""
    outcome, line = _outcome(program, JIT_AMP)
    source = program.source
    for _ in range(4):
        if outcome.kind != "raises in eager only":
            break
        # TorchScript drops what has no use, and the error with it.
        source = kept_alive(source, line)
        alive, line = _outcome(replace(program, source=source), JIT_AMP)
        if alive.kind != "raises in eager only":
            outcome = alive
    if outcome.verdict == "differs" and _is_pytorchs(program, outcome.kind):
        return replace(outcome, verdict="PyTorch's")
    return outcome


def _is_pytorchs(program: Program, kind: str) -> bool:
    """Whether plain scripting differs from eager too, nothing in the program being about autocast.

    An autocast around the call is left to the dispatcher, which serves both sides alike.
    """
    source = without_scopes(program.source)
    before = torch._C._jit_set_autocast_mode(False)
    try:
        kinds = [
            _outcome(replace(program, source=source, ambients=(ambient,)), PYTORCH)[0].kind
            for ambient in ("none", "cpu")
        ]
        return kind.rpartition(": ")[2] in [theirs.rpartition(": ")[2] for theirs in kinds]
    finally:
        torch._C._jit_set_autocast_mode(before)


def _outcome(program: Program, makers: _Makers) -> tuple[Outcome, int]:
    """The outcome, and the line of the program in which eager raised, if that made it differ."""
    with (
        tempfile.TemporaryDirectory(prefix="jit_amp_fuzz_") as folder,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        with _cache(program.cache):  # decorators take over what they find
            module = load(program.source, Path(folder))
        checker = (_ArtefactChecker if hasattr(module, "others") else _Checker)(
            program, module, makers
        )
        frozen = ""
        try:
            raised = checker.in_process()
            if program.freeze:
                frozen = checker.frozen()
        except Difference as difference:
            return Outcome("differs", difference.kind, difference.detail), difference.line
        except jit_amp.AutocastError as error:
            return Outcome("refused", str(error).splitlines()[0], str(error)), 0
        except Exception as error:
            freezing = "frozen" in _functions_of(error)
            if not _scriptable(checker, freezing):
                return Outcome("not scriptable", _first_line(error), str(error)), 0
            kind = "freezing fails" if freezing else "scripting fails"
            return Outcome("differs", kind, str(error)), 0
    if raised is not None:
        return Outcome("raises", raised, frozen=frozen), 0
    if isinstance(checker, _ArtefactChecker):
        found = (checker.let_in, checker.turned_away, checker.asks)
        return Outcome("agrees", "", "", frozen, *found), 0
    return Outcome("agrees", frozen=frozen), 0


class _WithoutScopes(ast.NodeTransformer):
    """Takes out `with autocast`, decorators, and what makes and enters autocast objects."""

    def __init__(self) -> None:
        self.scopes: set[str] = set()

    def is_scope(self, node: ast.expr) -> bool:
        return "autocast(" in ast.unparse(node) or ast.unparse(node) in self.scopes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [d for d in node.decorator_list if not self.is_scope(d)]
        return self.generic_visit(node)

    def visit_With(self, node: ast.With) -> ast.stmt | list[ast.stmt]:
        kept = []
        for item in node.items:
            if not self.is_scope(item.context_expr):
                kept.append(item)
            elif item.optional_vars:
                self.scopes.add(ast.unparse(item.optional_vars))
        body: list[ast.stmt] = []
        for statement in node.body:
            visited = self.visit(statement)
            body += visited if isinstance(visited, list) else [visited]
        if not kept:
            return body
        return ast.With(items=kept, body=body, lineno=node.lineno)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if not self.is_scope(node.value):
            return node
        self.scopes.add(ast.unparse(node.targets[0]))
        return ast.copy_location(ast.Pass(), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        by_hand = re.match(r"(\w+)\.__(enter|exit)__\(", ast.unparse(node))
        return ast.copy_location(ast.Pass(), node) if by_hand else node


def without_scopes(source: str) -> str:
    """The program without anything of autocast but questions about it."""
    tree = _WithoutScopes().visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _functions_of(error: BaseException) -> set[str]:
    return {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}


def assert_agrees(path: str, **settings: Any) -> None:
    """Checks the program that stands in the file of a test; `settings` are Program's."""
    outcome = check(Program(0, Path(path).read_text(), **settings))
    assert outcome.verdict != "differs", f"{outcome.kind}\n{outcome.detail}"
