#include "passes/freeze/answer_questions.h"

#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/peephole.h>

#include <algorithm>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// `x is None`, `x is not None`, `query is key`.
std::optional<c10::IValue> asks_the_same(const Node* node, const Facts& facts) {
  if (node->kind() != aten::__is__ && node->kind() != aten::__isnot__) {
    return std::nullopt;
  }
  if (node->input(0) == node->input(1)) {
    return node->kind() == aten::__is__;
  }
  for (size_t i = 0; i < 2; ++i) {
    const AbstractValue& other = facts.known(node->input(1 - i));
    if (!node->input(i)->mustBeNone() || other.kind == AbstractValue::unknown || other.maybe_none) {
      continue;
    }
    return (other.kind == AbstractValue::none) == (node->kind() == aten::__is__);
  }
  return std::nullopt;
}

std::optional<c10::IValue> known_result(const Node* node, const Facts& facts) {
  static const auto kType = c10::Symbol::prim("type");
  if (const auto known = asks_the_same(node, facts)) {
    return known;
  }
  if (node->inputs().size() != 1) {
    return std::nullopt;
  }
  const Node* device = node->input()->node();
  const bool is_name = node->kind() == kType && device->kind() == prim::device;
  return answer(node, facts.of(is_name ? device->input() : node->input()));
}

// Results of an `if` that are the same value on either way are one result: attention asks whether
// what it has transposed, or not, is still one tensor. Returns whether there were any.
bool share_results(Node* branch) {
  bool shared = false;
  for (size_t i = 1; i < branch->outputs().size(); ++i) {
    for (size_t j = 0; j < i && branch->output(i)->hasUses(); ++j) {
      const bool same =
          std::all_of(branch->blocks().begin(), branch->blocks().end(),
                      [&](const Block* way) { return way->outputs()[i] == way->outputs()[j]; });
      if (same) {
        branch->output(i)->replaceAllUsesWith(branch->output(j));
        shared = true;
      }
    }
  }
  return shared;
}

}  // namespace

std::optional<c10::IValue> answer(const Node* node, const Fact& fact) {
  static const auto kType = c10::Symbol::prim("type");
  if (node->kind() == prim::dtype && fact.dtype()) {
    return static_cast<int64_t>(*fact.dtype());
  }
  if (node->kind() == aten::is_floating_point) {
    if (fact.dtypes.within(DTypes::floating())) {
      return true;
    }
    if ((fact.dtypes & DTypes::floating()).is_empty()) {
      return false;
    }
  }
  if (!fact.device) {
    return std::nullopt;
  }
  static const std::pair<c10::Symbol, c10::DeviceType> kIsOn[]{
      {c10::Symbol::prim("is_cpu"), c10::DeviceType::CPU},
      {prim::is_cuda, c10::DeviceType::CUDA},
      {c10::Symbol::prim("is_xpu"), c10::DeviceType::XPU},
      {c10::Symbol::prim("is_mps"), c10::DeviceType::MPS}};
  for (const auto& [kind, device] : kIsOn) {
    if (node->kind() == kind) {
      return *fact.device == device;
    }
  }
  if (node->kind() == kType) {
    return c10::DeviceTypeName(*fact.device, /*lower_case=*/true);
  }
  return std::nullopt;
}

bool answer_questions(std::shared_ptr<Graph>& graph, const Facts& facts) {
  bool changed = false;
  for (Node* node : all_nodes(*graph)) {
    changed |= node->kind() == prim::If && share_results(node);
    if (node->outputs().size() != 1 || !node->output()->hasUses()) {
      continue;
    }
    if (const auto known = known_result(node, facts)) {
      const WithInsertPoint here(node);
      node->output()->replaceAllUsesWith(node->owningGraph()->insertConstant(*known));
      changed = true;
    }
  }
  if (changed) {
    ConstantPropagation(graph);
    PeepholeOptimize(graph, /*disable_shape_peepholes=*/true);
  }
  return changed;
}

}  // namespace jit_amp
