#include "passes/source/widen.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/graphs.h"
#include "core/types.h"
#include "passes/source/cast_tensors.h"
#include "passes/source/wrap.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The value cast, at the insertion point; null where there is nothing to cast in its type.
Value* widened(Value* value) {
  const DTypeCast cast{DTypes::only(c10::kHalf) | DTypes::only(c10::kBFloat16), c10::kFloat};
  return cast_tensors(value, {}, [&](const Fact&) { return std::optional(cast); }, "cast");
}

// Whether what is in a value of the type is known only when it runs.
bool is_of_any_type(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::AnyType || type->kind() == c10::TypeKind::UnionType) {
    return may_hold_tensors(type);
  }
  const auto inside = type->containedTypes();
  return type->kind() != c10::TypeKind::ClassType &&
         std::any_of(inside.begin(), inside.end(), is_of_any_type);
}

bool is_in(const Node* node, const std::vector<Lines>& lines) {
  const auto place = node->sourceRange().file_line_col();
  return place && std::any_of(lines.begin(), lines.end(), [&](const Lines& each) {
           const auto& [file, line, column] = *place;
           const bool ends_so = file.size() > each.file.size() &&
                                file.compare(file.size() - each.file.size() - 1, std::string::npos,
                                             "/" + each.file) == 0;
           return (file == each.file || ends_so) && each.first <= line && line <= each.last;
         });
}

bool gives_tensors(const Node* node) {
  return std::any_of(node->outputs().begin(), node->outputs().end(), [](const Value* value) {
    return mentions_tensors(value->type()) && can_cast_tensors(value->type());
  });
}

// Whether something writes to the result of the node, which is a view, or to a view of that: a cast
// in front of it would be written to instead.
bool is_written_view(const Node* node) {
  const c10::FunctionSchema* schema = node->maybeSchema();
  const auto* alias =
      schema && schema->returns().size() == 1 ? schema->returns()[0].alias_info() : nullptr;
  if (!alias || alias->isWrite()) {
    return false;
  }
  const auto& uses = node->output()->uses();
  return std::any_of(uses.begin(), uses.end(), [](const Use& use) {
    return use.offset == 0 && (is_write(use.user) || is_written_view(use.user));
  });
}

bool is_of_lines(const Node* node, const std::vector<Lines>& lines) {
  const bool is_call = node->kind() == prim::CallMethod || node->kind() == prim::CallFunction;
  const bool is_operator =
      node->kind().is_aten() && gives_tensors(node) && !is_write(node) && !is_written_view(node);
  return (is_operator || (is_call && !is_autocast_class(node->input(0)->type()))) &&
         is_in(node, lines);
}

// As jit_amp does it in eager: runtime/kept_operators.cpp.
bool is_of_operators(const Node* node, const std::vector<std::string>& names) {
  const c10::FunctionSchema* schema = node->maybeSchema();
  return schema && std::find(names.begin(), names.end(), schema->name()) != names.end() &&
         gives_tensors(node) && gives_new_tensors(*schema);
}

}  // namespace

void widen_inputs(Graph& graph) {
  const WithInsertPoint here(*graph.nodes().begin());
  for (Value* input : std::vector<Value*>(graph.inputs().begin(), graph.inputs().end())) {
    const std::vector<Use> uses = input->uses();
    if (Value* wide = widened(input)) {
      for (const Use& use : uses) {
        use.user->replaceInput(use.offset, wide);
      }
    }
  }
}

void widen_results(Graph& graph) {
  const WithInsertPoint here(graph.return_node());
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    Value* const result = graph.outputs()[i];
    if (is_of_any_type(result->type())) {
      throw diagnostic(Diagnostic::lost_decorator, result->node(),
                       {"forward",
                        "a cast of its results around it, and one is of type " +
                            result->type()->annotation_str(),
                        "results of known types; or "});
    }
    if (Value* wide = widened(result)) {
      graph.return_node()->replaceInput(i, wide);
    }
  }
}

void widen_kept(Block* block, Graph& pattern, const KeptParts& kept) {
  std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
  for (Node* node : nodes) {
    for (Block* inner : node->blocks()) {
      widen_kept(inner, pattern, kept);
    }
    if (!is_of_lines(node, kept.lines) && !is_of_operators(node, kept.operators)) {
      continue;
    }
    const WithInsertPoint here(node);
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (Value* wide = widened(node->input(i))) {
        node->replaceInput(i, wide);
      }
    }
    Node* const after = node->next();
    std::vector<Value*> scopes;
    for (const char* device : {"cpu", "cuda"}) {
      scopes.push_back(enter_scope(node, pattern, {device, std::nullopt, false}));
    }
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      exit_scope(after, pattern, *scope);
    }
  }
}

}  // namespace jit_amp
