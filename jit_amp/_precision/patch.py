"""What `Precision.to_code` gives: a diff of the source of a model."""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import keyword
import os
from collections.abc import Callable, Iterable, Iterator

from torch import nn

from jit_amp._base import source_lines
from jit_amp._base.syntax_trees import parsed
from jit_amp._precision import in_float32, reads
from jit_amp._precision.records import Found, Line, shown


def of(precision: Found, model: nn.Module) -> str:
    """The diff; empty where nothing stays in float32.

    Raises:
        ValueError: something that stays so cannot be written.
    """
    scoped = {each.unit for each in precision.sensitivities if each.has_scopes}
    for unit in precision.units:
        if unit in scoped:
            raise ValueError(
                f"to_code: {shown(unit)} stays in float32 and has scopes of its own, which what is"
                " written would leave on: take these away, or give what stays in float32 a part of"
                " its own, and tune again"
            )
    changed: dict[str, list[str]] = {}

    def lines_of(path: str) -> list[str]:
        if path not in changed:
            changed[path] = list(source_lines.lines(path))
        return changed[path]

    if precision.kind == "module" and precision.units:
        _ignore_in_init(precision, model, lines_of)
    by_file: dict[str, list[str]] = {}
    for unit in precision.units if precision.kind in in_float32.SOURCES else ():
        file, _, name = unit.rpartition(":")
        by_file.setdefault(file, []).append(name)
    operators = set(precision.units) if precision.kind == "operator" else set()
    for line in precision.lines:
        if not operators.isdisjoint(line.units):
            by_file.setdefault(line.file, []).append(str(line.line))
    for file, names in by_file.items():
        lines = lines_of(in_float32.path_of(file))
        known = [each for each in precision.lines if each.file == file]
        if precision.kind == "function":
            _decorate(file, names, lines, known)
        else:
            numbers = [int(name) for name in names]
            _wrap(precision.device_type, file, numbers, lines, known, operators)
    for path, lines in changed.items():
        try:
            parsed("".join(lines))
        except SyntaxError as error:
            raise ValueError(
                f"to_code: {path}:{error.lineno} cannot be changed: give the parts that stay in"
                " float32 lines of their own"
            ) from error
    return "".join(_diff(path, lines) for path, lines in changed.items())


def _diff(path: str, lines: list[str]) -> str:
    relative = os.path.relpath(path)
    shown = path if relative.startswith(os.pardir) else relative
    before = source_lines.lines(path)
    content = b"\n"
    with contextlib.suppress(OSError), open(path, "rb") as file:  # a notebook's cells are no files
        content = file.read()
    if not content.endswith(b"\n"):  # which `getlines` adds
        lines = [*lines[:-1], lines[-1].rstrip("\n")] if lines[-1] == before[-1] else lines
        before = [*before[:-1], before[-1].rstrip("\n")]
    ending = "\r\n" if b"\r\n" in content else "\n"
    head, *text = difflib.unified_diff(before, lines, shown, shown)
    made = [head, text.pop(0)]
    for line in text:
        whole = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        made.append(whole if line.startswith("@") else whole.replace("\n", ending, 1))
    return "".join(made)


def _ignore_in_init(
    precision: Found, model: nn.Module, lines_of: Callable[[str], list[str]]
) -> None:
    cls = type(model)
    if cls.__module__.split(".")[0] == "torch":
        raise ValueError(f"to_code: {cls.__qualname__} is PyTorch's: write a class of your own")
    init = vars(cls).get("__init__")
    try:
        path, first = inspect.getsourcefile(cls), inspect.getsourcelines(init)[1]  # type: ignore[arg-type]
    except (TypeError, OSError) as error:
        raise ValueError(
            f"to_code: {cls.__qualname__} has no __init__ of its own with a source"
        ) from error
    lines = lines_of(str(path))
    node = _function_at(lines, first)
    where = f"to_code: the __init__ of {cls.__qualname__}"
    if node.body[0].lineno == node.lineno or node.lineno == node.end_lineno:
        raise ValueError(f"{where} is one line: put its body on lines of its own")
    if any(isinstance(each, ast.Return) for each in _own(node)):
        raise ValueError(f"{where} has a `return`: what stays in float32 is written at its end")
    own = [_written(node.args.args[0].arg, unit, model) for unit in precision.units]
    indent = _indent(lines[node.body[-1].lineno - 1])
    last = node.end_lineno or node.lineno
    added = [f"{indent}jit_amp.ignore_amp({each}, float32=True)\n" for each in own]
    if not lines[last - 1].endswith("\n"):
        lines[last - 1] += "\n"
    lines[last:last] = added
    _import(lines, "jit_amp", last)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without the functions and classes in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _own(child)


def _written(model: str, path: str, root: nn.Module) -> str:
    """A submodule as one writes it: ``self.blocks[2].attention``."""
    written, owner = model, root
    for part in path.split(".") if path else []:
        counted = [str(i) for i in range(len(owner._modules))]
        if isinstance(owner, nn.ModuleDict):
            written += f"[{part!r}]"
        elif isinstance(owner, (nn.ModuleList, nn.Sequential)) and [*owner._modules] == counted:
            written += f"[{part}]"
        elif part.isidentifier() and not keyword.iskeyword(part):
            written += f".{part}"
        else:
            written += f".get_submodule({part!r})"
        owner = owner.get_submodule(part)
    return written


def _function_at(lines: Iterable[str], first: int) -> ast.FunctionDef:
    for node in ast.walk(parsed("".join(lines))):
        if (
            isinstance(node, ast.FunctionDef)
            and in_float32.first_line(node) <= first <= node.lineno
        ):
            return node
    raise ValueError(f"to_code: line {first} has no function any more")


def _decorate(file: str, names: list[str], lines: list[str], known: list[Line]) -> None:
    functions = list(in_float32.functions("".join(lines)))
    at: list[int] = []
    ends: set[tuple[int, int]] = set()
    for name in names:
        found = [node for each, node in functions if each == name]
        if not found:
            raise ValueError(f"to_code: {file} has no function {name!r}")
        for node in found:
            if any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in _own(node)):
                raise ValueError(
                    f"to_code: {file}:{name} is a generator, which runs after its call: give what"
                    " stays in float32 a function of its own"
                )
            ends |= _casts_in_function(file, node, known)
            at.append(node.lineno)
    _cast(ends, lines)
    for number in sorted(at, reverse=True):
        indent = _indent(lines[number - 1])
        lines.insert(number - 1, f"{indent}@jit_amp.ignore_amp(float32=True)\n")
    _import(lines, "jit_amp", min(at))


def _casts_in_function(
    file: str, function: ast.FunctionDef, known: list[Line]
) -> set[tuple[int, int]]:
    """The ends of what the function reads and was not given: ignore_amp casts what it is given."""
    names = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    names |= {
        each.id
        for each in ast.walk(function)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }

    def is_given(text: str) -> bool:
        root, _, rest = text.partition("[")
        return root in names and "." not in rest

    last = function.end_lineno or 0
    inside = [each for each in known if function.lineno <= each.line <= last]
    for each in inside:
        if hidden := [text for text in each.hidden if not is_given(text)]:
            raise ValueError(_of_hidden(f"{file}:{each.line}", hidden[0]))
    reduced = {text for each in inside for text in each.names if not is_given(text)}
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
    return {end for each in statements for end in reads.casts(each, reduced)}


def _wrap(
    device_type: str,
    file: str,
    numbers: list[int],
    lines: list[str],
    known: list[Line],
    operators: set[str],
) -> None:
    """Where `operators` are given, a statement may have no others."""
    tree = parsed("".join(lines))
    statements: dict[ast.stmt, int] = {}
    for number in numbers:
        statement = reads.statement_at(tree, number)
        if statement is None or not any(each.line == number for each in known):
            raise ValueError(f"to_code: nothing is known of {file}:{number}: tune again")
        statements[statement] = number
    for statement, number in sorted(statements.items(), key=lambda each: -each[0].lineno):
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        inside = [each for each in known if first <= each.line <= last]
        if why := _cannot_be_wrapped(statement, lines):
            raise ValueError(
                f"to_code: {file}:{number} {why}: put what is computed there into a statement that"
                " has lines of its own, and tune again"
            )
        others = {unit for each in inside for unit in each.units} - operators
        if operators and others:
            raise ValueError(
                f"to_code: {file}:{number} calls {min(others)} too, which does not stay in float32:"
                " put each into a statement that has lines of its own, and tune again"
            )
        if hidden := [text for each in inside for text in each.hidden]:
            raise ValueError(_of_hidden(f"{file}:{number}", hidden[0]))
        reduced = {text for each in inside for text in each.names}
        _cast(set(reads.casts(statement, reduced)), lines)
        in_texts = {
            line
            for node in ast.walk(statement)
            if isinstance(node, (ast.Constant, ast.JoinedStr))
            for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)
        }
        indent = _indent(lines[first - 1])
        deeper = "\t" if indent.endswith("\t") else "    "
        for line in range(first, last + 1):
            if line not in in_texts and lines[line - 1].strip():
                lines[line - 1] = f"{deeper}{lines[line - 1]}"
        scope = f'{indent}with torch.autocast("{device_type}", enabled=False):\n'
        lines.insert(first - 1, scope)
    _import(lines, "torch", min(each.lineno for each in statements))


def _of_hidden(place: str, text: str) -> str:
    return (
        f"to_code: {place} reads `{text}`, where no cast can be written: it may hold tensors in the"
        " reduced dtype. Give these names of their own there, and tune again"
    )


_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.Assert)
_LATER = {
    ast.Lambda: "a lambda",
    ast.Yield: "a `yield`",
    ast.YieldFrom: "a `yield`",
    ast.Await: "an `await`",
    ast.GeneratorExp: "a generator",
}


def _cannot_be_wrapped(statement: ast.stmt, lines: list[str]) -> str:
    """Why a statement cannot be put into a scope; empty where it can."""
    if not isinstance(statement, _SIMPLE):
        return f"is the head of `{lines[statement.lineno - 1].split()[0].rstrip(':')}`"
    before = lines[statement.lineno - 1].encode()[: statement.col_offset]
    after = lines[(statement.end_lineno or 0) - 1].encode()[statement.end_col_offset :]
    if before.strip() or not (after.strip() + b"#").startswith(b"#"):
        return "shares its line with another statement"
    nodes = list(ast.walk(statement))
    given = [each for node in nodes if isinstance(node, ast.Call) for each in node.args]
    for node in nodes:
        is_used_up = isinstance(node, ast.GeneratorExp) and node in given
        if type(node) in _LATER and not is_used_up:
            return f"has {_LATER[type(node)]} in it, which runs elsewhere"
        if isinstance(node, ast.Call):
            if any(each.arg == "out" for each in node.keywords):
                return "writes with `out=`"
            if _narrows(node) and node is not getattr(statement, "value", None):
                return f"casts with `{ast.unparse(node)}`"
    return ""


def _narrows(call: ast.Call) -> bool:
    """Whether a call seems to give the reduced dtype by what is written."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("half", "bfloat16"):
        return True
    dtypes = ("dtype", "float16", "half", "bfloat16")
    given = [*call.args, *(each.value for each in call.keywords)]
    return any(isinstance(each, ast.Attribute) and each.attr in dtypes for each in given)


def _cast(ends: set[tuple[int, int]], lines: list[str]) -> None:
    """Writes `.float()` after the expressions that end there."""
    for row, column in sorted(ends, reverse=True):
        line = lines[row - 1].encode()
        lines[row - 1] = (line[:column] + b".float()" + line[column:]).decode()


def _import(lines: list[str], module: str, before: int) -> None:
    """Puts an import below the others that stand before a line, where there is none."""
    tree = parsed("".join(lines))
    imports = [
        node
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno < before
    ]
    if any(
        isinstance(node, ast.Import)
        and any(each.name == module and each.asname in (None, module) for each in node.names)
        for node in imports
    ):
        return
    begin = tree.body[0]
    is_doc = isinstance(begin, ast.Expr) and isinstance(begin.value, ast.Constant)
    after = imports[-1].end_lineno if imports else begin.end_lineno if is_doc else 0
    lines.insert(after or 0, f"import {module}\n")
