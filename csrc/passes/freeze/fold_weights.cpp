#include "passes/freeze/fold_weights.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/frozen_conv_folding.h>
#include <torch/csrc/jit/passes/frozen_linear_folding.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "analysis/traits.h"
#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// A cast of a constant weight, taken off its user for a while.
struct TakenCast {
  Node* user;
  size_t operand;
  std::vector<Value*> rest;  // of the cast's operands
};

void take_weight_casts(Block* block, std::vector<TakenCast>& taken) {
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) {
      take_weight_casts(inner, taken);
    }
    for (size_t i = 1; i < 3 && i < node->inputs().size(); ++i) {
      if (i == 2 && node->input(i)->mustBeNone() && !taken.empty() && taken.back().user == node) {
        // A bias that folding makes is cast as the weight is.
        taken.push_back({node, i, taken.back().rest});
      }
      Node* cast = node->input(i)->node();
      if (cast->kind() == ops::cast && cast->input(0)->node()->kind() == prim::Constant &&
          node->kind() != ops::cast) {
        taken.push_back({node, i, cast->inputs().slice(1).vec()});
        node->replaceInput(i, cast->input(0));
      }
    }
  }
}

// A tensor that is added to a reduced result, or multiplied with it, decides about the dtype: it is
// not to be folded away. Numbers are.
std::vector<Node*> hide_tensors(Graph& graph) {
  std::vector<Node*> hidden;
  for (Node* node : all_nodes(graph)) {
    if (traits_of(node).group != Group::arithmetic) {
      continue;
    }
    for (size_t i = 0; i < 2; ++i) {
      Value* operand = node->input(i);
      if (operand->node()->kind() == prim::Constant && is_tensor(operand->type())) {
        hidden.push_back(
            node->owningGraph()->create(ops::carried, {operand}, 1)->insertBefore(node));
        node->replaceInput(i, hidden.back()->output());
      }
    }
  }
  return hidden;
}

// A batch norm of the batch's own statistics is none of the weight's: PyTorch folds it all the
// same.
void hide_training(Graph& graph, std::vector<Node*>& hidden) {
  constexpr size_t kTraining = 5;  // of aten::batch_norm
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == aten::batch_norm && constant_as<bool>(node->input(kTraining)) != false) {
      hidden.push_back(
          node->owningGraph()->create(ops::carried, {node->input(0)}, 1)->insertBefore(node));
      node->replaceInput(0, hidden.back()->output());
    }
  }
}

void fold(std::shared_ptr<Graph>& graph) {
  FoldFrozenConvBatchnorm(graph);
  FoldFrozenLinearBatchnorm(graph);
  FoldFrozenConvAddOrSub(graph);
  FoldFrozenConvMulOrDiv(graph);
}

bool casts_to(const TakenCast& cast, c10::ScalarType dtype) {
  return std::any_of(cast.rest.begin(), cast.rest.end(), [&](const Value* target) {
    return target->node()->kind() == ops::deferred &&
           target->node()->i(attr::value) == static_cast<int64_t>(dtype);
  });
}

// Whether float16 rounds the weight as it rounds any other: it has a smaller range than float32,
// and what a small or a large factor has been folded into may be infinite, or have lost its digits.
// Each output is of the weights of one channel, which is the first dimension or the second.
bool fits_float16(const at::Tensor& weight) {
  const at::NoGradGuard no_grad;
  const at::Tensor whole = weight.detach().to(at::kCPU, at::kDouble);  // MPS has none
  const at::Tensor lost = whole.to(at::kHalf).to(at::kDouble) - whole;
  if (!lost.isfinite().all().item<bool>()) {
    return false;
  }
  constexpr double kRounding = 1. / 2048;
  for (int64_t dim = 0; weight.dim() > 1 && dim < 2; ++dim) {
    const auto norm = [&](const at::Tensor& of) {
      return of.transpose(0, dim).flatten(1).norm(2, {1});
    };
    if (!norm(lost).le(norm(whole) * kRounding).all().item<bool>()) {
      return false;
    }
  }
  return true;
}

// Layers whose weights float16 cannot hold once something is folded into them, which it could
// before. Folding a copy tells.
std::vector<Node*> unfit_layers(Graph& graph, const std::vector<TakenCast>& taken) {
  std::vector<const TakenCast*> narrow;
  for (const TakenCast& cast : taken) {
    if (casts_to(cast, at::kHalf)) {
      narrow.push_back(&cast);
    }
  }
  if (narrow.empty()) {
    return {};
  }
  std::shared_ptr<Graph> folded = graph.copy();
  std::unordered_map<const Node*, Node*> copies;
  const std::vector<Node*> originals = all_nodes(graph), copied = all_nodes(*folded);
  for (size_t i = 0; i < originals.size(); ++i) {
    copies[originals[i]] = copied[i];
  }
  fold(folded);
  std::vector<Node*> unfit;
  for (const TakenCast* cast : narrow) {
    const at::Tensor* before = tensor_in(cast->user->input(cast->operand)->node());
    const at::Tensor* after = tensor_in(copies.at(cast->user)->input(cast->operand)->node());
    const bool is_other =
        after && (!before || before->unsafeGetTensorImpl() != after->unsafeGetTensorImpl());
    if (is_other && !fits_float16(*after) && (!before || fits_float16(*before))) {
      unfit.push_back(cast->user);
    }
  }
  return unfit;
}

}  // namespace

bool fold_weights(std::shared_ptr<Graph>& graph) {
  std::vector<TakenCast> taken;
  take_weight_casts(graph->block(), taken);
  auto hidden = taken.empty() ? std::vector<Node*>() : hide_tensors(*graph);
  hide_training(*graph, hidden);
  for (Node* layer : unfit_layers(*graph, taken)) {
    Node* result = graph->create(ops::carried, {layer->output()}, 1)->insertAfter(layer);
    layer->output()->replaceAllUsesAfterNodeWith(result, result->output());
    hidden.push_back(result);
  }
  fold(graph);
  for (Node* node : hidden) {
    node->output()->replaceAllUsesWith(node->input());
    node->destroy();
  }
  for (const TakenCast& cast : taken) {
    if (cast.user->input(cast.operand)->mustBeNone()) {
      continue;
    }
    const WithInsertPoint here(cast.user);
    std::vector<Value*> operands{cast.user->input(cast.operand)};
    operands.insert(operands.end(), cast.rest.begin(), cast.rest.end());
    Node* node = graph->insertNode(graph->create(ops::cast, operands, 1));
    node->output()->setType(c10::TensorType::get());
    cast.user->replaceInput(cast.operand, node->output());
  }
  return true;
}

}  // namespace jit_amp
