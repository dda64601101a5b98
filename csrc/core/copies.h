// copies: copies of what a run may write to: whoever runs a user's program to look at it leaves the
// user's tensors, lists and objects as they are.
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <unordered_map>
#include <vector>

namespace jit_amp {

// Copies values so that what is one thing stays one: a tensor in two places, the elements of a
// tensor and of its views. What requires grad does so in the copy, as a leaf. What cannot be
// copied, objects of C++ and Python, is shared.
class Copies {
 public:
  // Takes the tensor as it is, in all copies that are made from then on.
  void share(const at::Tensor& tensor);

  c10::IValue of(const c10::IValue& value);
  torch::jit::Stack of(const torch::jit::Stack& values);
  // Puts copies in the place of the graph's written constants.
  void put_into(const std::shared_ptr<torch::jit::Graph>& graph);

  // Whether nothing had to be shared that is no tensor.
  bool are_complete() const { return complete_; }

 private:
  void see(const c10::IValue& value);
  at::Tensor copied(const at::Tensor& tensor);

  c10::IValue::HashIdentityIValueMap known_;
  std::unordered_map<const void*, at::Tensor> storages_;
  bool complete_ = true;
};

// The module, of the same types and with the same tensors, but with modules, lists, dictionaries,
// tuples and objects of its own. PyTorch's freezing detaches the tensors in these in place
// (torch/csrc/jit/passes/freeze_module.cpp, overrideGradient).
torch::jit::Module with_own_containers(const torch::jit::Module& module);

}  // namespace jit_amp
