"""Takes artefacts to other engines: see scripts/ship.

ship.py FOLDER [ENGINE]...           a table, from FOLDER's artefacts
ship.py FOLDER --engine ENGINE       one engine, in a process without jit_amp: a line of JSON per
                                     model and dtype
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ENGINES = (
    "export",
    "aotinductor",
    "executorch",
    "onnx",
    "openvino",
    "coreml",
    "triton",
    "torchserve",
    "ray",
)

STEPS = 8
"""How far a result may be from the artefact's, in steps of its dtype at its largest entry."""


def of_one_engine(folder: Path, engine: str) -> None:
    import torch
    from engines.common import Refused

    try:
        routes = importlib.import_module(f"engines.{engine}").ROUTES
    except ModuleNotFoundError as error:
        says = f"skipped: {error.name} is not installed"
        print(json.dumps(without_model(engine, is_right=True, says=says)))
        return
    for file in sorted(folder.glob("*.pt")):
        x, given, _, full = torch.load(file.with_suffix(".io"))
        model, dtype = file.stem.split("-")
        for route, run in routes.items():
            row: dict[str, Any] = {"engine": engine, "route": route, "model": model, "dtype": dtype}
            work = folder / engine / file.stem
            work.mkdir(parents=True, exist_ok=True)
            try:
                with torch.no_grad(), contextlib.redirect_stdout(sys.stderr):
                    result = run(torch.jit.load(file), x, work)
            except Refused as refused:
                row |= {"is_right": True, "says": f"refused: {refused}"}
            except Exception as error:
                lines = str(error).strip().splitlines() or [""]
                row |= {"is_right": False, "says": f"fails: {type(error).__name__}: {lines[0]}"}
            else:
                row |= judged(result, given, full)
            print(json.dumps(row), flush=True)
    assert "jit_amp" not in sys.modules


def without_model(engine: str, is_right: bool, says: str) -> dict[str, Any]:
    return {
        **{"engine": engine, "route": "", "model": "", "dtype": ""},
        **{"is_right": is_right, "says": says},
    }


def judged(result: Any, given: Any, full: Any) -> dict[str, Any]:
    """What is said of a result, beside the artefact's own; or the float32 model's, where this
    machine cannot run the artefact."""
    import torch

    if isinstance(result, str):
        return {"is_right": True, "says": result}
    expected = full if given is None else given
    off = (result.double() - expected.double()).abs().max().item()
    steps = off / expected.double().abs().max().item() / torch.finfo(result.dtype).eps
    beside = " from the float32 model, as this CPU cannot run the artefact" if given is None else ""
    kept = given is None or result.dtype == given.dtype
    return {
        "is_right": kept and result.shape == expected.shape and steps <= STEPS,
        "off": off,
        "says": f"runs, {off:.2g} off{beside}" + ("" if kept else f", as {result.dtype}"),
    }


def main(folder: Path, engines: list[str]) -> int:
    unknown = [engine for engine in engines if engine not in ENGINES]
    if unknown:
        print(f"no engine {unknown[0]!r}: {', '.join(ENGINES)}", file=sys.stderr)
        return 2
    rows = []
    for engine in engines or ENGINES:
        print(f"  {engine}", file=sys.stderr, flush=True)
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, folder, "--engine", engine],
            stdout=subprocess.PIPE,
            stderr=(folder / f"{engine}.log").open("w"),
            text=True,
        )
        rows += [json.loads(line) for line in ran.stdout.splitlines()]
        if ran.returncode:
            says = f"stopped with {ran.returncode}: {folder / engine}.log"
            rows.append(without_model(engine, is_right=False, says=says))
    print(f"{'engine':<34}{'model':<8}{'dtype':<10}")
    for row in rows:
        name = f"{row['engine']}, {row['route']}".removesuffix(", ")
        mark = "" if row["is_right"] else "WRONG: "
        print(f"{name:<34}{row['model']:<8}{row['dtype']:<10}{mark}{row['says']}")
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    return 0 if all(row["is_right"] for row in rows) else 1


if __name__ == "__main__":
    if "--engine" in sys.argv:
        of_one_engine(Path(sys.argv[1]), sys.argv[3])
    else:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
