"""What of PyTorch's jit_amp uses though its name begins with an underscore: all that a new release
may change without a word."""

import pytest
import torch

from .pytorchs_private_names import LIST, described, is_private, used, value_of

LINES = LIST.read_text().splitlines()
NAMES = [line.partition("(")[0] for line in LINES]
WRITTEN_FOR = "2.13"  # parameters are told for it


def test_the_list_is_whole() -> None:
    """`python tests/jit/pytorchs_private_names.py` writes it anew."""
    assert used() == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_there(name: str) -> None:
    assert is_private(name) and value_of(name) is not None


@pytest.mark.skipif(
    not torch.__version__.startswith(WRITTEN_FOR), reason="told for another release"
)
@pytest.mark.parametrize("line", LINES)
def test_it_has_the_parameters_that_are_relied_on(line: str) -> None:
    assert described(line.partition("(")[0]) == line
