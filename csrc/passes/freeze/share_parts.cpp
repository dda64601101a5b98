#include "passes/freeze/share_parts.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <map>
#include <optional>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_whole(const at::Tensor& tensor) {
  return tensor.is_contiguous() && tensor.storage_offset() == 0 &&
         tensor.nbytes() == tensor.storage().nbytes();
}

bool is_part(const at::Tensor& part, const at::Tensor& whole) {
  return part.storage().unsafeGetStorageImpl() == whole.storage().unsafeGetStorageImpl() &&
         part.dtype() == whole.dtype() && part.is_conj() == whole.is_conj() &&
         part.is_neg() == whole.is_neg();
}

}  // namespace

bool share_parts(const std::shared_ptr<Graph>& graph) {
  std::map<const void*, Node*> wholes;  // by storage
  std::vector<Node*> others;
  for (Node* node : all_nodes(*graph)) {
    const at::Tensor* tensor = tensor_in(node);
    if (!tensor || tensor->layout() != at::kStrided || node->owningGraph() != graph.get()) {
      continue;
    }
    const bool is_first =
        is_whole(*tensor) && wholes.emplace(tensor->storage().unsafeGetStorageImpl(), node).second;
    if (!is_first) {
      others.push_back(node);
    }
  }
  std::optional<AliasDb> aliases;
  bool changed = false;
  for (Node* node : others) {
    const at::Tensor part = *tensor_in(node);
    const auto found = wholes.find(part.storage().unsafeGetStorageImpl());
    if (found == wholes.end() || !is_part(part, *tensor_in(found->second))) {
      continue;
    }
    if (!aliases) {
      aliases.emplace(graph);
    }
    Node* whole = found->second;
    if (aliases->hasWriters(node->output()) || aliases->hasWriters(whole->output())) {
      continue;
    }
    if (Node* first = *graph->nodes().begin(); first != whole) {
      whole->moveBefore(first);
    }
    const WithInsertPoint here(node);
    Value* view = graph->insert(
        aten::as_strided, {whole->output(), part.sizes(), part.strides(), part.storage_offset()});
    node->output()->replaceAllUsesWith(view);
    node->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
