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
