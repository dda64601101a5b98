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

// No message: what is known of the inputs, or refuse_open_questions, takes it away.
constexpr const char* kOpen = "jit_amp: autocast on a device that is known at run time only";

// `device == "cpu"` asks of the CPU, `device == "cuda"` of CUDA, and any other raises.
Value* asked_by_name(Graph& graph, const Node* question, const std::vector<std::string>& names) {
  if (names.empty()) {
    Node* raise = graph.insertNode(graph.create(
        prim::RaiseException,
        {graph.insertConstant(std::string(kOpen)), graph.insertConstant(c10::IValue())}, 0));
    raise->copyMetadata(const_cast<Node*>(question));
    return graph.insertConstant(false);
  }
  Value* name = graph.insertConstant(names.front());
  Value* is_it = graph.insert(aten::eq, {question->input(0), name});
  Node* choice = graph.insertNode(graph.create(prim::If, {is_it}, 1));
  choice->copyMetadata(const_cast<Node*>(question));
  choice->output()->setType(c10::BoolType::get());
  Block* on = choice->addBlock();
  Block* off = choice->addBlock();
  {
    const WithInsertPoint here(on);
    on->registerOutput(graph.insert(question->kind(), {name}));
  }
  const WithInsertPoint here(off);
  off->registerOutput(asked_by_name(graph, question, {names.begin() + 1, names.end()}));
  return choice->output();
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

bool ask_and_write_queries(Graph& graph) {
  for (Node* node : all_nodes(graph)) {
    if (ops::is_query_of_ours(node) && !node->inputs().empty() &&
        !constant_as<std::string>(node->input(0))) {
      const WithInsertPoint here(node);
      node->output()->replaceAllUsesWith(asked_by_name(graph, node, {"cpu", "cuda"}));
      node->destroy();
    }
  }
  return write_queries(graph);
}

bool refuse_open_questions(Graph& graph) {
  for (const Node* node : all_nodes(graph)) {
    if (node->kind() == prim::RaiseException && constant_as<std::string>(node->input(0)) == kOpen) {
      throw diagnostic(Diagnostic::query_of_device, node);
    }
  }
  return false;
}

}  // namespace jit_amp
