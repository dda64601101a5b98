#include "passes/quirks/onednn/write_strides.h"

#include <torch/csrc/jit/ir/constants.h>

#include <optional>
#include <utility>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Where a pooling takes its stride and the size of its kernel: its schema says that the stride may
// be left out.
std::optional<std::pair<size_t, size_t>> stride_and_kernel(const Node* node) {
  const FunctionSchema* schema = node->kind().is_aten() ? node->maybeSchema() : nullptr;
  const auto stride = schema ? schema->argumentIndexWithName("stride") : std::nullopt;
  const auto kernel = schema ? schema->argumentIndexWithName("kernel_size") : std::nullopt;
  if (!stride || !kernel) {
    return std::nullopt;
  }
  const auto& left_out = schema->arguments()[*stride].default_value();
  return left_out && left_out->isIntList() && left_out->toIntVector().empty()
             ? std::optional(std::pair<size_t, size_t>(*stride, *kernel))
             : std::nullopt;
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
    const auto at = stride_and_kernel(node);
    if (at && is_empty_list(node->input(at->first))) {
      node->replaceInput(at->first, node->input(at->second));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
