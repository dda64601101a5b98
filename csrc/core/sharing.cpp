#include "core/sharing.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <utility>

#include "core/dialect.h"
#include "core/graphs.h"
#include "core/types.h"

namespace jit_amp {

using namespace torch::jit;

namespace {

c10::TypePtr inside(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

// What can be written to. Of it a tensor is one thing, anything else is taken for a container.
bool is_asked(const Value* value) { return !is_plain(inside(value->type())); }
bool is_one(const Value* value) { return is_tensor(inside(value->type())); }

bool is_constant(const Node* node) {
  return node->kind() == prim::Constant && is_asked(node->output());
}

bool is_of_module(const Node* node) {
  return (node->kind() == prim::GetAttr || node->kind() == prim::SetAttr) &&
         (node->input(0)->type()->is_module() ||
          node->input(0)->type()->cast<c10::InterfaceType>());
}

// A list, dictionary or tuple of what is plain: it comes from nothing that can be written to.
bool is_shallow(const c10::TypePtr& type) {
  const auto contained = type->containedTypes();
  return !contained.empty() && std::all_of(contained.begin(), contained.end(), is_plain);
}

// Whether an operator says that a result may be one of its operands, or may hold one.
bool may_be_operand(const Value* result, const c10::Argument& declared) {
  return is_asked(result) &&
         (declared.alias_info() || !(is_one(result) || is_shallow(result->type())));
}

// Whether a result is, if anything, what the schema names, and not just anything there is.
bool is_named(const Value* result, const c10::Argument& declared) {
  return is_one(result) && declared.alias_info() && !declared.alias_info()->isWildcardAfter();
}

// Whether what it holds is written to.
bool is_written_inside(const c10::AliasInfo& info) {
  return std::any_of(info.containedTypes().begin(), info.containedTypes().end(),
                     [](const c10::AliasInfo& each) { return each.isWrite(); });
}

}  // namespace

Sharing::Container& Sharing::container(Key key) {
  Container* found = &containers_.try_emplace(key, Container{key, false, {}}).first->second;
  while (found->parent != key) {
    Container& up = containers_.at(found->parent);
    key = found->parent;
    found->parent = up.parent;
    found = &up;
  }
  return *found;
}

void Sharing::unite(Key a, Key b) {
  Container* from = &container(a);
  Container* to = &container(b);
  if (from == to) {
    return;
  }
  if (from->elements.size() > to->elements.size()) {
    std::swap(from, to);
  }
  from->parent = to->parent;
  to->is_changed |= from->is_changed;
  to->elements.insert(to->elements.end(), from->elements.begin(), from->elements.end());
  from->elements.clear();
}

void Sharing::connect(const Value* result, const Value* operand) {
  if (result == operand || !is_asked(result) || !is_asked(operand)) {
    return;
  }
  if (is_one(result)) {
    from_[result].push_back(operand);
  } else if (is_one(operand)) {
    container(result).elements.push_back(operand);
  } else {
    unite(result, operand);
  }
}

void Sharing::write(const Value* value, bool with_elements) {
  if (!is_asked(value)) {
    return;
  }
  if (!is_one(value)) {
    container(value).is_changed = true;
  }
  if (is_one(value) || with_elements) {
    ahead_.push_back(value);
  }
}

void Sharing::holds(const Value* value, const c10::IValue& what) {
  what.visit([&](const c10::IValue& each) {
    if (each.isTensor()) {
      const at::Tensor& tensor = each.toTensor();
      const Key memory = !tensor.defined()      ? nullptr
                         : tensor.has_storage() ? Key(tensor.storage().unsafeGetStorageImpl())
                                                : Key(tensor.unsafeGetTensorImpl());
      if (memory && is_one(value)) {
        from_[value].push_back(memory);
      } else if (memory) {
        container(value).elements.push_back(memory);
      }
      return true;
    }
    if (each.isModule()) {
      return true;
    }
    if (each.isPtrType() && !each.isString() && !is_one(value)) {
      unite(value, each.internalToPointer());
    }
    return false;
  });
}

// Back from all that is written to.
void Sharing::follow() {
  while (!ahead_.empty()) {
    Key key = ahead_.back();
    ahead_.pop_back();
    if (containers_.count(key)) {
      key = container(key).parent;
    }
    if (!written_.insert(key).second) {
      continue;
    }
    const auto& before = containers_.count(key) ? container(key).elements : from_[key];
    ahead_.insert(ahead_.end(), before.begin(), before.end());
  }
}

bool Sharing::is_written(const Value* value) {
  follow();
  if (!is_one(value)) {
    const Container& found = container(value);
    return found.is_changed || written_.count(found.parent) ||
           std::any_of(found.elements.begin(), found.elements.end(),
                       [&](Key each) { return written_.count(each); });
  }
  const auto found = from_.find(value);
  return written_.count(value) ||
         (found != from_.end() && std::any_of(found->second.begin(), found->second.end(),
                                              [&](Key each) { return written_.count(each); }));
}

void Sharing::see(Graph& graph, const std::function<bool(const Node*)>& updates) {
  for (Node* node : all_nodes(graph)) {
    see(node, updates);
  }
}

void Sharing::see(Node* node, const std::function<bool(const Node*)>& updates) {
  constexpr size_t kMean = 3, kVariance = 4;
  if (node->kind() == prim::Constant) {
    return;
  }
  if (updates_statistics(node) && (!updates || updates(node))) {
    write(node->input(kMean), false);
    write(node->input(kVariance), false);
  }
  if (is_of_module(node)) {
    see_attribute(node);
  } else if (node->kind() == prim::If) {
    for (Block* block : node->blocks()) {
      for (size_t i = 0; i < node->outputs().size(); ++i) {
        connect(node->output(i), block->outputs()[i]);
      }
    }
  } else if (node->kind() == prim::Loop) {
    Block* body = node->blocks()[0];
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      for (const Value* result : {node->output(i), body->inputs()[i + 1]}) {
        connect(result, node->input(i + 2));
        connect(result, body->outputs()[i + 1]);
      }
    }
  } else if (node->kind() == prim::fork || ops::is_scoped(node)) {
    const bool is_task = node->kind() == prim::fork;
    const auto within = node->g(attr::Subgraph);
    const size_t before = is_task ? 0 : state_inputs(node);
    for (size_t i = 0; i < within->inputs().size(); ++i) {
      connect(within->inputs()[i], node->input(before + i));
    }
    for (size_t i = 0; i < within->outputs().size(); ++i) {
      connect(node->output(is_task ? 0 : i), within->outputs()[i]);
    }
    for (Node* each : within->nodes()) {
      if (!is_task) {  // a task's nodes are the graph's
        see(each, updates);
      }
    }
  } else {
    const FunctionSchema* schema = node->maybeSchema();
    if (schema && schema->returns().size() == node->outputs().size() && !node->kind().is_prim() &&
        node->kind() != aten::wait) {
      see_operator(node, *schema);
    } else {
      see_unknown(node, node->kind() != prim::SetAttr && may_write(node));
    }
  }
}

// One of a class's attributes is one thing, whichever object of the class has it.
void Sharing::see_attribute(const Node* node) {
  const bool is_read = node->kind() == prim::GetAttr;
  const Value* value = is_read ? node->output() : node->input(1);
  if (!is_asked(value) || value->type()->is_module()) {
    return;
  }
  const Key attribute = &attributes_[{node->input(0)->type(), node->s(attr::name)}];
  if (!is_one(value)) {
    unite(value, attribute);
  } else {
    is_read ? from_[value].push_back(attribute) : from_[attribute].push_back(value);
  }
}

void Sharing::see_operator(const Node* node, const FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto inputs = node->inputs();
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    const Value* result = node->output(i);
    const c10::Argument& declared = schema.returns().at(i);
    for (size_t j = 0; may_be_operand(result, declared) && j < inputs.size(); ++j) {
      const bool is_other =
          is_named(result, declared) && j < arguments.size() && !arguments[j].alias_info();
      if (!is_other) {
        connect(result, inputs[j]);
      }
    }
  }
  for (size_t j = 0; j < std::min(inputs.size(), arguments.size()); ++j) {
    const c10::AliasInfo* info = arguments[j].alias_info();
    if (info && (info->isWrite() || is_written_inside(*info))) {
      write(inputs[j], is_written_inside(*info));
      for (size_t k = 0; !is_one(inputs[j]) && k < inputs.size(); ++k) {
        connect(inputs[j], inputs[k]);  // it may be put into it
      }
    }
  }
}

// An operator whose schema does not say what its results are.
void Sharing::see_unknown(const Node* node, bool writes) {
  for (const Value* result : node->outputs()) {
    for (const Value* operand : node->inputs()) {
      connect(result, operand);
    }
    for (const Block* block : node->blocks()) {
      for (const Value* operand : block->outputs()) {
        connect(result, operand);
      }
    }
  }
  if (node->kind() == prim::SetAttr) {
    write(node->input(0), /*with_elements=*/false);
    connect(node->input(0), node->input(1));
  }
  for (size_t i = 0; writes && i < node->inputs().size(); ++i) {
    write(node->input(i), /*with_elements=*/true);
    for (const Value* operand : node->inputs()) {
      connect(node->input(i), operand);
    }
  }
}

std::vector<Node*> written_constants(const std::shared_ptr<Graph>& graph) {
  std::vector<Node*> written;
  if (!may_write(graph->block())) {
    return written;
  }
  Sharing sharing;
  sharing.see(*graph);
  const auto nodes = all_nodes(*graph);
  for (const Node* node : nodes) {
    if (is_constant(node)) {
      if (const auto value = toIValue(node->output())) {
        sharing.holds(node->output(), *value);
      }
    }
  }
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(written), [&](const Node* node) {
    return is_constant(node) && sharing.is_written(node->output());
  });
  return written;
}

}  // namespace jit_amp
