"""What is known of operators: a row for each overload, made by scripts/observe."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from jit_amp import policy

ROOT = Path(__file__).parents[3]
WHAT = ("untouched", "cast", "promote", "decomposed", "refused")

# Of torch 2.13.0: how many overloads freezing does what with.
COUNTS = {
    "cpu": {"untouched": 3019, "cast": 124, "promote": 3, "decomposed": 36, "refused": 575},
    "cuda": {"untouched": 2924, "cast": 119, "promote": 11, "decomposed": 65, "refused": 638},
}


def counts(device: policy.DeviceType) -> dict[str, int]:
    return dict(Counter(what.partition(":")[0] for what in policy.reach(device).values()))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.skipif(
    not torch.__version__.startswith("2.13.0"), reason="the counts are of torch 2.13.0"
)
def test_the_counts_are_those_of_the_installed_torch(device: policy.DeviceType) -> None:
    assert counts(device) == COUNTS[device]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_overload_is_known_or_refused_with_a_reason(device: policy.DeviceType) -> None:
    found = policy.reach(device)
    overloads = {s.name for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")}
    assert {name.partition(".")[0] for name in found} == overloads
    for name, what in found.items():
        kind, _, reason = what.partition(": ")
        assert kind in WHAT and bool(reason) == (kind == "refused"), name


EVERYDAY = {
    "aten::relu_": ("untouched", "untouched"),
    "aten::hardswish_": ("untouched", "untouched"),
    "aten::add_.Tensor": ("untouched", "untouched"),
    "aten::instance_norm": ("untouched", "untouched"),
    "aten::__and__.Tensor": ("untouched", "untouched"),
    "aten::index_put_.hacked_twin": ("untouched", "untouched"),
    "aten::is_contiguous": ("untouched", "untouched"),
    "aten::square": ("untouched", "decomposed"),
    "aten::hstack": ("untouched", "untouched"),
    "aten::conv2d": ("cast", "cast"),
    "aten::lstm.input": ("decomposed", "decomposed"),
    "aten::einsum": ("decomposed", "cast"),
}


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_operators(name: str) -> None:
    found = [policy.reach(device)[name].partition(":")[0] for device in ("cpu", "cuda")]
    assert tuple(found) == EVERYDAY[name]


def test_an_operator_that_is_not_there_is_refused_by_name() -> None:
    from jit_amp import _C

    with pytest.raises(ValueError, match="no operator is called 'aten::toast'"):
        _C.reach("aten::toast", "cpu")


def test_forms_of_an_operator_reach_the_same() -> None:
    """What is written in place, or to `out`, is computed as the functional form computes it."""
    rows = {}
    for line in (ROOT / "csrc/analysis/observed.inc").read_text().splitlines():
        if line.startswith("OBSERVED("):
            name, cpu, _, _ = line[len("OBSERVED(") :].split(", ", 3)
            rows[name.strip('"')] = cpu
    differ = []
    for schema in torch._C._jit_get_all_schemas():
        full = f"{schema.name}.{schema.overload_name}".rstrip(".")
        base = f"{schema.name.rstrip('_')}.{schema.overload_name}".rstrip(".")
        is_written = schema.name.endswith("_") and not schema.name.endswith("__")
        if is_written and {full, base} <= rows.keys() and rows[full] != rows[base]:
            differ.append((full, rows[full], rows[base]))
    assert differ == []


def test_the_report_is_printed() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "jit_amp.policy", "--reach"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for device in ("cpu", "cuda"):
        assert f"{device}: {len(policy.reach(device))} overloads, torch {torch.__version__}" in text
    assert "refused" in text and "no call of it was observed" in text


def test_all_that_is_known_of_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    [rows] = policy.known_of("aten::layer_norm").values()
    assert rows == {
        "cpu": "in no list of autocast's: untouched",
        "cuda": "fp32, by AT_FORALL_FP32 of ATen/autocast_mode.h",
        "xpu": "fp32, by AT_FORALL_FP32 of ATen/autocast_mode.h",
        "mps": "fp32, by csrc/analysis/mps_policy.inc",
        "calls": "on CPU nothing, on CUDA cast (counts where it is in no list)",
        "results": "dtypes =0, dimensions some",
        "traits": rows["traits"],
    }
    assert policy.main(["aten::cat"]) == 0
    assert "traits   group none, memory fresh, strides kept" in capsys.readouterr().out
    assert policy.main(["aten::no_such_operator"]) == 2
    assert "TorchScript has no operator 'aten::no_such" in capsys.readouterr().err
