#include "passes/server/share_conditions.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/graphs.h"
#include "core/types.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool only_asks(const Node* node) {
  const bool is_known = node->maybeSchema() != nullptr || node->kind() == prim::Constant ||
                        node->kind() == prim::ListConstruct;
  return is_known && node->blocks().empty() && node->outputs().size() == 1 &&
         !may_hold_tensors(node->output()->type()) && !node->hasSideEffects() &&
         !node->isNondeterministic() && !is_write(node);
}

bool is_condition(const Node* node) {
  if (node->kind() != prim::If || node->outputs().size() != 1 ||
      node->output()->type()->kind() != c10::TypeKind::BoolType) {
    return false;
  }
  return std::all_of(node->blocks().begin(), node->blocks().end(), [](const Block* block) {
    return std::all_of(block->nodes().begin(), block->nodes().end(), only_asks);
  });
}

// A condition as a graph of its own, of the module and what it asks about.
struct Question {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::vector<Value*> about;
};

Question question_of(Node* condition, Value* self) {
  Question question;
  Graph& graph = *question.graph;
  graph.addInput("self")->setType(self->type());
  std::unordered_map<Value*, Value*> inside;
  const auto given = [&](Value* value) {
    const auto known = inside.find(value);
    if (known != inside.end()) {
      return known->second;
    }
    Value* made = nullptr;
    // Two constants with tensors in them may have the same text.
    if (value->node()->kind() == prim::Constant && !may_hold_tensors(value->type())) {
      const WithInsertPoint start(*graph.nodes().begin());
      made =
          graph.insertNode(graph.createClone(value->node(), [](Value* v) { return v; }))->output();
    } else {
      made = graph.addInput()->setType(value->type());
      question.about.push_back(value);
    }
    inside.emplace(value, made);
    return made;
  };
  Node* copy = graph.insertNode(graph.createClone(condition, given));
  graph.registerOutput(copy->output());
  for (Node* node : all_nodes(graph)) {
    node->setSourceRange(condition->sourceRange());
    for (Value* output : node->outputs()) {
      output->setDebugName("");
    }
  }
  return question;
}

}  // namespace

void share_conditions(Module frozen) {
  const auto graph = toGraphFunction(frozen.get_method("forward").function()).graph();
  Value* self = graph->inputs()[0];
  std::map<std::string, std::vector<Node*>> places;  // by the text of their graph
  for (Node* node : all_nodes(*graph)) {
    if (is_condition(node)) {
      places[question_of(node, self).graph->toString(/*print_source_locations=*/false)].push_back(
          node);
    }
  }
  size_t number = 0;
  for (const auto& [text, nodes] : places) {
    if (nodes.size() < 2) {
      continue;
    }
    std::string name;
    do {
      name = "_fits" + std::to_string(number++);
    } while (frozen.hasattr(name) || frozen.find_method(name));
    const auto unit = frozen._ivalue()->compilation_unit();
    frozen.type()->addMethod(unit->create_function(c10::QualifiedName(*frozen.type()->name(), name),
                                                   question_of(nodes.front(), self).graph));
    for (Node* node : nodes) {
      std::vector<Value*> inputs{self};
      const auto about = question_of(node, self).about;  // some of which are calls by now
      inputs.insert(inputs.end(), about.begin(), about.end());
      Node* call = graph->create(prim::CallMethod, inputs, 1)->insertBefore(node);
      call->s_(attr::name, name)->output()->setType(c10::BoolType::get());
      call->setSourceRange(node->sourceRange());
      node->output()->replaceAllUsesWith(call->output());
      node->destroy();
    }
  }
}

}  // namespace jit_amp
