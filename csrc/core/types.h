// types: what a TorchScript type says of the values that have it.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

namespace jit_amp {

// Tensor itself, and not Tensor?.
bool is_tensor(const c10::TypePtr& type);

// Tensor[].
bool is_tensor_list(const c10::TypePtr& type);

// Tensor, Tensor?, Tensor[] or Tensor?[]: what operators take, and give.
bool is_of_tensors(const c10::TypePtr& type);

// Whether an operator writes to none of its operands, and gives no view of one.
bool gives_new_tensors(const c10::FunctionSchema& schema);

// Whether the type says that tensors are in its values, however deep.
bool mentions_tensors(const c10::TypePtr& type);

// The same, and of objects, of which the type does not say what they hold.
bool may_hold_tensors(const c10::TypePtr& type);

// Whether a value of the type has no tensor in it, and cannot be written to.
bool is_plain(const c10::TypePtr& type);

// Whether `type` is one of the classes that TorchScript makes of torch.autocast,
// torch.amp.autocast, torch.cuda.amp.autocast and torch.cpu.amp.autocast.
bool is_autocast_class(const c10::TypePtr& type);

}  // namespace jit_amp
