#include "passes/quirks/files/annotate_elements.h"

#include <algorithm>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether elements of this type may look as if they were of a narrower one. What is in a list or a
// dictionary cannot: its elements are annotated themselves.
bool is_wider_than_it_looks(const c10::TypePtr& type) {
  const auto tuple = type->cast<c10::TupleType>();
  if (!tuple || tuple->name()) {
    return false;
  }
  const auto elements = tuple->elements();
  return std::any_of(elements.begin(), elements.end(), [](const c10::TypePtr& element) {
    const bool is_several = element->cast<c10::UnionType>() || element->cast<c10::OptionalType>() ||
                            element->cast<c10::InterfaceType>() ||
                            element->kind() == c10::TypeKind::NumberType;
    return is_several || is_wider_than_it_looks(element);
  });
}

// Whether there is a list or dictionary of such elements in a value of the type.
bool has_wide_elements(const c10::TypePtr& type) {
  const auto parts = type->containedTypes();
  const bool is_container = type->cast<c10::ListType>() || type->cast<c10::DictType>();
  return (is_container && is_wider_than_it_looks(parts.back())) ||
         std::any_of(parts.begin(), parts.end(), has_wide_elements);
}

Value* cast_to(const c10::TypePtr& type, Value* value) {
  Node* cast = value->owningGraph()->create(prim::unchecked_cast, {value}, 1);
  cast->output()->setType(type);
  return value->owningGraph()->insertNode(cast)->output();
}

}  // namespace

bool annotate_elements(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == prim::Constant && has_wide_elements(node->output()->type())) {
      const WithInsertPoint after(node->next());
      Value* cast = cast_to(node->output()->type(), node->output());
      node->output()->replaceAllUsesAfterNodeWith(cast->node(), cast);
      changed = true;
      continue;
    }
    const bool is_list = node->kind() == prim::ListConstruct;
    if (!is_list && node->kind() != prim::DictConstruct) {
      continue;
    }
    const c10::TypePtr type = node->output()->type()->containedTypes().back();
    if (!is_wider_than_it_looks(type)) {
      continue;
    }
    for (size_t i = is_list ? 0 : 1; i < node->inputs().size(); i += is_list ? 1 : 2) {
      const WithInsertPoint before(node);
      node->replaceInput(i, cast_to(type, node->input(i)));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
