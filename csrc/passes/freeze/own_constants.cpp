#include "passes/freeze/own_constants.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <functional>
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

using Own = std::function<at::Tensor(const at::Tensor&)>;

// A list, tuple or dictionary of the same type, with what `own` makes of each tensor.
c10::IValue with_own(const c10::IValue& value, const Own& own) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.has_storage() ? c10::IValue(own(tensor)) : value;
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const c10::IValue& each : value.toListRef()) {
      list.push_back(with_own(each, own));
    }
    return list;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& each : value.toTupleRef().elements()) {
      elements.push_back(with_own(each, own));
    }
    const auto type = value.type()->expect<c10::TupleType>();
    return type->name() ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
                        : c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isGenericDict()) {
    const auto given = value.toGenericDict();
    c10::impl::GenericDict dict(given.keyType(), given.valueType());
    for (const auto& item : given) {
      dict.insert(item.key(), with_own(item.value(), own));
    }
    return dict;
  }
  return value;
}

void replace_tensors(Node* node, const Own& own) {
  if (const at::Tensor* tensor = tensor_in(node)) {
    node->t_(attr::value, own(*tensor));
  } else {
    node->ival_(attr::value, with_own(*toIValue(node->output()), own));
  }
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
  std::unordered_set<const Node*> written_nodes;
  std::unordered_map<const void*, c10::ScalarType> dtypes;
  std::vector<Node*> constants;
  for (const auto& graph : methods) {
    for (const Node* node : written_constants(graph)) {
      written_nodes.insert(node);
      for (const at::Tensor& tensor : tensors_in(node)) {
        written.insert(storage_of(tensor));
      }
    }
    for (Node* node : all_nodes(*graph)) {
      const auto tensors = tensors_in(node);
      for (const at::Tensor& tensor : tensors) {
        if (dtypes.emplace(storage_of(tensor), tensor.scalar_type()).first->second !=
            tensor.scalar_type()) {
          shared.insert(storage_of(tensor));
        }
      }
      if (!tensors.empty()) {
        constants.push_back(node);
      }
    }
  }
  std::unordered_map<const void*, at::Tensor> copies;
  const auto own = [&](const at::Tensor& held) {
    if (!shared.count(storage_of(held))) {
      return held;
    }
    at::Tensor& copy = copies[held.unsafeGetTensorImpl()];
    if (!copy.defined()) {
      const at::Tensor tensor = held.detach();
      copy = written.count(storage_of(tensor)) ? tensor : copy_of(tensor);
    }
    return copy;
  };
  for (Node* node : constants) {
    const auto tensors = tensors_in(node);
    const bool is_shared = std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return shared.count(storage_of(tensor));
    });
    if (is_shared && (tensor_in(node) || !written_nodes.count(node))) {
      replace_tensors(node, own);
    }
  }
}

}  // namespace jit_amp
