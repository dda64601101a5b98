"""``jit-amp errors`` and ``jit-amp completion``, which need no torch."""

from __future__ import annotations

import argparse
import functools
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jit_amp._base.json_records import as_json
from jit_amp._cli.mistakes import Mistaken

PAGE = "docs/errors.md"
ROWS = Path(__file__).with_name("diagnostics.json")
"""The rows of csrc/core/diagnostics.inc, which ``scripts/errors`` writes there."""


@functools.cache
def _rows() -> list[list[Any]]:
    rows: list[list[Any]] = json.loads(ROWS.read_text(encoding="utf-8"))
    return rows


def run_errors(given: argparse.Namespace) -> int:
    if given.code is None:
        told_of_all = [told(each) for each in codes()]
        print(as_json(told_of_all) if given.json else listed(), file=given.out)
        return 0
    try:
        number = number_of(given.code)
    except ValueError as error:
        raise Mistaken(str(error)) from error
    print(as_json(told(number)) if given.json else text_of(number), file=given.out)
    return 0


def codes() -> list[int]:
    """Returns all codes."""
    return [row[0] for row in _rows()]


def number_of(text: str) -> int:
    """The code that a text names: ``JA101``, ``ja101`` or ``101``.

    Raises:
        ValueError: it names none.
    """
    found = re.fullmatch(r"(?:JA)?(\d+)", text.strip().strip("[]"), re.IGNORECASE)
    number = int(found[1]) if found else 0
    if number not in codes():
        raise ValueError(
            f"{text!r} is no code: `jit-amp errors` lists them, such as JA{codes()[0]}"
        )
    return number


def told(number: int) -> dict[str, str]:
    """Returns what a code means, in parts."""
    row = next(each for each in _rows() if each[0] == number)
    _, what, instead, cause, example = row
    first = what.split("\n", 1)[0].replace("{}", "…")
    return {
        "code": f"JA{number}",
        "what": first,
        "cause": cause,
        "example": example,
        "instead": instead.replace("{}", ""),
        "page": f"{PAGE}#ja{number}",
    }


def text_of(number: int) -> str:
    """Returns what a code means, as text."""
    parts = told(number)
    paragraphs = [f"{parts['code']}: {parts['what']}", parts["cause"]]
    shown = [textwrap.fill(each, 88) for each in paragraphs]
    if parts["example"]:
        shown.append(textwrap.indent(parts["example"], "    "))
    if parts["instead"]:  # where all of it is filled in, the cause has it
        shown.append(textwrap.fill(f"Instead: {parts['instead']}.", 88))
    return "\n\n".join([*shown, f"Also in {parts['page']}"])


def listed() -> str:
    """Returns all codes, a line each."""
    lines = (f"JA{number}  {told(number)['what']}" for number in codes())
    return "\n".join(line if len(line) <= 100 else line[:99] + "…" for line in lines)


# Completion.


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """Returns each command with its options."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                options = [o for each in command._actions for o in each.option_strings]
                yield name, [each for each in options if each.startswith("--")]


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script that teaches a shell the commands and options of ``jit-amp``."""
    commands = dict(_commands(parser))
    if shell == "fish":
        lines = [f"complete -c jit-amp -n __fish_use_subcommand -a {name}" for name in commands] + [
            f"complete -c jit-amp -n '__fish_seen_subcommand_from {name}' -l {option[2:]}"
            for name, options in commands.items()
            for option in options
        ]
        return "\n".join(lines)
    cases = "\n".join(f"    {name}) words='{' '.join(o)}' ;;" for name, o in commands.items())
    script = f"""_jit_amp() {{
  local words='{" ".join(commands)} --version --help --debug'
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}") \\
    $(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -F _jit_amp jit-amp"""
    return f"autoload -U bashcompinit && bashcompinit\n{script}" if shell == "zsh" else script
