#include "passes/freeze/own_constants.h"

#include <ATen/ATen.h>
#include <unordered_map>
#include <unordered_set>

#include "core/graphs.h"
#include "core/sharing.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

// A copy with the same strides, also of a slice and of what is expanded: which kernel computes with
// it, and in which order, may rest on them.
at::Tensor copy_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_non_overlapping_and_dense() ||
      tensor.numel() == 0) {
    return tensor.clone();
  }
  int64_t span = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    span += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return tensor.as_strided({span}, {1}).clone().as_strided(tensor.sizes(), tensor.strides(), 0);
}

}  // namespace

void own_constants(const std::vector<std::shared_ptr<Graph>>& methods, const Module& module) {
  std::unordered_set<const void*> shared;
  std::unordered_set<const void*> seen;
  c10::IValue(module._ivalue()).visit([&](const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage()) {
      shared.insert(storage_of(value.toTensor()));
    }
    return value.isPtrType() && !seen.insert(value.internalToPointer()).second;
  });
  std::unordered_set<const void*> written;
  for (const auto& graph : methods) {
    for (const Node* node : written_constants(graph)) {
      if (const at::Tensor* tensor = tensor_in(node)) {
        written.insert(storage_of(*tensor));
      }
    }
  }
  std::unordered_map<const void*, c10::ScalarType> dtypes;
  for (const auto& graph : methods) {
    for (const Node* node : all_nodes(*graph)) {
      const at::Tensor* tensor = tensor_in(node);
      if (tensor && dtypes.emplace(storage_of(*tensor), tensor->scalar_type()).first->second !=
                        tensor->scalar_type()) {
        shared.insert(storage_of(*tensor));
      }
    }
  }
  std::unordered_map<const void*, at::Tensor> copies;
  for (const auto& graph : methods) {
    for (Node* node : all_nodes(*graph)) {
      const at::Tensor* held = tensor_in(node);
      if (!held || !shared.count(storage_of(*held))) {
        continue;
      }
      const at::Tensor tensor = held->detach();
      at::Tensor& copy = copies[held->unsafeGetTensorImpl()];
      if (!copy.defined()) {
        copy = written.count(storage_of(tensor)) ? tensor : copy_of(tensor);
      }
      node->t_(attr::value, copy);
    }
  }
}

}  // namespace jit_amp
