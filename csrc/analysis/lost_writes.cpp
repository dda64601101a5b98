#include "analysis/lost_writes.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <memory>
#include <unordered_set>
#include <utility>

#include "analysis/hidden_calls.h"
#include "analysis/modules.h"
#include "core/debug_info.h"
#include "core/error.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

struct Found {
  std::vector<CompiledFunction> functions;
  std::unordered_set<const Function*> seen;
};

// Whether the node gives a new tensor where Python's operator may be one that writes.
bool is_made_anew(const Node* node) {
  switch (node->kind()) {
    case aten::pow:
    case aten::bitwise_and:
    case aten::bitwise_or:
    case aten::bitwise_xor:
    case aten::__and__:
    case aten::__or__:
    case aten::__xor__:
      return true;
    default:
      return false;
  }
}

// Whether PyTorch's freezing, or ours, has changed the graphs of a class.
bool is_frozen(const c10::TypePtr& type) {
  const auto cls = type->cast<c10::ClassType>();
  return cls && cls->is_module() && !cls->hasAttribute("training");
}

void add(GraphFunction& function, Found& all) {
  if (!all.seen.insert(&function).second) {
    return;
  }
  function.ensure_defined();
  CompiledFunction found;
  found.qualified_name = function.qualname().qualifiedName();
  for (const c10::Argument& argument : function.getSchema().arguments()) {
    found.arguments.emplace(argument.name(), argument.type());
  }
  std::shared_ptr<Source> last;
  for (Node* node : all_nodes(*function.graph())) {
    const SourceRange range = as_written(node->sourceRange());
    const std::shared_ptr<Source> source = range.source();
    if (source && source != last && source->filename()) {
      last = source;
      found.texts.emplace(*source->filename(), source->starting_line_no(),
                          source->text_str().str());
    }
    for (auto* lines :
         {is_write(node) ? &found.writes : nullptr, is_made_anew(node) ? &found.anew : nullptr}) {
      const auto place = lines ? range.file_line_col() : std::nullopt;
      if (place) {
        (*lines)[{std::get<0>(*place), std::get<1>(*place)}].emplace_back(range.start(),
                                                                          range.end());
      }
    }
    const auto type = node->kind() == prim::Constant
                          ? node->output()->type()->cast<c10::FunctionType>()
                          : nullptr;
    const bool is_method = node->kind() == prim::CallMethod && !is_frozen(node->input(0)->type());
    GraphFunction* callee = type        ? tryToGraphFunction(*type->function())
                            : is_method ? tryToGraphFunction(node)
                                        : hidden_callee(node);
    if (callee) {
      add(*callee, all);
    }
  }
  all.functions.push_back(std::move(found));
}

}  // namespace

std::vector<CompiledFunction> compiled_functions(GraphFunction& function) {
  Found found;
  refusing_unfit_graphs([&] { add(function, found); });
  return std::move(found.functions);
}

std::vector<CompiledFunction> compiled_functions(const Module& module) {
  Found found;
  refusing_unfit_graphs([&] {
    for (const Module& each : module.modules()) {
      if (is_frozen(each.type())) {
        continue;
      }
      for (GraphFunction* function : functions_of(*each.type())) {
        add(*function, found);
      }
    }
  });
  return std::move(found.functions);
}

c10::TypePtr attribute_type(const c10::TypePtr& type, const std::string& name) {
  const auto cls = type->cast<c10::ClassType>();
  if (!cls) {
    return nullptr;
  }
  if (const auto constant = cls->findConstantSlot(name)) {
    return cls->getConstant(*constant).type();
  }
  return cls->findAttribute(name);
}

}  // namespace jit_amp
