"""How many requests one process answers, from Python and from C++.

One frozen module, batch 1, one intra-op thread, 1 to 8 threads that call it. For each form a
process of its own, through Python and, where the form has a file, through a small program of
libtorch's (serve.cpp): requests a second, median and 99th percentile, resident memory, seconds from
the start of the process to the first result, and by how much memory grows over all calls. Beside
the callers one thread calls with a wrong input, and each result is compared with the first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

START = time.perf_counter()

import models  # noqa: E402  (the time to import counts)
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402

warnings.filterwarnings("ignore")
HERE = Path(__file__).parent
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP": (models.MLP, (1, 512)),
    "ResNet-50": (models.ResNet, (1, 3, 224, 224)),
    "ViT-B/16": (models.ViT, (1, 3, 224, 224)),
}
FORMS = ("eager", "torch.compile", "AOTInductor", "jit_amp, portable", "jit_amp, server")
FILES = {"AOTInductor": "package", "jit_amp, portable": "script", "jit_amp, server": "script"}


def prepared(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    return models.Autocast(make().eval().requires_grad_(False)).eval(), torch.randn(shape)


def write(name: str, form: str, folder: Path) -> None:
    """The file that a server would load."""
    model, x = prepared(name)
    if form == "AOTInductor":
        program = torch.export.export(model, (x,))
        torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(folder / "module.pt2"),
            inductor_configs={"freezing": True},
        )
        return
    import jit_amp

    target: Any = form.split(", ")[1]
    frozen = jit_amp.freeze(model, example_inputs=(x,), target=target)
    torch.jit.save(frozen, folder / "module.pt")


def loaded(name: str, form: str, folder: Path, threads: int) -> Callable[[Tensor], Tensor]:
    if form in ("eager", "torch.compile"):
        model, _ = prepared(name)
        if form == "eager":
            return model
        from torch._inductor import config

        config.freezing = True
        return torch.compile(model)
    if form == "AOTInductor":
        from torch._inductor import package

        # It computes as many calls at a time as it has runners.
        return package.load_package(str(folder / "module.pt2"), num_runners=threads)
    return torch.jit.load(folder / "module.pt")


def resident() -> float:
    """In MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def served(
    call: Callable[[Tensor], Tensor], x: Tensor, threads: int, seconds: float, calls: int
) -> dict[str, float]:
    """What serve.cpp prints, of calls through Python."""
    with torch.inference_mode():
        expected = call(x).clone()
        first = time.perf_counter() - START
        for _ in range(5):
            call(x)
    before = resident()
    taken: list[list[float]] = [[] for _ in range(threads)]
    wrong = raised = 0
    stop = threading.Event()
    begin = time.perf_counter()

    def work(mine: list[float]) -> None:
        nonlocal wrong
        with torch.inference_mode():
            while time.perf_counter() - begin < seconds or sum(map(len, taken)) < calls:
                start = time.perf_counter()
                result = call(x)
                mine.append(time.perf_counter() - start)
                wrong += not torch.equal(result, expected)

    def disturb() -> None:
        nonlocal raised
        with torch.inference_mode():
            while not stop.wait(0.02):
                try:
                    call(x[:, :1])
                except Exception:
                    raised += 1

    workers = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    disturbing = threading.Thread(target=disturb)
    for thread in [*workers, disturbing]:
        thread.start()
    for thread in workers:
        thread.join()
    spent = time.perf_counter() - begin
    stop.set()
    disturbing.join()
    every = sorted(t for mine in taken for t in mine)
    return {
        "first": first,
        "rate": len(every) / spent,
        "median": statistics.median(every),
        "p99": every[int(0.99 * len(every))],
        "resident": resident(),
        "grown": resident() - before,
        "calls": len(every),
        "wrong": wrong,
        "raised": raised,
    }


def build(folder: Path) -> Path:
    """The load generator, against the torch that is installed."""
    program, libraries = folder / "serve", Path(torch.__file__).parent / "lib"
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-o", str(program)]
    command += [f"-isystem{path}" for path in cpp_extension.include_paths()]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [str(HERE / "serve.cpp"), f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
    command += ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-pthread"]
    subprocess.run(command, check=True)
    return program


def output_of(command: list[str]) -> dict[str, float] | str:
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode:
        return next(iter(done.stderr.splitlines()[-1:]), f"exit {done.returncode}")
    return json.loads(lines[-1])


def line(name: str, how: str, threads: int, found: dict[str, float] | str) -> str:
    if isinstance(found, str):
        return f"{name:20}{how:8}{threads:8}  fails: {found}"
    return (
        f"{name:20}{how:8}{threads:8}{found['rate']:12.1f}{found['median'] * 1e3:11.2f}"
        f"{found['p99'] * 1e3:11.2f}{found['resident']:11.0f}{found['grown']:9.1f}"
        f"{found['first']:9.2f}{found['calls']:9.0f}{found['wrong']:7.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="MLP", choices=MODELS)
    parser.add_argument("--form", default="", help="those whose name holds this")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=3.0, help="that each is called")
    parser.add_argument("--calls", type=int, default=0, help="at least so many, to see memory grow")
    parser.add_argument("--chart", type=Path, help="draw requests a second there, as a PNG")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        form, folder, threads = options.one
        torch.set_num_threads(1)
        call = loaded(options.model, form, Path(folder), int(threads))
        x = prepared(options.model)[1]
        print(json.dumps(served(call, x, int(threads), options.seconds, options.calls)))
        return
    print(
        f"{options.model}, batch 1, one intra-op thread\n{'':20}{'from':8}{'threads':>8}"
        f"{'requests/s':>12}{'median ms':>11}{'99 % ms':>11}{'MiB':>11}{'grown':>9}{'first s':>9}"
        f"{'calls':>9}{'wrong':>7}"
    )
    results: dict[str, dict[int, float]] = {}
    with tempfile.TemporaryDirectory() as made:
        program = build(Path(made))
        torch.jit.save(torch.jit.script(Input(prepared(options.model)[1])), f"{made}/input.pt")
        for form in (form for form in FORMS if options.form in form):
            if form in FILES:
                write(options.model, form, Path(made))
            for how in ("Python", "C++") if form in FILES else ("Python",):
                for threads in options.threads:
                    command = [sys.executable, "-W", "ignore", __file__, "--model", options.model]
                    command += ["--seconds", str(options.seconds), "--calls", str(options.calls)]
                    command += ["--one", form, made, str(threads)]
                    if how == "C++":
                        end = "pt2" if FILES[form] == "package" else "pt"
                        command = [str(program), FILES[form], f"{made}/module.{end}"]
                        command += [f"{made}/input.pt", str(threads), str(options.seconds)]
                        command += [str(options.calls)]
                    found = output_of(command)
                    print(line(form, how, threads, found), flush=True)
                    if not isinstance(found, str):
                        results.setdefault(f"{form}, {how}", {})[threads] = found["rate"]
    if options.chart:
        from chart import draw_rates

        draw_rates(options.model, results, options.chart)


class Input(nn.Module):
    """A tensor in a file that C++ reads."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.register_buffer("x", x)


if __name__ == "__main__":
    main()
