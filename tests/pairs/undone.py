"""Faults that were mended, put back one by one: how many programs the search by pairs needs to find
each.

    python -m pairs.undone [NAME...] [--seed S] [--most N]

It works on the checkout that it is run in, which comes back as it was: a file is changed, the
extension built if it is C++, and the programs of scripts/pairs that can show the fault are run in
the order in which scripts/pairs has them, until one differs. The number is that program's place in
the order, so the search has found the fault by then at the latest. What takes several threads is no
program of the search; of these the test is named that fails.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fuzz.workers import environment

from . import plan
from .campaign import ROOT, Worker, to_line
from .plan import Item


@dataclass(frozen=True)
class Edit:
    """A text that a file has once, and what stood there."""

    file: str
    now: str
    before: str = ""


@dataclass(frozen=True)
class Fault:
    """What was wrong, and how the code was then.

    Attributes:
        features: names of features, or their beginnings; programs that have none of them need not
            be run. Empty: all are run.
        makes: doors' makes, likewise.
        test: in place of programs, the tests that fail.
        processor: the instructions that oneDNN may use, where others hide the fault.
    """

    name: str
    edits: tuple[Edit, ...]
    features: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    test: str = ""
    processor: str = "DEFAULT"


IN_SCRIPTS = ("script", "script with autocast=", "install", "explain", "exact", "freeze")
STATE = ("buffer", "counter", "cache", "growing", "state", "product added", "write to the input")

FAULTS = [
    Fault(
        "freezing for a server runs the user's module",
        (
            Edit(
                "csrc/passes/server/pack_weights.cpp",
                "Stack stack{copies.of(module._ivalue())};",
                "Stack stack{module._ivalue()};",
            ),
            Edit("csrc/passes/server/pack_weights.cpp", "  copies.put_into(graph);\n"),
        ),
        STATE,
        ("server, examples",),
    ),
    Fault(
        "freezing for a server writes to its examples",
        (
            Edit(
                "csrc/passes/server/pack_weights.cpp",
                "for (const c10::IValue& argument : copies.of(example)) {",
                "for (const c10::IValue& argument : example) {",
            ),
        ),
        ("write to the input",),
        ("server, examples",),
    ),
    Fault(
        "freezing for a server draws random numbers",
        (Edit("jit_amp/_freeze/freeze.py", "with process_state.random_state():", "if True:"),),
        ("random", "dropout that", "rand_like"),
        ("server, examples",),
    ),
    Fault(
        "freezing for a server prints",
        (
            Edit(
                "csrc/passes/server/pack_weights.cpp",
                "if (node->kind() == prim::Print || node->kind() == aten::warn) {",
                "if (node->kind() == aten::warn) {",
            ),
            Edit(
                "csrc/passes/server/pack_weights.cpp",
                "(!node->hasSideEffects() || ",
                "(!node->hasSideEffects() || node->kind() == prim::Print || ",
            ),
        ),
        ("print",),
        ("server, examples",),
    ),
    Fault(
        "freezing detaches an LSTM's weights",
        (
            Edit(
                "csrc/pipelines/modules.cpp",
                "  c.module = with_own_containers(c.module);\n",
            ),
        ),
        ("LSTM", "GRU"),
    ),
    Fault(
        "explain moves the random state",
        (
            Edit(
                "jit_amp/_explain/explain.py",
                "    with process_state.random_state():\n        given = example_arguments",
                "    if True:\n        given = example_arguments",
            ),
        ),
        makes=("explain",),
    ),
    Fault(
        "freezing switches oneDNN off",
        (
            Edit(
                "jit_amp/_base/process_state.py",
                "        if torch._C._get_mkldnn_enabled() != was_enabled:\n"
                "            torch._C._set_mkldnn_enabled(was_enabled)\n",
                "        pass\n",
            ),
        ),
        # PyTorch does it on processors without products in bfloat16.
        test="tests/jit/behaviour/test_untouched.py::test_onednn_stays_switched_on",
    ),
    Fault(
        "a frozen module asks a question that only jit_amp answers",
        (
            Edit(
                "jit_amp/_freeze/freeze.py",
                "        _C.mend_frozen_by_pytorch(plain._c, form)\n",
            ),
            Edit(
                "csrc/pipelines/freeze.cpp",
                '      {"write_queries", run<ask_and_write_queries>, Phase::lowered, '
                "Phase::lowered, Kind::meaning},\n"
                '      {"keep_detach", run<hide_detach>',
                '      {"keep_detach", run<hide_detach>',
            ),
        ),
        ("is_autocast_enabled", "no scope at all"),
    ),
    Fault(
        "int64 * 1j is believed complex128",
        (
            Edit(
                "csrc/analysis/promotion.cpp",
                "c10::isComplexType(dtype)    ? c10::toComplexType(standard)",
                "c10::isComplexType(dtype)    ? dtype",
            ),
        ),
        ("integer argument times 1j", "integers times 1j", "complex"),
    ),
    Fault(
        "any dtype= is believed to be the result's",
        (
            Edit(
                "csrc/analysis/transfer.cpp",
                "!is_seen || !seen->dtypes[index].heeds_dtype || (may_be_none",
                "(may_be_none",
            ),
        ),
        ("norm of complex numbers with a dtype", "dtype="),
    ),
    Fault(
        "__enter__ and __exit__ of a class run outside the scope",
        (
            Edit(
                "csrc/analysis/hidden_calls.cpp",
                "if (node->kind() == prim::Enter || node->kind() == prim::Exit) {\n"
                "    return method_of",
                "if (node->kind() == prim::Enter || node->kind() == prim::Exit) {\n"
                "    return nullptr;\n    return method_of",
            ),
        ),
        ("class as context manager",),
    ),
    Fault(
        "sorted calls __lt__ outside the scope",
        (
            Edit(
                "csrc/analysis/hidden_calls.cpp",
                'return list ? method_of(list->getElementType(), "__lt__") : nullptr;',
                "return nullptr;",
            ),
        ),
        ("sorted objects",),
    ),
    Fault(
        "methods behind an interface run outside the scope",
        (
            Edit(
                "csrc/analysis/policy.cpp",
                "  if (!schema || node->kind() == prim::PythonOp) {",
                "  if (node->kind() == prim::CallMethod) {\n    return Policy::untouched;\n  }\n"
                "  if (!schema || node->kind() == prim::PythonOp) {",
            ),
            Edit(
                "csrc/analysis/plan.cpp",
                "  plan.dispatches |= is_call(node) && state != entry;\n",
            ),
        ),
        ("interface",),
    ),
    Fault(
        "what stands beside a branch that holds a loop runs before it",
        (
            Edit(
                "csrc/passes/lowering/for_interpreter.cpp",
                "if (!node->blocks().empty() && node->outputs().size() == 1) {",
                "if (node->kind() == prim::Loop && node->outputs().size() == 1) {",
            ),
        ),
        ("padding to a skip", "loop whose result", "loop in a branch"),
    ),
    Fault(
        "a submodule that two others share is of the original's type",
        (Edit("csrc/runtime/attach.cpp", "  take_clones(module, copy);\n"),),
        ("shared submodule",),
        ("trace", "trace, exact"),
    ),
    Fault(
        "an attribute that is a torch.device, or a complex number, cannot be looked into",
        (
            Edit(
                "csrc/passes/freeze/own_constants.cpp",
                "  c10::IValue(module._ivalue()).visit([&](const c10::IValue& value) {",
                "  c10::IValue::HashAliasedIValues inside;\n"
                "  c10::IValue(module._ivalue()).getSubValues(inside);\n"
                "  c10::IValue(module._ivalue()).visit([&](const c10::IValue& value) {",
            ),
        ),
        ("device attribute", "unused device", "list of devices", "complex attribute"),
    ),
    Fault(
        "an argument that is None, and no Optional, cannot be copied",
        (
            Edit(
                "csrc/core/copies.cpp",
                "  if (!tensor.defined()) {\n    return tensor;\n  }\n",
            ),
        ),
        ("unused=None",),
        ("server, examples",),
    ),
    Fault(
        "an artefact for servers inside a frozen module cannot be saved",
        (
            Edit("csrc/pipelines/modules.cpp", "  unpack(c.module);\n"),
            # Wherever oneDNN can, the weights are packed, however slow that is.
            Edit(
                "jit_amp/_freeze/packed.py",
                "return self.has_instructions()",
                "return True",
            ),
        ),
        features=("large layers",),
        makes=("server", "server, examples"),
    ),
    Fault(
        "a preserved attribute called _packed",
        (
            Edit(
                "csrc/passes/server/pack_weights.cpp",
                "  while (frozen.hasattr(name) || frozen.find_method(name)) {\n"
                '    name += "_";\n  }\n',
            ),
        ),
        ("attribute called _packed",),
        ("server", "server, examples"),
    ),
    Fault(
        "writes to what may be an operand vanish",
        (
            Edit(
                "csrc/passes/quirks/operators/tell_aliases.cpp",
                "if (!may_write(graph->block())) {",
                "if (true || !may_write(graph->block())) {",
            ),
        ),
        ("write to atleast_",),
    ),
    Fault(
        "writes that PyTorch's compiler drops are not refused",
        (
            Edit(
                "jit_amp/_source/lost_writes.py",
                "len(set(spans)) < write.places or len(spans) % write.of",
                "False",
            ),
        ),
        ("lost write",),
    ),
    Fault(
        "writes by functions that PyTorch's compiler drops are not refused",
        (
            Edit(
                "jit_amp/_source/lost_writes.py",
                "    for operand in call.args[:1] or named:",
                "    for operand in ():",
            ),
        ),
        ("lost write to a result,", "lost write to what a function"),
    ),
    Fault(
        "a write is looked for in branches that the compiler leaves out",
        (
            Edit(
                "jit_amp/_source/lost_writes.py",
                "known_nones(text, function.arguments)",
                "frozenset()",
            ),
        ),
        ("write in a branch that cannot be",),
    ),
    Fault(
        "explain leaves a scope on that a program entered by hand",
        (Edit("jit_amp/_explain/explain.py", "@process_state.around(process_state.modes)\n"),),
        ("scope entered by hand",),
    ),
    Fault(
        "the tracer changes torch.autocast, and script_if_tracing compiles that",
        (
            Edit(
                "jit_amp/_script/recording.py",
                '    replacing.Hook(_original, "_check_trace", _checking, state_of_trace),\n',
                '    replacing.Hook(_original, "_check_trace", _checking, state_of_trace),\n'
                '    replacing.Hook(_autocast, "__enter__", lambda _, f, *a: f(*a), lambda: 1),\n',
            ),
        ),
        ("script_if_tracing",),
        ("trace", "trace, exact"),
    ),
    Fault(
        "a product of sparse matrices is refused",
        (
            Edit(
                "csrc/core/definitions/math.py",
                "def _sparse_mm(x: Tensor, y: Tensor) -> Tensor:\n    # One",
                "def _not_sparse_mm(x: Tensor, y: Tensor) -> Tensor:\n    # One",
            ),
        ),
        ("adjacency",),
    ),
    Fault(
        "a server's linear layer does not take sparse and nested tensors",
        (
            Edit(
                "csrc/passes/server/fuse_pointwise.cpp",
                "      all.push_back(equal(insert(prim::layout, tensor), "
                "static_cast<int64_t>(at::kStrided)));\n"
                "      all.push_back(insert(aten::__not__, "
                'insert(Symbol::prim("is_nested"), tensor)));\n',
            ),
            # Wherever oneDNN can, its layers are used, however slow that is.
            Edit(
                "jit_amp/_freeze/packed.py",
                "return self.has_instructions()",
                "return True",
            ),
        ),
        ("sparse argument", "nested argument"),
        ("server", "server, examples"),
    ),
    Fault(
        "forces that a frozen model computes differ from the second call on",
        (
            Edit(
                "csrc/passes/quirks/autodiff/keep_gradients.cpp",
                "  bool changed = false;\n  for (Node* node",
                "  bool changed = false;\n  return changed;\n  for (Node* node",
            ),
        ),
        ("gradient in forward",),
    ),
    # Found by the search itself.
    Fault(
        "an einsum of one operand, which may give a view, is widened as a product",
        (
            Edit(
                "csrc/passes/server/widen_products.cpp",
                "operands.size() < 2",
                "operands.empty()",
            ),
        ),
        ("write to einsum's result", "lost write to einsum"),
        ("server", "server, examples"),
        processor="AVX2",  # it has no instructions for a reduced dtype, so products are widened
    ),
    Fault(
        "running statistics are constants, and one with a bias that is equal when it is saved",
        (
            Edit(
                "csrc/pipelines/modules.cpp",
                "    changed |= keep_state(function->graph(), submodule(c.module, kept.path));\n",
            ),
            Edit(
                "csrc/analysis/state.cpp",
                "return decided(norm->input(kTraining), modules) != false;",
                "return false;",
            ),
        ),
        ("running statistics",),
    ),
    Fault(
        "lists that are equal at first are one when they are frozen",
        (
            Edit(
                "csrc/pipelines/modules.cpp",
                "std::vector<std::string> kept = state_attributes(flat);",
                "std::vector<std::string> kept;",
            ),
        ),
        ("tensors of", "tensor of a list", "list of tensors that", "state of a submodule"),
    ),
    Fault(
        "operators of a saved program are what the compiler made of them",
        (
            Edit(
                "csrc/passes/source/write_operators.cpp",
                "as_written(node->sourceRange()).text().str()",
                "node->sourceRange().text().str()",
            ),
        ),
        ("in place", "reversed operators of bytes"),
    ),
    Fault(
        "a trace forgets that a scope has no cache",
        (
            Edit(
                "jit_amp/_script/recording.py",
                "(scope.device, scope.fast_dtype, enabled, cache_enabled),",
                "(scope.device, scope.fast_dtype, enabled, None),",
            ),
        ),
        ("weight used twice in a scope without its cache",),
        ("trace", "trace, exact"),
    ),
    Fault(
        "a weight that is written to is cast again, where eager keeps the cast",
        (
            Edit(
                "csrc/runtime/program.cpp",
                "(may_enter && lowered.writes_to_cast &&",
                "(false && may_enter && lowered.writes_to_cast &&",
            ),
        ),
        ("weight written between",),
    ),
    Fault(
        "gradients through tasks are eager's up to rounding",
        (
            Edit(
                "csrc/passes/lowering/enter_scopes.cpp",
                "return can_run_tasks(graph) && std::none_of(",
                "return !contains(graph, prim::fork) && std::none_of(",
            ),
        ),
        ("fork and wait",),
        ("script", "script with autocast=", "install"),
    ),
    # What stands between a call and the code that is compiled, and what was compiled before.
    Fault(
        "what stands around a function is not looked at",
        (
            Edit(
                "jit_amp/_source/decorators.py",
                "    return func.__wrapped__, None  # a proxy computes it\n",
                "    return func.__wrapped__, []\n",
            ),
        ),
        ("wrapped: ",),
        IN_SCRIPTS,
    ),
    Fault(
        "no_grad beside autocast is dropped",
        (
            Edit(
                "jit_amp/_source/decorators.py",
                'return cells["func"], [(_GRADIENTS, None, mode, infers)]',
                'return cells["func"], []',
            ),
        ),
        ("no_grad below", "no_grad above", "inference_mode", "exported: no_grad"),
        ("script", "script with autocast=", "install", "explain"),
    ),
    Fault(
        "a `__call__` of a class's own is not looked at",
        (Edit("jit_amp/_script/compilation.py", "        refuse_calls_of_its_own(nn_module)\n"),),
        ("wrapped: class with a call",),
        IN_SCRIPTS,
    ),
    Fault(
        "what PyTorch has compiled before is taken without its decorators",
        (
            Edit(
                "jit_amp/_script/compiled_before.py",
                "                if scopes := scopes_of(function):\n",
                "                if scopes := []:\n",
            ),
        ),
        (),
        ("script of PyTorch's",),
    ),
    # What takes several threads.
    Fault(
        "a child hangs that is forked while another thread scripts",
        (Edit("jit_amp/_script/compiling.py", 'if hasattr(os, "register_at_fork"):', "if False:"),),
        test="tests/jit/behaviour/test_forks.py",
    ),
    Fault(
        "ignore_amp keeps the weights of a module that is gone",
        (Edit("jit_amp/_script/ignore_amp.py", "        _C.forget_ignored()\n", "        pass\n"),),
        test="tests/jit/behaviour/test_ignore.py",
    ),
]


def programs(fault: Fault, seed: int) -> Iterator[tuple[int, Item]]:
    """The programs that may show it, with their places in the order of scripts/pairs."""

    def can_show(item: Item) -> bool:
        has_feature = not fault.features or any(
            name.startswith(fault.features) for name in item.features
        )
        return has_feature and (not fault.makes or item.door.make in fault.makes)

    everything = itertools.chain(plan.singles(seed), plan.pairwise(seed))
    return ((n, item) for n, item in enumerate(everything, 1) if can_show(item))


def search(fault: Fault, seed: int, most: int) -> dict[str, Any]:
    """Runs programs until one differs."""
    worker = Worker()
    try:
        for ran, (place, item) in enumerate(itertools.islice(programs(fault, seed), most), 1):
            answer = worker.ask(to_line(item))
            if answer["verdict"] == "differs":
                return {
                    "place": place,
                    "ran": ran,
                    "door": str(item.door),
                    "features": item.features,
                    "kind": answer["kind"],
                }
        return {}
    finally:
        worker.stop()


@contextlib.contextmanager
def undone(fault: Fault) -> Iterator[None]:
    """Inside, the checkout has the fault."""
    kept = {ROOT / edit.file: (ROOT / edit.file).read_text() for edit in fault.edits}
    try:
        for edit in fault.edits:
            path = ROOT / edit.file
            text = path.read_text()
            if text.count(edit.now) != 1:
                raise RuntimeError(f"{fault.name}: {edit.file} has not once:\n{edit.now}")
            path.write_text(text.replace(edit.now, edit.before))
        yield
    finally:
        for path, text in kept.items():
            path.write_text(text)


def build(strict: bool) -> None:
    """The extension, with what is changed of it. Unless it is strict, what is not used any more is
    no error, and all of it is compiled anew when that changes."""
    done = subprocess.run(
        ["bash", "-c", ". scripts/env && build .venv . --inplace"],
        cwd=ROOT,
        env={**os.environ, "JIT_AMP_CHECKS": "1" if strict else ""},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)


def shown(fault: Fault, seed: int, most: int) -> str:
    """One line: how it was found."""
    if fault.test:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-n0", fault.test],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
        )
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        return f"by {failed[0].split()[1]}" if failed else "not found"
    options = ["--search", fault.name, "--seed", str(seed), "--most", str(most)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pairs.undone", *options],
        cwd=ROOT,
        env={**environment(), "ONEDNN_MAX_CPU_ISA": fault.processor},
        stdout=subprocess.PIPE,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    if not found:
        return "not found"
    features = ", ".join(found["features"])
    return (
        f"by program {found['place']} (ran {found['ran']}): "
        f"{found['kind']}; {features}; {found['door']}"
    )


def tried(chosen: list[Fault], seed: int = 0, most: int = 0, strict: bool = False) -> int:
    """Plants each, and prints how it was found; 1 where one was not."""
    missed, is_built = 0, False
    try:
        for number, fault in enumerate(chosen, 1):
            start = time.monotonic()
            with undone(fault):
                if any(edit.file.startswith("csrc") for edit in fault.edits):
                    is_built = True
                    build(strict)
                line = shown(fault, seed, most)
            missed += line == "not found"
            took = time.monotonic() - start
            print(f"[{number}/{len(chosen)}] {fault.name}: {line} ({took:.0f} s)", flush=True)
    finally:
        if is_built:
            build(strict)
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pairs.undone", description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of faults' names; else all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=1000, help="programs of each, at most")
    parser.add_argument("--search", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.search:
        fault = next(each for each in FAULTS if each.name == options.search)
        print(json.dumps(search(fault, options.seed, options.most)))
        return 0
    chosen = [f for f in FAULTS if not options.names or f.name.startswith(tuple(options.names))]
    return tried(chosen, options.seed, options.most)


if __name__ == "__main__":
    sys.exit(main())
