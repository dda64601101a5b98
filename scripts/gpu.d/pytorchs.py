"""PyTorch's test_jit_autocast.py: `pytorchs.py FILE plain` or `installed`.

The file is PyTorch's, of the release that is there; it is not part of this project. The report
has the names of the tests that fail, plain and installed.
"""

from __future__ import annotations

import io
import os
import re
import sys
import unittest
from pathlib import Path

path, mode = Path(sys.argv[1]), sys.argv[2]
if not path.exists():
    print("bring PyTorch's test/test_jit_autocast.py along, and what it imports (test_jit.py,")
    print(f"jit/test_models.py), in {path.parent}")
    sys.exit(0)
sys.path[:0] = [str(path.parent), str(Path(__file__).parents[2] / "tests")]
if "expecttest" not in sys.modules:
    import stand_ins

    stand_ins.provide()
os.environ.pop("PYTORCH_TEST_WITH_SLOW", None)
sys.argv = [str(path)]
import jit_amp  # noqa: E402

if mode == "installed":
    jit_amp.install()
module = __import__(path.stem)
# PyTorch's test case saves all that is compiled, also what jit_amp.trace has not finished.
module.JitTestCase.setHooks = lambda self: None
result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(
    unittest.defaultTestLoader.loadTestsFromModule(module)
)
for kind in ("failures", "errors"):
    for test, told in getattr(result, kind):
        lines = [line for line in told.splitlines() if re.match(r"\w*(Error|Exception)\b", line)]
        print(f"{kind[:-1]}: {test.id()}: {(lines or told.splitlines()[-1:])[-1][:300]}")
for kind in ("skipped", "expectedFailures", "unexpectedSuccesses"):
    print(f"{kind}: {len(getattr(result, kind))}")
print(f"{mode}: {result.testsRun} tests, {len(result.failures) + len(result.errors)} failed")
sys.exit(0 if mode == "plain" else not result.wasSuccessful())
