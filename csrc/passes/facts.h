// facts: what is known of each tensor's dtype and device.
//
// A small lattice per value: known or unknown, each of dtype and device on its own. What they are
// comes from running the graph on example inputs under PyTorch's profiling instrumentation, so that
// no operator's rule is written here again. What has been seen holds for a value if it does
// whichever way the graph goes: a forward analysis, to a fixed point, with these rules.
//
//   - The facts of the graph's inputs hold, where all examples agree (inputs.h): whoever acts on
//     facts makes sure that later inputs are like the examples (see seal).
//   - A node's results hold if its operands do; but not where its dtype or device is computed, nor
//     what comes from an attribute, a task, or a list or dictionary that is written to, nor an
//     element that is chosen at run time among others.
//   - What comes together in a branch or a loop holds if its facts are known and the same.
//
// An analysis: the graph does not change.
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "passes/inputs.h"

namespace jit_amp {

// Facts are held by a value's graph and number, which are never used again, and not by its address:
// a value that is made while others are destroyed may get the address of one that had facts.
class Facts {
 public:
  // What is known of `value`; an unknown fact if nothing is.
  Fact of(const torch::jit::Value* value) const;
  // Adds what one more observation says: what differs becomes unknown.
  void join(const torch::jit::Value* value, const Fact& seen);
  void forget(const torch::jit::Value* value) { known_.erase(key(value)); }

  // What the examples tell of the graph's inputs, in their order; none without examples.
  std::vector<Input> inputs;

 private:
  using Key = std::pair<const torch::jit::Graph*, size_t>;
  static Key key(const torch::jit::Value* value);

  std::map<Key, Fact> known_;
};

// Runs `graph` once per stack of inputs (copies of them: the graph may write to its inputs).
// Returns what holds.
Facts observe(const std::shared_ptr<torch::jit::Graph>& graph,
              const std::vector<torch::jit::Stack>& examples);

// A copy of the graph whose values have what is known of them as their types, to be printed.
std::shared_ptr<torch::jit::Graph> annotated(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const Facts& facts);

}  // namespace jit_amp
