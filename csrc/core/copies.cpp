#include "core/copies.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "core/graphs.h"
#include "core/sharing.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// A tensor that is no more than a storage, an offset, sizes and strides.
bool is_plain_tensor(const at::Tensor& t) {
  return t.layout() == at::kStrided && t.has_storage() && !t.is_nested() && !t.is_quantized() &&
         !t.is_conj() && !t.is_neg() && !at::isTensorSubclassLike(t);
}

// What IValue::deepcopy knows how to copy.
bool can_copy(const c10::IValue& value) {
  if (value.isObject()) {
    const auto& slots = value.toObjectRef().slots();
    return std::none_of(slots.begin(), slots.end(),
                        [](const c10::IValue& slot) { return slot.isCapsule(); });
  }
  return !value.isPtrType() || value.isString() || value.isTuple() || value.isList() ||
         value.isGenericDict() || value.isEnum();
}

}  // namespace

void Copies::share(const at::Tensor& tensor) { known_.emplace(tensor, tensor); }

c10::IValue Copies::of(const c10::IValue& value) {
  see(value);
  return value.deepcopy(known_);
}

Stack Copies::of(const Stack& values) {
  Stack copies;
  for (const c10::IValue& value : values) {
    copies.push_back(of(value));
  }
  return copies;
}

void Copies::put_into(const std::shared_ptr<Graph>& graph) {
  for (Node* node : written_constants(graph)) {
    if (const auto value = toIValue(node->output())) {
      const auto copy = of(*value);
      tensor_in(node) ? node->t_(attr::value, copy.toTensor()) : node->ival_(attr::value, copy);
    }
  }
}

// Says of everything inside that IValue::deepcopy does not copy as it should what it becomes.
void Copies::see(const c10::IValue& value) {
  value.visit([&](const c10::IValue& each) {
    if (known_.count(each)) {
      return true;
    }
    if (each.isTensor()) {
      known_.emplace(each, copied(each.toTensor()));
      return true;
    }
    if (each.isComplexDouble()) {  // IValue::deepcopy does not know it, and nobody writes to one
      known_.emplace(each, each);
      return true;
    }
    if (each.isGenerator()) {
      known_.emplace(each, each.toGenerator().clone());
      return true;
    }
    if (!can_copy(each)) {
      complete_ = false;
      known_.emplace(each, each);
      return true;
    }
    return false;
  });
}

at::Tensor Copies::copied(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  const at::NoGradGuard no_grad;
  at::Tensor copy;
  if (is_plain_tensor(tensor)) {
    at::Tensor& whole = storages_[tensor.storage().unsafeGetStorageImpl()];
    const auto empty = [&] { return at::empty({0}, tensor.options()); };
    if (!whole.defined()) {
      const auto count =
          static_cast<int64_t>(tensor.storage().nbytes() / tensor.dtype().itemsize());
      whole = empty().set_(tensor.storage(), 0, {count}, {1}).clone();
    }
    copy = empty().set_(whole.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
  } else {
    copy = tensor.detach().clone();
  }
  return tensor.requires_grad() ? copy.requires_grad_() : copy;
}

Module with_own_containers(const Module& module) {
  Copies copies;
  c10::IValue(module._ivalue()).visit([&](const c10::IValue& each) {
    if (each.isTensor()) {
      copies.share(each.toTensor());
    }
    return each.isTensor() || !can_copy(each);
  });
  return Module(copies.of(module._ivalue()).toObject());
}

}  // namespace jit_amp
