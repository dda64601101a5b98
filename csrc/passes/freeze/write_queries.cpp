#include "passes/freeze/write_queries.h"

#include <torch/csrc/jit/ir/constants.h>

#include <string>
#include <vector>

#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

Value* stock_form(Graph& graph, const Node* question) {
  const std::string name = question->kind().toUnqualString();
  const auto ask = [&](const char* op, std::vector<NamedValue> operands) {
    return graph.insert(Symbol::aten(op), operands);
  };
  if (name == "get_autocast_cpu_dtype") {
    return ask("get_autocast_dtype", {NamedValue(std::string("cpu"))});
  }
  if (name == "get_autocast_gpu_dtype") {
    return ask("get_autocast_dtype", {NamedValue(std::string("cuda"))});
  }
  const auto device = constant_as<std::string>(question->input(0));
  if (device == "cpu") {
    return ask("is_autocast_cpu_enabled", {});
  }
  if (device == "cuda") {
    return ask("is_autocast_enabled", {});
  }
  throw diagnostic(Diagnostic::query_of_device, question);
}

}  // namespace

bool write_queries(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (!ops::is_query_of_ours(node)) {
      continue;
    }
    const WithInsertPoint here(node);
    Value* answer = stock_form(*node->owningGraph(), node);
    answer->node()->copyMetadata(node);
    node->output()->replaceAllUsesWith(answer);
    node->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
