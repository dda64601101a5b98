"""PyTorch's test_jit_autocast.py: `pytorchs.py FILE plain` or `installed`.

The file is PyTorch's, of the release that is there; it is not part of this project. The report
has the names of the tests that fail, plain and installed.
"""

from __future__ import annotations

import io
import os
import sys
import unittest
from pathlib import Path

path, mode = Path(sys.argv[1]), sys.argv[2]
if not path.exists():
    print(f"bring PyTorch's test/test_jit_autocast.py along, as {path.name} in the state folder")
    sys.exit(0)
sys.path[:0] = [str(Path(__file__).parents[2] / "tests"), str(path.parent)]
if "expecttest" not in sys.modules:
    import stand_ins

    stand_ins.provide()
os.environ.pop("PYTORCH_TEST_WITH_SLOW", None)
sys.argv = [str(path)]
import jit_amp  # noqa: E402

if mode == "installed":
    jit_amp.install()
module = __import__(path.stem)
result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(
    unittest.defaultTestLoader.loadTestsFromModule(module)
)
for kind in ("failures", "errors"):
    for test, told in getattr(result, kind):
        print(f"{kind[:-1]}: {test.id()}: {told.strip().splitlines()[-1][:200]}")
for kind in ("skipped", "expectedFailures", "unexpectedSuccesses"):
    print(f"{kind}: {len(getattr(result, kind))}")
print(f"{mode}: {result.testsRun} tests, {len(result.failures) + len(result.errors)} failed")
sys.exit(0 if mode == "plain" else not result.wasSuccessful())
