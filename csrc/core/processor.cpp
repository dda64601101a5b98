#include "core/processor.h"

namespace jit_amp {

using namespace torch::jit;

std::optional<Symbol> question_about(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kBFloat16:
      return Symbol::fromQualString("mkldnn::_is_mkldnn_bf16_supported");
    case c10::kHalf:
      return Symbol::fromQualString("mkldnn::_is_mkldnn_fp16_supported");
    default:
      return std::nullopt;
  }
}

Value* is_supported(Graph& graph, c10::ScalarType dtype) {
  const Symbol question = *question_about(dtype);
  for (Node* node : graph.nodes()) {
    if (node->kind() == question) {
      return node->output();
    }
  }
  const WithInsertPoint start(*graph.nodes().begin());
  return graph.insert(question, {});
}

Value* is_slow_kernel(Graph& graph) {
  Value* supported = is_supported(graph, c10::kBFloat16);
  for (const Use& use : supported->uses()) {
    if (asks_of_kernel(use.user)) {
      return use.user->output();
    }
  }
  const WithInsertPoint after(supported->node()->next());
  return graph.insert(aten::ne, {supported, supported});
}

bool asks_of_kernel(const Node* node) {
  return node->kind() == aten::ne && node->input(0) == node->input(1) &&
         node->input(0)->node()->kind() == *question_about(c10::kBFloat16);
}

Value* is_emulated(Graph& graph, c10::ScalarType dtype) {
  Value* supported = is_supported(graph, dtype);
  for (const Use& use : supported->uses()) {
    if (use.user->kind() == aten::__not__) {
      return use.user->output();
    }
  }
  const WithInsertPoint after(supported->node()->next());
  return graph.insert(aten::__not__, {supported});
}

}  // namespace jit_amp
