#include "core/graphs.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <map>

#include "core/dialect.h"
#include "core/forks.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Each source is compiled once. The units are leaked on purpose: TorchScript's own statics may be
// gone before ours at exit.
CompilationUnit& unit(const std::string& source) {
  static auto& units = *new std::map<std::string, std::unique_ptr<CompilationUnit>>;
  static auto& lock = *new Lock;
  const std::lock_guard held(lock);
  auto& compiled = units[source];
  if (!compiled) {
    compiled = std::make_unique<CompilationUnit>(source);
  }
  return *compiled;
}

// In place of a file, what we write into a graph has this. Files of frozen modules keep it, and
// jit_amp/_explain/graph.py reads it: "<jit_amp cast>" is a cast that is decided about at run
// time.
std::string file_of(const std::string& name) { return "<jit_amp " + name + ">"; }

void set_source(Graph& graph, const std::string& source, const std::string& name) {
  const auto shown = std::make_shared<Source>(source, file_of(name), 1);
  for (Node* node : all_nodes(graph)) {
    const SourceRange range = node->sourceRange();
    node->setSourceRange(SourceRange(shown, range.start(), range.end()));
  }
}

void collect_nodes(Block* block, std::vector<Node*>& nodes) {
  for (Node* node : block->nodes()) {
    nodes.push_back(node);
    for (Block* inner : node->blocks()) {
      collect_nodes(inner, nodes);
    }
    if (node->kind() == prim::fork) {
      collect_nodes(node->g(attr::Subgraph)->block(), nodes);
    }
  }
}

}  // namespace

std::string text_of(const Graph& graph) {
  try {
    return graph.toString(/*print_source_locations=*/false);
  } catch (const std::exception&) {  // c10::Error, or what damaged debug information does
    return "";
  }
}

std::vector<Node*> all_nodes(Graph& graph) {
  std::vector<Node*> nodes;
  collect_nodes(graph.block(), nodes);
  return nodes;
}

std::vector<Node*> all_nodes(Graph& graph, c10::Symbol kind) {
  std::vector<Node*> nodes = all_nodes(graph);
  std::erase_if(nodes, [&](const Node* node) { return node->kind() != kind; });
  return nodes;
}

bool contains(Graph& graph, c10::Symbol kind) { return !all_nodes(graph, kind).empty(); }

const at::Tensor* tensor_in(const Node* node) {
  const bool holds = node->kind() == prim::Constant && node->hasAttribute(attr::value) &&
                     node->kindOf(attr::value) == AttributeKind::t;
  return holds && node->t(attr::value).has_storage() ? &node->t(attr::value) : nullptr;
}

bool is_container(const c10::IValue& value) {
  return value.isList() || value.isTuple() || value.isGenericDict();
}

std::vector<at::Tensor> tensors_in(const Node* node) {
  std::vector<at::Tensor> found;
  const auto value = node->kind() == prim::Constant ? toIValue(node->output()) : std::nullopt;
  if (!value) {
    return found;
  }
  value->visit([&](const c10::IValue& each) {
    if (each.isTensor() && each.toTensor().defined() && each.toTensor().has_storage()) {
      found.push_back(each.toTensor());
    }
    return !is_container(each);
  });
  return found;
}

bool is_write(const Node* node) {
  const FunctionSchema* schema = node->maybeSchema();
  return schema && schema->is_mutable();
}

bool is_fixed_list(const Value* list) {
  return list->node()->kind() == prim::ListConstruct &&
         std::all_of(list->uses().begin(), list->uses().end(), [](const Use& use) {
           return use.user->kind().is_aten() && !is_write(use.user);
         });
}

bool updates_statistics(const Node* node) {
  constexpr size_t kMean = 3, kTraining = 5;  // of both; of instance_norm it is `use_input_stats`
  const bool is_norm = node->kind() == aten::batch_norm || node->kind() == aten::instance_norm;
  return is_norm && node->inputs().size() > kTraining && !node->input(kMean)->mustBeNone() &&
         constant_as<bool>(node->input(kTraining)) != false;
}

bool may_write(const Node* node) {
  if (std::any_of(node->blocks().begin(), node->blocks().end(),
                  [](const Block* block) { return may_write(block); })) {
    return true;
  }
  if (ops::is_scoped(node)) {
    return may_write(node->g(attr::Subgraph)->block());
  }
  // That an attribute is set is no side effect to PyTorch. The schemas of calls, where they have
  // one, and of a program take anything, and say nothing.
  if (is_call(node) || node->kind() == prim::fork || node->kind() == prim::SetAttr ||
      node->kind() == ops::program) {
    return true;
  }
  if (!node->maybeSchema()) {
    return !(node->kind().is_prim() || node->maybeOperator()) || node->hasSideEffects();
  }
  return is_write(node) || updates_statistics(node);
}

bool may_write(const Block* block) {
  return std::any_of(block->nodes().begin(), block->nodes().end(),
                     [](const Node* node) { return may_write(node); });
}

bool is_call(const Node* node) {
  return node->kind() == prim::CallMethod || node->kind() == prim::CallFunction ||
         node->kind() == prim::PythonOp;
}

Node* insert_if(Value* condition, const MakeResults& yes, const MakeResults& no) {
  Graph* graph = condition->owningGraph();
  Node* choice = graph->insertNode(graph->create(prim::If, {condition}, 0));
  for (const MakeResults* make : {&yes, &no}) {
    Block* side = choice->addBlock();
    const WithInsertPoint inside(side);
    for (Value* result : (*make)()) {
      side->registerOutput(result);
    }
  }
  for (const Value* result : choice->blocks()[0]->outputs()) {
    choice->addOutput()->setType(result->type());
  }
  return choice;
}

Value* insert_if(Value* condition, const MakeResult& yes, const MakeResult& no) {
  return insert_if(
             condition, [&] { return value_list{yes()}; }, [&] { return value_list{no()}; })
      ->output();
}

Node* wrapped_node(Node* scoped) { return *scoped->g(attr::Subgraph)->nodes().rbegin(); }

size_t state_inputs(const Node* scoped) { return 2 * scoped->ss(ops::devices).size(); }

Node* unwrap(Node* scoped) {
  Graph* graph = scoped->owningGraph();
  const WithInsertPoint here(scoped);
  insertGraph(*graph, *scoped->g(attr::Subgraph), scoped->inputs().slice(state_inputs(scoped)));
  Node* node = scoped->prev();
  scoped->replaceAllUsesWith(node);
  scoped->destroy();
  return node;
}

void replace_contents(Graph& graph, Graph& from) {
  graph.block()->clear();
  graph.block()->cloneFrom(from.block(), nullptr);
}

std::shared_ptr<Graph> source_graph(const std::string& source, const std::string& name) {
  auto graph = toGraphFunction(unit(source).get_function(name)).graph()->copy();
  set_source(*graph, source, name);
  return graph;
}

std::shared_ptr<Graph> definition(const std::string& source, const std::string& name) {
  auto graph = source_graph(source, name);
  Inline(*graph);
  set_source(*graph, source, name);
  return graph;
}

bool has_definition(const std::string& source, const std::string& name) {
  return unit(source).find_function(name) != nullptr;
}

void replace_by(Node* node, const std::string& source, const std::string& name, Graph& body) {
  auto& function = toGraphFunction(unit(source).get_function(name));
  if (node->outputs().size() == 1) {
    inlineCallTo(node, &function, &body);
    return;
  }
  // A function returns nothing as None, and several values as one tuple.
  Graph* graph = node->owningGraph();
  Node* call = graph->create(prim::CallFunction, node->inputs(), 1)->insertBefore(node);
  call->output()->setType(body.outputs()[0]->type());
  if (!node->outputs().empty()) {
    Node* parts = graph->createTupleUnpack(call->output())->insertBefore(node);
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      node->output(i)->replaceAllUsesWith(parts->output(i));
    }
  }
  node->destroy();
  inlineCallTo(call, &function, &body);
}

void insert_check(Graph& graph, const std::string& source, const std::string& name,
                  const std::vector<Value*>& arguments, const std::string& title) {
  // Not one of the units that are kept: the text is one graph's, and calls nothing.
  CompilationUnit compiled(source);
  const auto body = toGraphFunction(compiled.get_function(name)).graph()->copy();
  const auto shown = std::make_shared<Source>(title + "\n", "jit_amp", 1);
  for (Node* node : all_nodes(*body)) {
    node->setSourceRange(SourceRange(shown, 0, title.size()));
  }
  insertGraph(graph, *body, arguments);
}

void insert_failure(Node* before, const std::string& message) {
  Graph& graph = *before->owningGraph();
  const WithInsertPoint here(before);
  graph.insertNode(graph.create(ops::fail, {graph.insertConstant(message)}, 0))
      ->copyMetadata(before);
}

}  // namespace jit_amp
