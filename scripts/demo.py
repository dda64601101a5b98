"""The main job: train with autocast, script, freeze, save, load where jit_amp is not, compare."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from demo_model import Classifier
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import jit_amp

warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")
warnings.filterwarnings("ignore", "Lite Interpreter is deprecated", DeprecationWarning)

HERE = Path(__file__).parent
OUT = HERE.parent / "out"
EPOCHS, BATCH, WARM_UP = 3, 64, 3
SECONDS = 8.0  # of timing


@dataclass
class Row:
    """One line of the table: what a way to run the model gave, or the error it raised."""

    name: str
    run: Callable[[], float] | None = None  # runs one batch, returns its seconds
    output: Tensor | None = None
    error: str = ""
    file: Path | None = None
    seconds: list[float] = field(default_factory=list)


def load_data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns training images, held-out images, and the digits of both."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    truth = torch.tensor(digits.target)
    train, test = train_test_split(range(len(images)), random_state=0, stratify=digits.target)
    return images[train], images[test], truth[train], truth[test]


def train(model: nn.Module, images: Tensor, digits: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    steps = EPOCHS * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]).float(), digits[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        print(f"  epoch {epoch + 1}/{EPOCHS}: loss {total / len(images):.3f}", flush=True)


def timed(model: Callable[[Tensor], Tensor], batch: Tensor) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        model(batch)
        return time.perf_counter() - start

    return run


def here(name: str, model: nn.Module, images: Tensor, file: Path | None = None) -> Row:
    """The row of a model that runs in this process."""
    try:
        for _ in range(3):  # the executor changes its plan between calls
            output = model(images)
    except (RuntimeError, torch.jit.Error) as error:
        return Row(name, error=str(error).strip().splitlines()[-1], file=file)
    return Row(name, timed(model, images[:BATCH]), output, file=file)


class Elsewhere:
    """The second process, in which jit_amp is never imported."""

    def __init__(self, images: Tensor, frozen: Path, lite: Path) -> None:
        inputs, outputs = OUT / "inputs.pt", OUT / "outputs.pt"
        torch.save({"images": images, "batch": images[:BATCH].clone()}, inputs)
        script = HERE / "demo_elsewhere.py"
        self.process = subprocess.Popen(
            [sys.executable, *map(str, (script, inputs, outputs, frozen, lite))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.answer() != "ready":
            raise RuntimeError("the second process did not start")
        self.outputs: dict[str, Tensor] = torch.load(outputs)

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def row(self, name: str, artefact: str, file: Path) -> Row:
        def run() -> float:
            assert self.process.stdin
            print(artefact, file=self.process.stdin, flush=True)
            return float(self.answer())

        return Row(name, run, self.outputs[artefact], file=file)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def measure(rows: list[Row]) -> None:
    """Times all rows in turn, round by round, so that what disturbs one disturbs all."""
    begin, number = time.monotonic(), 0
    while (spent := time.monotonic() - begin) < SECONDS or number <= WARM_UP:
        print(f"\rtiming: {spent:.0f} of {SECONDS:.0f} s", end="", flush=True)
        for row in rows:
            if row.run:
                seconds = row.run()
                if number >= WARM_UP:
                    row.seconds.append(seconds)
        number += 1
    print(f"\rtimed: {number - WARM_UP} batches of {BATCH} digits each, all rows in turn")


def table(rows: list[Row], reference: Tensor, digits: Tensor) -> str:
    head = f"{'':26}{'dtype':10}{'accuracy':>9}{'max diff':>11}{'file KiB':>10}"
    lines = [head, "-" * len(head)]
    for row in rows:
        size = f"{row.file.stat().st_size / 1024:.0f}" if row.file else "-"
        if row.output is None:
            lines.append(f"{row.name:26}{row.error}")
            continue
        accuracy = (row.output.argmax(1) == digits).float().mean().item()
        difference = (row.output.float() - reference.float()).abs().max().item()
        dtype = str(row.output.dtype).removeprefix("torch.")
        lines.append(f"{row.name:26}{dtype:10}{accuracy:9.2%}{difference:11.2g}{size:>10}")
    return "\n".join(lines)


def times(rows: list[Row], eager: Row) -> str:
    head = f"{'':26}{'median ms':>10}{'times as fast as eager autocast':>35}"
    lines = [head, "-" * len(head)]
    usual = statistics.median(eager.seconds)
    for row in rows:
        if row.seconds:
            median = statistics.median(row.seconds)
            lines.append(f"{row.name:26}{median * 1000:10.3f}{usual / median:35.2f}")
    return "\n".join(lines)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a model is not faster with more
    OUT.mkdir(exist_ok=True)
    images, held_out, digits, truth = load_data()

    print(f"training on {len(images)} digits, bfloat16 autocast", flush=True)
    model = Classifier()
    train(model, images, digits)
    model.eval()
    fp32 = Classifier(amp=False).eval()
    fp32.load_state_dict(model.state_dict())

    with torch.no_grad():
        print("scripting and freezing", flush=True)
        plain = torch.jit.script(model)
        scripted = jit_amp.script(model)
        frozen = jit_amp.freeze(model, example_inputs=(held_out[:BATCH],))

        files = {name: OUT / name for name in ("plain.pt", "scripted.pt", "frozen.pt", "lite.ptl")}
        torch.jit.save(plain, files["plain.pt"])
        torch.jit.save(scripted, files["scripted.pt"])
        torch.jit.save(frozen, files["frozen.pt"])
        frozen._save_for_lite_interpreter(str(files["lite.ptl"]))

        print("loading in a second process, without jit_amp", flush=True)
        elsewhere = Elsewhere(held_out, files["frozen.pt"], files["lite.ptl"])
        rows = [
            here("eager fp32", fp32, held_out),
            here("eager autocast", model, held_out),
            here("plain torch.jit.script", plain, held_out, files["plain.pt"]),
            here("jit_amp.script", scripted, held_out, files["scripted.pt"]),
            here("jit_amp.freeze", frozen, held_out, files["frozen.pt"]),
            elsewhere.row("frozen, reloaded *", "frozen", files["frozen.pt"]),
            elsewhere.row("frozen, lite *", "lite", files["lite.ptl"]),
        ]
        reference = rows[1].output
        assert reference is not None
        print(f"\n{table(rows, reference, truth)}\n")
        print(
            f"Accuracy and max diff (from eager autocast) are of {len(held_out)} held-out digits."
        )
        print("freeze folds batch norms before it rounds the weights, hence its difference.")
        print("Rows with * ran in the second process. Files are in out/.\n", flush=True)
        measure(rows)
        elsewhere.close()
    print(f"\n{times(rows, rows[1])}")
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        print("\nThis processor has no instructions for bfloat16, so float32 is faster here.")


if __name__ == "__main__":
    main()
