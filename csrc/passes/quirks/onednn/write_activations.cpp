#include "passes/quirks/onednn/write_activations.h"

#include <torch/csrc/jit/passes/remove_mutation.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>

#include <algorithm>

#include "analysis/traits.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether the executor observes the node's operands: what the fusions of PyTorch take
// (torch/csrc/jit/runtime/profiling_record.cpp, codegen/onednn/register_interface.cpp).
bool is_profiled(Node* node) {
  return traits_of(node).is_profiled || tensorexpr::isSupported(node);
}

}  // namespace

bool may_be_functional(const Node* node, const Facts& facts) {
  if (!is_write(node) || !*traits_in_place_or_not(node).fused || !is_fresh(node->input(0))) {
    return false;
  }
  const Fact fact = facts.of(node->input(0));
  return fact.device == c10::DeviceType::CPU && fact.dtypes.within(DTypes::floating());
}

bool write_activations(const std::shared_ptr<Graph>& graph, const Facts& facts) {
  return RemoveTensorMutation(graph, [&](Node* node) {
    if (!may_be_functional(node, facts)) {
      return false;
    }
    const auto& uses = node->output()->uses();
    return std::none_of(uses.begin(), uses.end(),
                        [](const Use& use) { return is_profiled(use.user); });
  });
}

}  // namespace jit_amp
