#include "passes/quirks/operators/round_products.h"

#include <torch/csrc/jit/ir/constants.h>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether the number may round when it becomes one of a reduced dtype.
bool may_round(const Value* number) {
  if (number->type()->kind() == c10::TypeKind::ComplexType) {
    return false;  // x cannot hold the product
  }
  const auto constant = toIValue(number);
  if (!constant || !(constant->isDouble() || constant->isInt())) {
    return true;
  }
  const double value = constant->toScalar().toDouble();
  return static_cast<double>(static_cast<c10::BFloat16>(static_cast<float>(value))) != value ||
         static_cast<double>(static_cast<c10::Half>(static_cast<float>(value))) != value;
}

bool may_round_product(const Node* node) {
  if (node->kind() != aten::mul_ && node->kind() != Symbol::aten("multiply_")) {
    return false;
  }
  const auto* schema = node->maybeSchema();
  return schema && schema->overload_name() == "Scalar" && may_round(node->input(1));
}

Value* is_of(Graph& graph, Value* dtype, c10::ScalarType reduced) {
  return graph.insert(aten::eq, {dtype, static_cast<int64_t>(reduced)});
}

void round(Node* node) {
  Graph& graph = *node->owningGraph();
  Value *x = node->input(0), *number = node->input(1);
  const WithInsertPoint here(node);
  Value* dtype = graph.insert(prim::dtype, {x});
  Value* is_reduced = graph.insert(
      aten::__or__, {is_of(graph, dtype, at::kBFloat16), is_of(graph, dtype, at::kHalf)});
  const auto rounded_once = [&] {
    Value* product = graph.insert(aten::mul, {x, number});
    Value* copied = graph.insert(aten::copy_, {x, product});
    product->node()->copyMetadata(node);
    copied->node()->copyMetadata(node);
    return value_list{};
  };
  const auto as_it_is = [&] {
    graph.insertNode(graph.createClone(node, [](Value* value) { return value; }));
    return value_list{};
  };
  insert_if(is_reduced, rounded_once, as_it_is)->copyMetadata(node);
  node->output()->replaceAllUsesWith(x);
  node->destroy();
}

}  // namespace

bool round_products(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (may_round_product(node)) {
      round(node);
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
