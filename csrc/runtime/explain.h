// explain: what each operator of a program does under autocast, seen while it runs.
//
// Runs the program once as eager would: the flat graph, which enters its scopes as it runs
// (passes/lowering/enter_scopes.h), with an observer around each operator. What an operator casts
// is seen by what its autocast kernel does, as in record.h: autocast was on when it began and is
// not inside it. So the dtypes and the casts that are told are not predictions, whatever the
// operator is.
//
// With numerics, each operator runs once more in float64, on the operands that it had (the error
// that it introduces) and on those that a program all in float64 would have had (the error that has
// come about by then). Operands are recognised by their identity: what is written through a view is
// taken as exact again.
//
// With gradients, autograd then runs back through the recorded run (gradients.h).
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/object.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/scopes.h"
#include "runtime/gradients.h"

namespace jit_amp {

// A place in a source file; a line of 0 is no file's.
struct Place {
  std::string file;
  size_t line = 0;
  size_t column = 0;
  std::string function;  // the call that the place belongs to; empty for the outermost
};

// Casts of one kind that an operator's autocast kernel made.
struct Cast {
  c10::ScalarType from;
  c10::ScalarType to;
  int64_t count = 0;
  int64_t bytes = 0;  // read and written
};

// What an operator's results are like beside the same in float64.
struct Numerics {
  double introduced = 0;  // largest difference, relative to the largest entry
  double total = 0;
  double largest = 0;  // entry
  int64_t elements = 0;
  int64_t nans = 0;
  int64_t infinities = 0;
  int64_t overflows = 0;   // infinite here, and finite in float64
  int64_t underflows = 0;  // zero here, and not in float64
  int64_t subnormals = 0;
};

// An operator of the program.
struct Operated {
  std::string name;          // with its overload
  std::vector<Place> stack;  // from the outermost call to the operator's own line
  std::string module;        // the path of the module whose code it is, as far as it is known
  bool is_call = false;      // of Python, or of another function
  bool is_dynamic = false;   // a scope's device is known at run time: the state is what is seen
  std::map<std::string, DeviceState> state;   // by device; those that scopes speak of
  std::map<std::string, Place> scope;         // by device: the `with` that made the state
  std::map<std::string, std::string> policy;  // by device
  // What was seen, in the order of the operands and results that are tensors.
  int64_t calls = 0;
  double seconds = 0;
  std::vector<std::optional<c10::ScalarType>> operands;  // none: several dtypes
  std::vector<std::optional<c10::ScalarType>> results;
  std::vector<std::string> devices;  // of operands and results
  std::vector<Cast> casts;
  std::vector<std::vector<int64_t>> taken;   // shapes of the operands, in the first call
  std::vector<std::vector<int64_t>> shapes;  // of the results
  std::optional<Numerics> numerics;
  std::optional<Gradient> gradient;  // of all results together
};

// What is looked at besides dtypes, casts and time.
struct Looks {
  bool numerics = false;
  bool gradients = false;
};

struct Explained {
  std::vector<Operated> operators;  // in program order
  std::vector<std::string> warnings;
};

// Runs a function, on `module` where it is a method, once for each of `runs`, its arguments without
// self: the first is looked at, of the others the medians of the time count. What it writes to the
// module stays in a copy. Throws AutocastError; what the program raises.
Explained explain(torch::jit::GraphFunction& function, const torch::jit::ObjectPtr& module,
                  const std::vector<torch::jit::Stack>& runs, Looks at);

}  // namespace jit_amp
