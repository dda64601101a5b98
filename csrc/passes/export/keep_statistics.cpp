#include "passes/export/keep_statistics.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <string>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The name of the buffer that is this very tensor, which is made if there is none.
std::string buffer_for(const at::Tensor& tensor, Module& self) {
  for (const auto& buffer : self.named_buffers(/*recurse=*/false)) {
    if (buffer.value.is_same(tensor)) {
      return buffer.name;
    }
  }
  std::string name;
  for (size_t number = 0; name.empty() || self.hasattr(name) || self.find_method(name); ++number) {
    name = "_statistics" + std::to_string(number);
  }
  self.register_buffer(name, tensor);
  return name;
}

}  // namespace

bool keep_statistics(Graph& graph, Module self) {
  constexpr size_t kMean = 3, kVariance = 4;
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (!updates_statistics(node) || node->owningGraph() != &graph) {
      continue;
    }
    for (const size_t at : {kMean, kVariance}) {
      Value* const constant = node->input(at);
      const at::Tensor* tensor = tensor_in(constant->node());
      if (!tensor) {
        continue;
      }
      const WithInsertPoint start(*graph.nodes().begin());
      constant->replaceAllUsesWith(
          graph.insertGetAttr(graph.inputs()[0], buffer_for(*tensor, self)));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
