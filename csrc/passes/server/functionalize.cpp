#include "passes/server/functionalize.h"

#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/peephole_list_idioms.h>
#include <torch/csrc/jit/passes/remove_mutation.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>

#include <algorithm>
#include <string>
#include <unordered_set>

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_one_of(const Node* node, const std::unordered_set<std::string>& names) {
  return node->kind().is_aten() && names.count(node->kind().toUnqualString());
}

// Those that oneDNN's fusion or fuse_pointwise take, and whose functional form gives the strides of
// what it is given.
bool is_activation_in_place(const Node* node) {
  static const auto& names = *new std::unordered_set<std::string>{
      "abs_",      "elu_",        "exp_",   "hardsigmoid_", "hardswish_",
      "hardtanh_", "leaky_relu_", "relu6_", "relu_",        "silu_",
      "sigmoid_",  "sqrt_",       "tanh_",  "round_",       "square_"};
  return is_one_of(node, names);
}

// Whether the result has memory of its own, without gaps. Schemas say so of more operators than do:
// `type_as`, `einsum` and `dropout` may return what they are given.
bool is_new(const Value* value) {
  static const auto& names = *new std::unordered_set<std::string>{"conv1d",
                                                                  "conv2d",
                                                                  "conv3d",
                                                                  "conv_transpose1d",
                                                                  "conv_transpose2d",
                                                                  "conv_transpose3d",
                                                                  "_convolution",
                                                                  "linear",
                                                                  "addmm",
                                                                  "mm",
                                                                  "batch_norm",
                                                                  "neg",
                                                                  "abs",
                                                                  "add",
                                                                  "sub",
                                                                  "mul",
                                                                  "div",
                                                                  "cat",
                                                                  "max_pool2d",
                                                                  "avg_pool2d",
                                                                  "adaptive_avg_pool2d"};
  return is_one_of(value->node(), names);
}

// What is done in place to the scores of an attention, and what can be done to them before.
bool changes_scores(const Node* node) {
  static const auto& names = *new std::unordered_set<std::string>{
      "to",   "add",  "sub",  "mul",  "div",         "masked_fill",
      "add_", "sub_", "mul_", "div_", "masked_fill_"};
  return is_one_of(node, names);
}

// Whether the node writes to the result of a product of matrices, and the same without a write has
// that dtype.
bool is_on_scores(const Node* node, const Facts& facts) {
  if (!changes_scores(node) || std::string(node->kind().toUnqualString()).back() != '_') {
    return false;
  }
  const Value* scores = node->input(0);
  Fact fact = facts.of(scores);
  while (changes_scores(scores->node())) {
    scores = scores->node()->input(0);
    fact = fact.dtype() ? fact : facts.of(scores);  // what was made just now has no facts
  }
  const Value* other = node->input(1);
  const Fact with = facts.of(other);
  const bool keeps_dtype = node->kind() == Symbol::aten("masked_fill_") ||
                           !other->type()->cast<c10::TensorType>() ||
                           (with.dtype() && fact.dtype() &&
                            c10::promoteTypes(*with.dtype(), *fact.dtype()) == *fact.dtype());
  return is_one_of(scores->node(), {"matmul", "bmm", "baddbmm"}) && keeps_dtype &&
         fact.device == c10::DeviceType::CPU && fact.dtype() &&
         DTypes::floating().has(*fact.dtype());
}

// Whether the executor observes the node's operands: what the fusions of PyTorch take
// (torch/csrc/jit/runtime/profiling_record.cpp, codegen/onednn/register_interface.cpp).
bool is_observed(Node* node) {
  static const auto& names = *new std::unordered_set<std::string>{
      "_convolution", "abs",        "add",  "addmm",    "avg_pool2d", "batch_norm", "conv2d",
      "dim",          "elu",        "gelu", "hardtanh", "expand",     "layer_norm", "linear",
      "matmul",       "max_pool2d", "mm",   "mul",      "relu",       "relu6",      "sigmoid",
      "size",         "softmax",    "sqrt", "t",        "square",     "tanh",       "type_as"};
  return is_one_of(node, names) || tensorexpr::isSupported(node);
}

}  // namespace

bool functionalize(std::shared_ptr<Graph>& graph, const Facts& facts, bool for_server) {
  bool changed = RemoveTensorMutation(graph, [&](Node* node) {
    if (for_server && is_on_scores(node, facts)) {
      return true;
    }
    if (!is_activation_in_place(node) || !is_new(node->input(0))) {
      return false;
    }
    const Fact fact = facts.of(node->input(0));
    const auto& uses = node->output()->uses();
    return fact.device == c10::DeviceType::CPU && fact.dtypes.within(DTypes::floating()) &&
           (for_server || std::none_of(uses.begin(), uses.end(),
                                       [](const Use& use) { return is_observed(use.user); }));
  });
  if (for_server && RemoveListMutation(graph)) {
    changed = true;
    PeepholeOptimizeListIdioms(graph);  // lengths
    ConstantPropagationImmutableTypes(graph);
    PeepholeOptimizeListIdioms(graph);  // elements, by positions that are known now
    EliminateDeadCode(graph);
  }
  return changed;
}

}  // namespace jit_amp
