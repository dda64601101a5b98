"""The demo's second process: runs saved artefacts with torch alone.

    demo_elsewhere.py INPUTS OUTPUTS FROZEN LITE

Writes the artefacts' outputs for the images of INPUTS to OUTPUTS. Then it answers each line on
stdin, the name of an artefact, with the seconds of one run: so the first process can interleave
its rounds with ours.
"""

from __future__ import annotations

import sys
import time
import warnings

import torch
from torch.jit.mobile import _load_for_lite_interpreter

warnings.filterwarnings("ignore", "`torch.jit.[a-z_]+` is deprecated")


def main(inputs: str, outputs: str, frozen: str, lite: str) -> None:
    torch.set_num_threads(1)  # as the first process
    data = torch.load(inputs)
    models = {"frozen": torch.jit.load(frozen), "lite": _load_for_lite_interpreter(lite)}
    with torch.no_grad():
        torch.save({name: model(data["images"]) for name, model in models.items()}, outputs)
        assert "jit_amp" not in sys.modules
        print("ready", flush=True)
        for line in sys.stdin:
            start = time.perf_counter()
            models[line.strip()](data["batch"])
            print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
