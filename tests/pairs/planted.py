"""Mutations, planted one by one: each is found by tests of the room of csrc that it is in.

    python -m pairs.planted [NAME...]

It works on the checkout that it is run in, as pairs.undone does, which comes back as it was.
"""

from __future__ import annotations

import argparse
import sys

from .undone import Edit, Fault, tried

PASSES = "tests/jit/passes/"

PLANTED = [
    Fault(
        "core: every loop counts as marked",
        (Edit("csrc/core/verify.cpp", "value->uses().empty() ||", "true ||"),),
        test=PASSES + "test_verify.py",
    ),
    Fault(
        "core: a third power is multiplied from the other side",
        (
            Edit(
                "csrc/core/definitions/math.py",
                "        return torch.matmul(torch.matmul(x, x), x)\n",
                "        return torch.matmul(x, torch.matmul(x, x))\n",
            ),
        ),
        test="tests/jit/deploy/test_definitions.py",
    ),
    Fault(
        "analysis: the dtype of any tensor is float32",
        (
            Edit(
                "csrc/analysis/transfer.cpp",
                "      return facts_.of(from->input()).dtypes;",
                "      return DTypes::only(c10::kFloat);",
            ),
        ),
        test=PASSES + "test_facts.py",
    ),
    Fault(
        "analysis: what promotes becomes float32",
        (
            Edit(
                "csrc/analysis/plan.cpp",
                "      return Action::promote;",
                "      return Action::to_float32;",
            ),
        ),
        test=PASSES + "test_lower.py",
    ),
    Fault(
        "source: an attribute that the program assigns decides about a scope",
        (
            Edit(
                "csrc/passes/source/fix_attributes.cpp",
                "if (assigned_->count({node->input()->type().get(), name})) {",
                "if (false && assigned_->count({node->input()->type().get(), name})) {",
            ),
        ),
        test=PASSES + "test_fix_attributes.py",
    ),
    Fault(
        "source: only float16 is widened",
        (
            Edit(
                "csrc/passes/source/widen.cpp",
                "DTypes::only(c10::kHalf) | DTypes::only(c10::kBFloat16)",
                "DTypes::only(c10::kHalf)",
            ),
        ),
        test=PASSES + "test_widen.py",
    ),
    Fault(
        "lowering: casts are shared across no_grad",
        (Edit("csrc/passes/lowering/share_casts.cpp", "        seen_.clear();", "        ;"),),
        test=PASSES + "test_share_casts.py",
    ),
    Fault(
        "freeze: batch norms of the batch's own statistics are folded",
        (
            Edit(
                "csrc/passes/freeze/fold_weights.cpp",
                "constant_as<bool>(node->input(kTraining)) != false",
                "constant_as<bool>(node->input(kTraining)) == std::nullopt",
            ),
        ),
        test=PASSES + "test_fold_weights.py",
    ),
    Fault(
        "freeze: the check of devices looks at no small weight",
        (
            Edit(
                "csrc/passes/freeze/guard_devices.cpp",
                "constexpr size_t kSmall = 4096;",
                "constexpr size_t kSmall = 1;",
            ),
        ),
        test=PASSES + "test_guard_devices.py",
    ),
    Fault(
        "quirks/optimizer: what a branch gives is no other value",
        (
            Edit(
                "csrc/passes/quirks/optimizer/keep_dim.cpp",
                "node->kind() == prim::If || node->kind() == prim::Loop ||",
                "node->kind() == prim::Loop ||",
            ),
        ),
        test=PASSES + "test_keep_dim.py",
    ),
    Fault(
        "quirks/onednn: activations become new tensors where they are observed",
        (
            Edit(
                "csrc/passes/quirks/onednn/write_activations.cpp",
                "return std::none_of(uses.begin(), uses.end(),",
                "return !std::none_of(uses.begin(), uses.end(),",
            ),
        ),
        test=PASSES + "test_write_activations.py",
    ),
    Fault(
        "quirks/freezing: detach does not come back",
        (
            Edit(
                "csrc/passes/quirks/freezing/keep_detach.cpp",
                "return rename(graph, ops::detached, aten::detach);",
                "return rename(graph, ops::detached, ops::detached);",
            ),
        ),
        test=PASSES + "test_keep_detach.py",
    ),
    Fault(
        "quirks/autodiff: an operand is not widened before PyTorch's executor differentiates it",
        (
            Edit(
                "csrc/passes/quirks/autodiff/promote_operands.cpp",
                "if (!wide || !is_widened(",
                "if (!wide || is_widened(",
            ),
        ),
        test=PASSES + "test_promote_operands.py",
    ),
    Fault(
        "quirks/files: a list of tuples is read without its elements' type",
        (
            Edit(
                "csrc/passes/quirks/files/annotate_elements.cpp",
                "if (!is_wider_than_it_looks(type)) {",
                "if (is_wider_than_it_looks(type)) {",
            ),
        ),
        test=PASSES + "test_annotate_elements.py",
    ),
    Fault(
        "quirks/operators: what may be an operand is told where nothing is written",
        (
            Edit(
                "csrc/passes/quirks/operators/tell_aliases.cpp",
                "if (!may_write(graph->block())) {",
                "if (may_write(graph->block())) {",
            ),
        ),
        test=PASSES + "test_tell_aliases.py",
    ),
    Fault(
        "server: a view of what is in channels last leaves as a copy",
        (
            Edit(
                "csrc/passes/server/channels_last.cpp",
                "        (may_alias ? views_ : copies_)[i].push_back(use);",
                "        (may_alias ? copies_ : copies_)[i].push_back(use);",
            ),
        ),
        test=PASSES + "test_channels_last.py",
    ),
    Fault(
        "pipelines: a row is missing",
        (
            Edit(
                "csrc/pipelines/freeze.cpp",
                '      {"keep_addmm", run<keep_addmm>, Phase::stock, Phase::stock, Kind::quirk},\n',
            ),
        ),
        test=PASSES + "test_keep_addmm.py",
    ),
    Fault(
        "runtime: an autocast around the call does not count",
        (
            Edit(
                "csrc/runtime/program.cpp",
                "    state.devices[at::kCPU] = {true, std::nullopt};",
                "    state.devices[at::kCPU] = {false, std::nullopt};",
            ),
        ),
        test="tests/jit/behaviour/test_scopes.py",
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pairs.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of their names; else all")
    names = tuple(parser.parse_args().names)
    chosen = [each for each in PLANTED if not names or each.name.startswith(names)]
    return tried(chosen, strict=True)


if __name__ == "__main__":
    sys.exit(main())
