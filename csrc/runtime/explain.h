// explain: what each operator of a program does under autocast, seen while it runs.
//
// Runs the program once as eager would: the flat graph, which enters its scopes as it runs
// (passes/lowering/enter_scopes.h), with an observer around each operator (session.h). For what
// TorchScript has compiled; Python is looked at by watch.h.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/object.h>
#include <torch/csrc/jit/ir/ir.h>

#include <exception>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/session.h"

namespace jit_amp {

struct Explained {
  std::vector<OperatorRecord> operators;  // in program order
  std::vector<std::string> warnings;
  std::set<SourceText> sources;  // that the operators stand in
  std::exception_ptr error;      // what the program raised, if it did
  std::optional<Failed> failed;  // the operator that raised it, if one did
};

// Runs a function, on `module` where it is a method, once for each of `runs`, its arguments without
// self: the first is looked at, the second warms up, of the others the medians of the time count.
// Where a program cannot run so, nothing runs, and a warning says why. What it writes to the module
// stays in a copy. Where the program raises, it has run no further. Throws AutocastError.
Explained explain(torch::jit::GraphFunction& function, const torch::jit::ObjectPtr& module,
                  const std::vector<torch::jit::Stack>& runs, ExplainOptions at);

}  // namespace jit_amp
