"""The version, and the torch that the extension was built for."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import torch

import jit_amp
from jit_amp import _built


def test_the_version_is_the_packages() -> None:
    assert metadata.version("jit_amp").partition("+")[0] == jit_amp.__version__


def test_another_torch_than_it_was_built_for_is_told(tmp_path: Path) -> None:
    made_for = tmp_path / "_torch.txt"
    made_for.write_text("2.1.0+cu118\n")
    with pytest.raises(ImportError, match=r"was built for torch 2\.1\.0\+cu118, and torch 2\.13"):
        _built.check("2.13.0+cpu", made_for)
    _built.check("2.1.0+cpu", made_for)  # the same release for another accelerator
    assert _built.BUILT_FOR.read_text().strip() == torch.__version__
