#include "passes/quirks/freezing/write_devices.h"

#include <algorithm>

#include "analysis/modules.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool holds_a_device(const c10::IValue& value) {
  if (!value.isList() && !value.isGenericDict()) {
    return false;
  }
  bool found = false;
  value.visit([&](const c10::IValue& each) {
    found |= each.isDevice();
    return each.isObject();
  });
  return found;
}

Value* written(Graph& graph, const c10::IValue& value, const c10::TypePtr& type) {
  std::vector<Value*> parts;
  if (value.isList()) {
    const auto element = type->expect<c10::ListType>()->getElementType();
    for (const c10::IValue& each : value.toList()) {
      parts.push_back(written(graph, each, element));
    }
    return graph.insertNode(graph.createList(element, parts))->output();
  }
  if (value.isGenericDict()) {
    const auto dict = type->expect<c10::DictType>();
    std::vector<Value*> keys;
    for (const auto& each : value.toGenericDict()) {
      keys.push_back(graph.insertConstant(each.key()));
      parts.push_back(written(graph, each.value(), dict->getValueType()));
    }
    return graph
        .insertNode(graph.createDict(dict->getKeyType(), dict->getValueType(), keys, parts))
        ->output();
  }
  if (value.isTuple()) {
    const auto tuple = type->expect<c10::TupleType>();
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      parts.push_back(written(graph, elements[i], tuple->elements()[i]));
    }
    return graph.insertNode(graph.createTuple(parts, tuple->schema() ? tuple : nullptr))->output();
  }
  return graph.insertConstant(value);
}

c10::IValue empty_of(const c10::TypePtr& type) {
  if (const auto list = type->cast<c10::ListType>()) {
    return c10::impl::GenericList(list->getElementType());
  }
  const auto dict = type->expect<c10::DictType>();
  return c10::impl::GenericDict(dict->getKeyType(), dict->getValueType());
}

// Whether a use of the list or dictionary only looks at it.
bool only_reads(const Use& use) {
  const FunctionSchema* schema = use.user->maybeSchema();
  const bool is_known = schema && use.offset < schema->arguments().size();
  const auto* alias = is_known ? schema->arguments()[use.offset].alias_info() : nullptr;
  return is_known && !(alias && (alias->isWrite() || alias->isWildcardAfter()));
}

}  // namespace

bool write_devices(const Module& module,
                   const std::vector<std::pair<std::shared_ptr<Graph>, ObjectPtr>>& graphs) {
  const Assigned assigned = assigned_attributes(module._ivalue());
  bool changed = false;
  for (const Module& owner : module.modules()) {
    const auto type = owner.type();
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      const std::string& name = type->getAttributeName(slot);
      const c10::IValue value = owner._ivalue()->getSlot(slot);
      if (!holds_a_device(value) || assigned.count({type.get(), name})) {
        continue;
      }
      std::vector<Node*> reads;
      for (const auto& [graph, self] : graphs) {
        const Modules modules(self, *graph);
        for (Node* node : all_nodes(*graph, prim::GetAttr)) {
          if (node->s(attr::name) == name && modules.find(node->input()).first == owner._ivalue()) {
            reads.push_back(node);
          }
        }
      }
      if (!std::all_of(reads.begin(), reads.end(), [](const Node* node) {
            return std::all_of(node->output()->uses().begin(), node->output()->uses().end(),
                               only_reads);
          })) {
        continue;
      }
      for (Node* node : reads) {
        const WithInsertPoint here(node);
        node->output()->replaceAllUsesWith(
            written(*node->owningGraph(), value, type->getAttribute(slot)));
        node->destroy();
      }
      owner._ivalue()->setSlot(slot, empty_of(type->getAttribute(slot)));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
