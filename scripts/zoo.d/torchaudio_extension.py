"""Stands in for `torchaudio._extension`, which loads torchaudio's compiled operators.

Its wheel's are for a build of PyTorch with CUDA, and what models use of torchaudio needs none.

`import torchaudio_extension` comes before `import torchaudio`.
"""

from __future__ import annotations

import sys
from typing import Any

_IS_TORCHAUDIO_EXT_AVAILABLE = False
_IS_ALIGN_AVAILABLE = False


def _check_cuda_version() -> None:
    pass


def fail_if_no_align(function: Any) -> Any:
    return function


sys.modules["torchaudio._extension"] = sys.modules[__name__]
