// facts: what is known of each tensor's dtype and device.
//
// A small lattice per value: known or unknown, each of dtype and device on its own. The facts come
// from running the graph on example inputs under PyTorch's profiling instrumentation; where several
// runs differ, or a value was not reached, it is unknown.
//
// An analysis: the graph does not change. Facts of graph inputs are the examples', so whoever acts
// on facts must make sure that later inputs are like them (see seal).
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace jit_amp {

struct Fact {
  std::optional<c10::ScalarType> dtype;
  std::optional<c10::DeviceType> device;
};

// Facts are held by a value's graph and number, which are never used again, and not by its address:
// a value that is made while others are destroyed may get the address of one that had facts.
class Facts {
 public:
  // What is known of `value`; an unknown fact if nothing is.
  Fact of(const torch::jit::Value* value) const;
  // Adds what one more observation says: what differs becomes unknown.
  void join(const torch::jit::Value* value, const Fact& seen);

 private:
  using Key = std::pair<const torch::jit::Graph*, size_t>;
  static Key key(const torch::jit::Value* value);

  std::map<Key, Fact> known_;
};

// Runs `graph` once per stack of inputs (copies of them: the graph may write to its inputs).
Facts observe(const std::shared_ptr<torch::jit::Graph>& graph,
              const std::vector<torch::jit::Stack>& examples);

// A copy of the graph whose values have what is known of them as their types, to be printed.
std::shared_ptr<torch::jit::Graph> annotated(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const Facts& facts);

}  // namespace jit_amp
