#include "passes/quirks/write_strides.h"

#include <torch/csrc/jit/ir/constants.h>

#include <string>
#include <unordered_set>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// All take the kernel's size and the stride after the tensor.
constexpr size_t kKernel = 1;
constexpr size_t kStride = 2;

bool is_pooling(const Node* node) {
  static const auto& names = *new std::unordered_set<std::string>{"avg_pool1d",
                                                                  "avg_pool2d",
                                                                  "avg_pool3d",
                                                                  "max_pool1d",
                                                                  "max_pool2d",
                                                                  "max_pool3d",
                                                                  "max_pool1d_with_indices",
                                                                  "max_pool2d_with_indices",
                                                                  "max_pool3d_with_indices"};
  return node->kind().is_aten() && names.count(node->kind().toUnqualString());
}

// A list that is made for one use cannot have been written to in between.
bool is_empty_list(const Value* value) {
  const auto constant = toIValue(value);
  return constant ? constant->isIntList() && constant->toIntVector().empty()
                  : value->node()->kind() == prim::ListConstruct &&
                        value->node()->inputs().empty() && value->uses().size() == 1;
}

}  // namespace

bool write_strides(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (is_pooling(node) && is_empty_list(node->input(kStride))) {
      node->replaceInput(kStride, node->input(kKernel));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
