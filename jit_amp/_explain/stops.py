"""Where a program that is explained has raised: the line, the operator, and what that was given."""

from __future__ import annotations

import ast
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from jit_amp._base import arguments, source_files, source_lines
from jit_amp._base.syntax_trees import parsed
from jit_amp._explain.graph import dtype_name
from jit_amp._explain.records import Operand, Place, Row, Source, Stop, own_line_in
from jit_amp._explain.sources import place_of, with_text

_CALLS = (nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__)
_MOST = 8  # tensors of a line
_ELEMENTS = 4  # of a list among these

Failed = tuple[int, Sequence[tuple[str, Any, int | None, str, tuple[str, int, int, str] | None]]]
"""An operator that raised, as `_C` gives it."""
Maker = Callable[[Tensor], tuple[str, Place] | None]
"""Gives the operator that gave a tensor last, and its line."""

# A line of TorchScript's tracebacks: of a file's text, and of what was traced.
_FILE = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)
_TOLD = re.compile(r"^[\w.]+: .*", re.MULTILINE | re.DOTALL)  # what follows one
_POINTED = re.compile(r"^(?P<text>.*)\n *~+ <--- HERE", re.MULTILINE)
_FRAME = re.compile(r"^(?P<file>\S.*)\((?P<line>\d+)\): \S+$", re.MULTILINE)


def text_of(error: BaseException) -> str:
    """The class and the text of an error, without TorchScript's traceback."""
    text = str(error).strip()
    if text.startswith("The following operation failed in the TorchScript interpreter"):
        ends = [text.rfind("<--- HERE"), *(frame.end() for frame in _FRAME.finditer(text))]
        told = _TOLD.search(text, max(ends))
        return re.sub(r"^RuntimeError: (?=\w+: )|^builtins\.", "", told[0] if told else text)
    kinds = (each for each in type(error).__mro__ if not each.__module__.startswith("jit_amp._"))
    kind = next(kinds).__name__  # as a user knows it
    return f"{kind}: {text}" if text else kind


def without_lines(text: str) -> str:
    """The text of an error without the lines of the program that stand in it."""
    frame = _FILE.search(text) or _FRAME.search(text)
    told = text[: frame.start()].partition("\n\nTraceback of")[0].strip() if frame else ""
    return told or text


def place_in_traceback(text: str) -> Place | None:
    """The line that raised, by TorchScript's traceback, with the text that it was compiled from,
    where the traceback has it: the innermost line of the user's, or else of a library's."""
    text = text.rpartition("original code (most recent call last):")[2]
    found = [*_FILE.finditer(text)] or [*_FRAME.finditer(text)][::-1]
    if not found:
        return None
    frame = source_files.own_in(found, lambda each: each["file"]) or found[-1]
    shown = _POINTED.search(text, frame.end())
    line = shown["text"] if shown else ""
    return place_of((frame["file"], int(frame["line"]), 0, "", line))


# What Python runs.


def lines_of(error: BaseException) -> set[tuple[str, int]]:
    """The lines of an error's traceback, and of those that it was raised in the course of."""
    found: set[tuple[str, int]] = set()
    chain: BaseException | None = error
    while chain is not None:
        found |= {(f.f_code.co_filename, line) for f, line in frames_of(chain)}
        chain = chain.__cause__ or chain.__context__
    return found


def frames_of(error: BaseException) -> Iterator[tuple[types.FrameType, int]]:
    """The frames that an error came through, with their lines, from the outermost."""
    at = error.__traceback__
    while at is not None:
        yield at.tb_frame, at.tb_lineno
        at = at.tb_next


def module_of(error: BaseException) -> nn.Module | None:
    """The outermost module whose method an error came through."""
    owners = (frame.f_locals.get("self") for frame, _ in frames_of(error))
    return next((each for each in owners if isinstance(each, nn.Module)), None)


def of_operator(
    operator: str,
    stack: Sequence[Place],
    operands: Sequence[tuple[str, Any, tuple[str, Place] | None, str]],
) -> Stop:
    """Where an operator raised, of its operands: name, value, what gave it, what else it is."""
    told = [_operand(*operand) for operand in operands if operand[1] is not None]
    return Stop(own_line_in(stack), tuple(stack), operator, tuple(told))


def of_python(
    error: BaseException,
    stack: Sequence[Place],
    maker: Maker,
    origin: Callable[[Tensor], str],
) -> Stop:
    """Where Python itself raised: with the tensors that the line reads; those of the function,
    where it reads none. What `torch.ops` refuses to call is an operator with operands."""
    place = own_line_in(stack)
    frames = list(frames_of(error))

    def operand(name: str, value: Any) -> Operand:
        is_tensor = isinstance(value, Tensor)
        return _operand(
            name, value, maker(value) if is_tensor else None, origin(value) if is_tensor else ""
        )

    for frame, _ in reversed(frames):
        called = frame.f_locals.get("self")
        if isinstance(called, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            given = frame.f_locals.get("args", ()), frame.f_locals.get("kwargs", {})
            named = [*((f"argument {i}", v) for i, v in enumerate(given[0])), *given[1].items()]
            told = (operand(n, v) for n, v in named if v is not None)
            return Stop(place, tuple(stack), str(called).replace(".", "::", 1), tuple(told))
    found: dict[int, Operand] = {}
    for frame, line in reversed(frames):
        if (frame.f_code.co_filename, line) != (place.file, place.line):
            continue
        names = {**frame.f_globals, **frame.f_locals}
        read = [(name, value_of(name, names)) for name in names_read(place.file, line)]
        for some in (read, list(frame.f_locals.items())):
            tensors = [pair for name, value in some for pair in _tensors_in(name, value)]
            for name, tensor in tensors[:_MOST] if not found else ():
                found.setdefault(id(tensor), operand(name, tensor))
        break
    return Stop(place, tuple(stack), _function_of_pytorchs(frames, place), tuple(found.values()))


def _function_of_pytorchs(frames: Sequence[tuple[types.FrameType, int]], place: Place) -> str:
    """The function of PyTorch's that a line has called and that has raised; of a module's method,
    the module's class."""
    lines = [(frame.f_code.co_filename, line) for frame, line in frames]
    if (place.file, place.line) not in lines:
        return ""
    last = len(lines) - lines[::-1].index((place.file, place.line))
    for frame, _ in frames[last:]:
        code, owner = frame.f_code, frame.f_locals.get("self")
        if source_files.is_pytorchs(code.co_filename) and code not in _CALLS:
            if isinstance(owner, nn.Module):
                return f"{type(owner).__module__}.{type(owner).__qualname__}"
            if isinstance(owner, Tensor):
                return f"torch.Tensor.{code.co_name}"
            return f"{frame.f_globals.get('__name__', '')}.{code.co_name}"
    return ""


def origin(value: Any, root: Any, named: dict[str, Any]) -> str:
    """What a tensor is that no operator has given: an argument, or of a module, by its path."""
    if not isinstance(value, Tensor):
        return ""
    for name, given in named.items():
        if any(each is value for _, each in _tensors_in(name, given)):
            return f"argument {name}"
    if isinstance(root, nn.Module):
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            if tensor is value:
                return name
    return ""


def _operand(name: str, value: Any, made: tuple[str, Place] | None, origin: str) -> Operand:
    if not isinstance(value, Tensor):
        return Operand(name, value=arguments.shown(value))
    return Operand(
        name,
        dtype_name(value.dtype),
        () if value.is_nested else tuple(value.shape),
        value.device.type,
        made[0] if made else "",
        made[1] if made else None,
        origin,
    )


def _tensors_in(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a value, with names; of a module one parameter of each dtype."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, nn.Module) and name != "self":
        own = {p.dtype: (n, p) for n, p in reversed(list(value.named_parameters(recurse=False)))}
        yield from ((f"{name}.{each}", parameter) for each, parameter in own.values())
    elif type(value) in (list, tuple):
        for i, each in enumerate(value[:_ELEMENTS]):
            yield from _tensors_in(f"{name}[{i}]", each)
    elif type(value) is dict:
        for key in list(value)[:_ELEMENTS]:
            yield from _tensors_in(f"{name}[{key!r}]", value[key])


def value_of(name: str, names: dict[str, Any]) -> Any:
    """The value of ``x`` or ``self.weight``, without running any code of the user's."""
    first, *rest = name.split(".")
    value = names.get(first)
    for each in rest:
        if not hasattr(value, "__dict__"):
            return None
        attributes = vars(value)
        for kind in ("_parameters", "_buffers", "_modules") if isinstance(value, nn.Module) else ():
            attributes = {**attributes, **attributes.get(kind, {})}
        value = attributes.get(each)
    return value


# What a line reads, by the source.


def names_read(file: str, line: int, known: Sequence[Source] = ()) -> list[str]:
    """The names and paths of attributes that a line's statement reads, the longest first where one
    begins another; of what raises, those too that the conditions around it read."""
    path = statements_at(file, line, known)
    if not path:
        return []
    shown = [path[-1]]
    if isinstance(path[-1], (ast.Raise, ast.Assert)):
        shown += [each for each in reversed(path) if isinstance(each, (ast.If, ast.While))]
    names = [name for statement in shown for name in _read_by(statement)]
    return list(dict.fromkeys(names))


def lines_of_function(file: str, line: int, known: Sequence[Source] = ()) -> tuple[int, int]:
    """The first and the last line of the innermost function that a line is part of."""
    path = statements_at(file, line, known)
    functions = [each for each in path if isinstance(each, ast.FunctionDef)]
    return (functions[-1].lineno, functions[-1].end_lineno or 0) if functions else (0, 0)


def line_of_assignment(file: str, line: int, name: str, known: Sequence[Source] = ()) -> int | None:
    """The last line above, in the same function, that gives a name its value."""
    path = statements_at(file, line, known)
    functions = [each for each in path if isinstance(each, ast.FunctionDef)]
    last = None
    for node in ast.walk(functions[-1]) if functions else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
            last = max(last or 0, node.lineno) if node.lineno < line else last
    return last


def statements_at(file: str, line: int, known: Sequence[Source] = ()) -> list[ast.stmt]:
    """The statements that a line is part of, from the outermost.

    Args:
        known: texts that programs were compiled from, which go before what is at that path today.
    """
    own = [each for each in known if each.file == file and each.line <= line]
    text, first = ("".join(source_lines.lines(file)), 1) if not known else ("", 1)
    if own:
        source = max(own, key=lambda each: each.line)
        text, first = textwrap.dedent(source.text), source.line
    try:
        tree = ast.increment_lineno(parsed(text), first - 1)
    except (SyntaxError, ValueError):
        return []
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and _first(node) <= line <= (node.end_lineno or node.lineno)
    ]
    return sorted(inside, key=lambda node: (_first(node), -(node.end_lineno or 0)))


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _read_by(statement: ast.stmt) -> Iterator[str]:
    """What a statement reads itself, without those inside of it."""
    blocks = ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list")
    for field, value in ast.iter_fields(statement):
        for each in (value if isinstance(value, list) else [value]) if field not in blocks else ():
            for node in ast.walk(each) if isinstance(each, ast.AST) else ():
                if isinstance(node, ast.Attribute) and (path := path_of(node)):
                    yield path
                elif isinstance(node, ast.Name):
                    yield node.id


def path_of(node: ast.expr) -> str:
    """``a.b`` of a name with attributes; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = path_of(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


# What TorchScript has compiled.


def of_compiled(
    error: BaseException,
    rows: Sequence[Row],
    failed: Failed | None,
    scripted: Any,
    known: Sequence[Source],
) -> Stop | None:
    """Where what TorchScript has compiled raised: in an operator; in ``assert`` and its like with
    what the line reads, as the rows of the lines above know it."""
    if failed:
        row = rows[failed[0]]
        told = []
        for name, value, number, what, site in failed[1]:
            made = (what, place_of(site)) if site else None
            if number is not None:
                made = rows[number].operator, own_line_in(rows[number].stack)
            told.append((name, value, made, "" if made else what))
        return of_operator(row.operator, row.stack, told)
    place = place_in_traceback(str(error))
    if place is None:
        return None
    place = with_text(place, known) or place
    operands = []
    first, last = lines_of_function(place.file, place.line, known)
    owners = [row.module for row in rows if _is_between(row.stack[-1], place.file, first, last)]
    for name in names_read(place.file, place.line, known):
        made_at = line_of_assignment(place.file, place.line, name, known)
        through = [
            r for r in rows if any(_is_between(p, place.file, made_at, made_at) for p in r.stack)
        ]
        if made_at and through and through[-1].results and through[-1].shapes:
            row = through[-1]
            device = row.devices[-1] if row.devices else ""
            given = row.results[-1], row.shapes[-1], device, row.operator, own_line_in(row.stack)
            operands.append(Operand(name, *given))
        elif name.startswith("self.") and isinstance(scripted, nn.Module):
            path = ".".join(filter(None, [owners[-1] if owners else "", name[len("self.") :]]))
            tensors = {**dict(scripted.named_parameters()), **dict(scripted.named_buffers())}
            if path in tensors:
                operands.append(_operand(name, tensors[path], None, path))
    return Stop(place, (place,), "", tuple(operands))


def _is_between(place: Place, file: str, first: int | None, last: int | None) -> bool:
    return place.file == file and (first or 0) <= place.line <= (last or 0)
