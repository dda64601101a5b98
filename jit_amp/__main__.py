"""``python -m jit_amp``, as ``jit-amp``."""

import sys

from jit_amp._cli.main import main as main

if __name__ == "__main__":
    sys.exit(main())
