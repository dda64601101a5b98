"""TorchServe: an archive without a handler of ours, served, and asked over HTTP.

`base_handler` makes a tensor of what the envelope `json` reads: {"instances": [[...], ...]}.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BIN = Path(sys.executable).parent
INFERENCE, MANAGEMENT = "http://127.0.0.1:18080", "http://127.0.0.1:18081"
SETTINGS = f"""\
inference_address={INFERENCE}
management_address={MANAGEMENT}
metrics_address=http://127.0.0.1:18082
service_envelope=json
enable_model_api=true
disable_token_authorization=true
"""


def ask(address: str, method: str = "GET", data: Any = None) -> Any:
    request = urllib.request.Request(address, method=method)
    if data is not None:
        request.data = json.dumps(data).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


@cache
def server(store: Path) -> None:
    """Starts it, and stops it at the end."""
    (store / "settings").write_text(SETTINGS)
    command = [BIN / "torchserve", "--foreground", "--start", "--ncs", "--model-store", store]
    process = subprocess.Popen(
        [*command, "--ts-config", store / "settings"],
        stdout=sys.stderr,
        env=os.environ
        | {"PATH": f"{BIN}:{os.environ['PATH']}", "LOG_LOCATION": str(store / "logs")}
        | {"METRICS_LOCATION": str(store / "logs"), "TEMP": str(store)},
        start_new_session=True,
    )
    atexit.register(os.killpg, process.pid, signal.SIGTERM)
    for _ in range(120):
        if process.poll() is not None:
            raise RuntimeError("TorchServe stopped: it needs Java 11 or newer")
        try:
            ask(f"{INFERENCE}/ping")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(1)
    raise RuntimeError("TorchServe does not answer")


def serve(artefact: Any, x: Tensor, work: Path) -> Tensor:
    store, name = work.parent, work.name
    torch.jit.save(artefact, work / "model.pt")
    options = {
        "model-name": name,
        "version": "1",
        "serialized-file": work / "model.pt",
        "handler": "base_handler",
        "export-path": store,
    }
    given = [f"--{option}={value}" for option, value in options.items()]
    subprocess.run([BIN / "torch-model-archiver", "--force", *given], check=True, stdout=sys.stderr)
    server(store)
    ask(f"{MANAGEMENT}/models?url={name}.mar&initial_workers=1&synchronous=true", "POST")
    try:
        answer = ask(f"{INFERENCE}/predictions/{name}", "POST", {"instances": x.tolist()})
    finally:
        ask(f"{MANAGEMENT}/models/{name}", "DELETE")
    # JSON has numbers without a dtype, and enough digits for each of ours
    dtype = torch.bfloat16 if name.endswith("-bfloat16") else torch.float16
    return torch.tensor(answer["predictions"], dtype=dtype)


ROUTES = {"": serve}
