"""The command line: ``jit-amp`` or ``python -m jit_amp``.

What a command needs is imported when it runs: torch takes a second or two.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jit_amp
from jit_amp._base.json_records import as_json
from jit_amp._base.printable import printable_lines
from jit_amp._cli import errors
from jit_amp._cli.mistakes import Mistaken, is_file
from jit_amp._version import __version__

MODEL_HELP = "a TorchScript file, or package.module:name, such as net:Net, or path/net.py:Net"
INPUT_HELP = (
    "an argument, repeated for several: float32[1,3,224,224] is a random tensor, 3 or true or null "
    "a value, JSON a list or dictionary of these, a path what torch.save wrote there (a tuple is "
    "all arguments)"
)
DTYPES = ("bf16", "fp16")
UNITS = ("module", "function", "line", "operator")
LIMITS = (
    "overflows", "underflows", "nans", "error", "total_error", "casts", "cast_milliseconds",
    "milliseconds", "gradient_underflows",
)  # fmt: skip

Run = Callable[[argparse.Namespace], int]


def _with_torch(command: str) -> Run:
    def run(given: argparse.Namespace) -> int:
        from jit_amp._cli.running import check_command

        check_command(given)
        module = "tables" if command in ("lower", "policy", "env") else command
        imported = importlib.import_module(f"jit_amp._cli.{module}")
        return int(getattr(imported, f"run_{command}")(given))

    return run


def _run_completion(given: argparse.Namespace) -> int:
    script = errors.completion(_parser(), given.shell)
    print(as_json({"script": script}) if given.json else script, file=given.out)
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
    if not is_file(text):
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return Path(text)


class _Once(argparse.Action):
    def __call__(
        self, parser: Any, given: argparse.Namespace, value: Any, option: Any = ""
    ) -> None:
        if getattr(given, self.dest) is not None:
            parser.error(f"{option} is given twice: two reports are compared at a time")
        setattr(given, self.dest, value)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib import metadata

        try:
            torch = metadata.version("torch")
        except metadata.PackageNotFoundError:
            torch = "is not installed"
        print(f"jit-amp {__version__}, torch {torch}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jit-amp", description=jit_amp.__doc__)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action=_Version, nargs=0, help="of jit-amp and of torch")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, text: str, run: Run | None = None) -> Any:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run or _with_torch(name))
        made.add_argument("--json", action="store_true", help="print JSON")
        return made

    def takes_inputs(made: Any) -> None:
        made.add_argument(
            "--input", "--inputs", action="append", default=[], metavar="INPUT", help=INPUT_HELP
        )
        made.add_argument(
            "--device", default="cpu", help="where it runs, such as cuda; cpu if not given"
        )
        made.add_argument("--autocast", choices=[*DTYPES], help="a scope around all of it")
        made.set_defaults(needs_inputs=True)

    made = command("explain", "which line runs in which precision, and why")
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
        action=_Once,
        metavar="REPORT",
        help="compare with a report that --json wrote, or with the same under bf16, fp16 or none",
    )
    made.add_argument(
        "--fail-over",
        metavar="LIMITS",
        help='exit status 1 over a limit, as in "overflows=0, error=1e-2"; of ' + ", ".join(LIMITS),
    )

    made = command("freeze", "a frozen module of stock operators")
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

    made.set_defaults(needs_inputs=False)  # without them no example is known

    made = command("tune", "the fewest units that have to stay in float32")
    made.add_argument("model", help=MODEL_HELP)
    made.add_argument("--data", help="batches: file.py:name of what has them, or of what makes it")
    made.add_argument("--input", action="append", default=[], help=INPUT_HELP)
    made.add_argument("--device", default="cpu")
    made.add_argument("--train", action="store_true", help="in training mode, and not in eval mode")
    made.add_argument("--dtype", choices=["float16", "bfloat16", *DTYPES], required=True)
    made.add_argument("--metric", type=_metric, help="file.py:name of a function")
    made.add_argument("--tolerance", type=_steps, help="the largest error that is accepted")
    made.add_argument("--units", choices=UNITS, default="module")
    made.add_argument("--budget", type=_steps, help="seconds")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--resume", type=Path, help="a file to keep what was measured in")
    made.add_argument("-o", "--output", type=Path, help="write the precision there, as JSON")
    made.add_argument("--html", type=Path, help="write the page there")
    made.add_argument("--code", action="store_true", help="print a diff for the model's source")
    made.set_defaults(autocast=None)

    made = command("export", "a program of torch.export's, a .pt2 file")
    made.add_argument("model", help=MODEL_HELP)
    takes_inputs(made)
    made.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    made.add_argument("--strict", action="store_true", help="traced by TorchDynamo too")

    made = command("verify", "whether models give the same, in whatever format")
    made.add_argument("first", help=MODEL_HELP)
    made.add_argument("second", nargs="+", help="the same")
    takes_inputs(made)
    made.add_argument(
        "--precision", type=_file, help="the file that jit-amp tune has written, for the first"
    )
    made.add_argument("--plain", action="store_true", help="not what is saved and loaded of it")
    made.add_argument(
        "--steps", type=_steps, default=8.0, help="how many steps of the dtype apart is the same"
    )

    made = command("lower", "the graph that a call runs")
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

    made = command("policy", "autocast's tables beside the installed torch")
    made.add_argument("operator", nargs="?", help="all that is known of it, such as aten::cat")
    made.add_argument("--reach", action="store_true", help="what freezing can do with operators")

    command("env", "versions, processor and settings, for a bug report")

    made = command(
        "errors", "what an error's code means, and what to write instead", errors.run_errors
    )
    made.add_argument("code", nargs="?", help="such as JA101; all codes if not given")

    made = command("completion", "a script by which a shell completes jit-amp", _run_completion)
    made.add_argument(
        "shell", choices=["bash", "zsh", "fish"], help='eval "$(jit-amp completion bash)"'
    )
    return parser


def _open_what_is_closed() -> None:
    """Standard streams that whoever starts the process has closed: the next file that is opened
    would be one, and what PyTorch writes to it would be in that file."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if descriptor else "r"))  # noqa: SIM115


def _written(given: argparse.Namespace) -> dict[Path, tuple[int, int] | None]:
    """The files that the command writes, and what tells whether they were written since."""
    paths = [getattr(given, option, None) for option in ("output", "html", "resume")]
    found: dict[Path, tuple[int, int] | None] = {}
    for path in filter(None, paths):
        try:
            stat = path.stat()
            found[path] = stat.st_mtime_ns, stat.st_ino
        except OSError:
            found[path] = None
    return found


def _kept(given: argparse.Namespace, before: dict[Path, tuple[int, int] | None]) -> str:
    """What is left of a command that was interrupted."""
    now = _written(given)
    resume = getattr(given, "resume", None)
    told = []
    if resume and now[resume]:
        told.append(f"what was measured is in {resume}: the same command goes on with it")
    for path in before:
        if path != resume:
            is_same = now[path] == before[path]
            what = (
                ("is not there" if now[path] is None else "is as it was") if is_same else "is new"
            )
            told.append(f"{path} {what}")
    return "; ".join(told) or "nothing was written"


def _with_line(error: Exception, given: argparse.Namespace) -> str:
    """What is told of an error that the model has raised; empty where it comes from nowhere."""
    model = getattr(given, "model", None) or getattr(given, "first", None)
    if not model or "torch" not in sys.modules:
        return ""
    if isinstance(error, (Mistaken, OSError, MemoryError, jit_amp.AutocastError)):
        return ""  # says what it is about
    from jit_amp._cli.raised import with_line

    return with_line(error, model)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status: 1 where something is wrong, 2 for a mistake."""
    _open_what_is_closed()
    given = _parser().parse_args(arguments)
    written = _written(given)
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
                return int(given.run(given))
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        if given.debug:
            raise
        begin = "\n" if sys.stderr.isatty() else ""  # below a line that says how far it is
        print(f"{begin}jit-amp: interrupted; {_kept(given, written)}", file=sys.stderr)
        return 130  # as a shell has it
    except Exception as error:
        if given.debug:
            raise
        is_told = isinstance(error, (Mistaken, RuntimeError)) and str(error)
        text = str(error) if is_told else f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError):
            text = "there is not enough memory"
        if isinstance(error, OSError) and error.filename:
            text = f"{error.filename}: {error.strerror}"
        if " " not in text:  # a mere number or name
            text = f"{type(error).__name__}: {text}"
        text = (_with_line(error, given) or text).removeprefix("jit_amp: ")
        print(f"jit-amp: {printable_lines(text)}", file=sys.stderr)
        return 2 if isinstance(error, Mistaken) else 1
