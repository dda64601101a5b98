"""The soak of servers, for a few seconds; and that it notices a wrong answer."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from .soak import Net, soak
from .soak_server import wrong


def test_servers_answer_while_files_change(tmp_path: Path) -> None:
    told = soak(6, 2, 0.002, tmp_path)
    for name in ("Python", "libtorch"):
        assert told[name]["wrong"] == [] and told[name]["wrong_count"] == 0
        assert told[name]["requests"] > 0 and told[name]["loads"] > 1
    assert told["writer"]["files"] > 1


def test_an_answer_of_another_version_is_noticed() -> None:
    net, chance = Net(3).eval(), random.Random(0)
    scripted = torch.jit.trace(net, torch.ones(2, 8), check_trace=False)
    with torch.no_grad():
        assert wrong(scripted, chance) == ""
        net.version += 1  # the trace's own, too
        assert "x 4.0" in wrong(scripted, chance)
