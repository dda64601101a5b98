"""Ten questions of people who have just found jit_amp: each is answered within two clicks of the
README. A click is a link to a page, or to a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import section

ROOT = Path(__file__).parents[1]
QUESTIONS: dict[str, tuple[list[str], str]] = {
    # the question: the links to follow from the README, and what the answer says
    "Is there a wheel for my Python and my machine?": (
        ["docs/getting-started.md#install", "compatibility.md"],
        r"Python 3\.10 \| 3\.11",
    ),
    "Is it for me, if my project is new?": (
        ["docs/choosing.md"],
        r"For a new\s+project\s+look at the alternatives first",
    ),
    "Does it run on my GPU?": (
        ["docs/faq.md", "devices.md"],
        r"It has run three times: .*H100",
    ),
    "How fast is it beside torch.compile, and who measured?": (
        ["docs/benchmarks.md"],
        r"torch\.compile",
    ),
    "How do I load the file from C++?": (
        ["docs/freezing.md", "shipping.md#libtorch-c-without-python"],
        r"torch::jit::load",
    ),
    "Are a frozen model's results the same as eager's?": (
        ["docs/freezing.md#batch-norms-and-why-results-can-differ-a-little"],
        r"optimize_numerics=False",
    ),
    "How do I train in float16 with a GradScaler?": (
        ["docs/faq.md", "training.md#training-in-float16"],
        r"GradScaler",
    ),
    "Which layer does not bear float16?": (
        ["docs/precision.md"],
        r"jit_amp\.tune",
    ),
    "An operator of mine cannot be frozen. What do I write?": (
        ["docs/errors.md#ja301", "operators.md#an-operator-of-yours-in-a-frozen-module"],
        r"policy\.register",
    ),
    "PyTorch leaves TorchScript. Where do I go from here?": (
        ["docs/leaving-torchscript.md"],
        r"torch\.export",
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_two_clicks_away(question: str) -> None:
    clicks, answer = QUESTIONS[question]
    assert 1 <= len(clicks) <= 2
    page, text = ROOT / "README.md", (ROOT / "README.md").read_text()
    for link in clicks:
        assert f"]({link})" in text, f"{page.name} has no link to {link}"
        target, _, anchor = link.partition("#")
        page = page.parent / target
        text = section(page, anchor)
    assert re.search(answer, text), f"{page.name} does not say {answer}"
