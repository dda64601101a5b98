// facts: what is known of each value's dtype, device and dimensions.
//
// A forward analysis. What holds for the graph's inputs is given (guards.h: what a frozen module's
// own check lets in); what holds for a node's results follows from its operands:
//
//   - by the operator's row in observed.inc, which was made by asking the operator: the dtype of an
//     operand, type promotion, or one dtype. A dtype that the call gives stands.
//   - A tensor that is written to keeps its dtype and device.
//   - Containers are known by their elements, unless something unseen may write to them.
//   - After a branch, and in a loop, a fact is kept only if it holds on each path.
//   - Of everything else nothing is known: unlisted operators, calls, attributes of objects.
//
// No operator is run, so facts hold for every input that has the given properties, whatever path it
// takes. Loops must be marked (loops.h).
//
// An analysis: the graph does not change.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "analysis/abstract_value.h"

namespace jit_amp {

// Facts are held by a value's graph and number, which are never used again, and not by its address:
// a value that is made while others are destroyed may get the address of one that had facts.
class Facts {
 public:
  const AbstractValue& known(const torch::jit::Value* value) const;
  bool has(const torch::jit::Value* value) const;
  // What is known of a tensor; nothing, if it may be None.
  Fact of(const torch::jit::Value* value) const;
  void set(const torch::jit::Value* value, AbstractValue known);

 private:
  using Key = std::pair<const torch::jit::Graph*, size_t>;
  static Key key(const torch::jit::Value* value);

  std::map<Key, AbstractValue> known_;
};

// `inputs`: what holds for the graph's inputs, in their order; of those left out nothing is known.
Facts find_facts(const std::shared_ptr<torch::jit::Graph>& graph,
                 const std::vector<AbstractValue>& inputs);

// Whether `more` has a dtype for a tensor of the graph of which `less` has another or none.
bool tells_more(torch::jit::Graph& graph, const Facts& more, const Facts& less);

// The dtype that a `jit_amp::widest` node gives, if it is the same for all operands that may come.
std::optional<c10::ScalarType> widest_of(const torch::jit::Node* widest, const Facts& facts);

// The number that a value is: a constant, or one that is kept from folding (`jit_amp::deferred`).
std::optional<int64_t> number_of(const torch::jit::Value* value);

// A copy of the graph whose values have what is known of them as their types, to be printed.
std::shared_ptr<torch::jit::Graph> annotated(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const Facts& facts);

}  // namespace jit_amp
