#include "passes/source/restore_trace.h"

#include <torch/csrc/jit/passes/shape_analysis.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/definitions.h"
#include "core/devices.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"
#include "core/types.h"
#include "passes/source/name_convolutions.h"
#include "passes/source/wrap.h"

namespace jit_amp {

using namespace torch::jit;

namespace {

bool is_recorded(const Node* node) {
  return node->kind() == ops::enter || node->kind() == ops::exit ||
         node->hasAttribute(ops::of_autocast) || node->hasAttribute(ops::instead_of);
}

// Whether it makes a tensor of an attribute's Optional, for a cast of autocast's.
bool is_unwrapping(const Node* node) {
  return node->kind() == aten::_unwrap_optional && node->hasAttribute(ops::of_autocast);
}

// What the author calls by the name of `convolution`, autocast does nothing to.
void name_convolutions_of_the_author(Graph& graph) {
  for (Node* node : all_nodes(graph, aten::_convolution)) {
    if (node->hasAttribute(ops::instead_of)) {
      constexpr size_t kArguments = 9;  // of aten::convolution; `_convolution` has switches besides
      Node* named =
          node->owningGraph()->create(aten::convolution, node->inputs().slice(0, kArguments), 1);
      named->insertBefore(node)->copyMetadata(node);
      node->output()->replaceAllUsesWith(named->output());
      node->destroy();
    }
  }
}

// The scopes around what was recorded instead of an operator, where it is that operator by now.
std::set<int64_t> dissolved_scopes(Graph& graph) {
  std::set<int64_t> dissolved;
  for (Node* node : all_nodes(graph, ops::enter)) {
    if (!node->hasAttribute(ops::instead_of)) {
      continue;
    }
    size_t others = 0;
    bool is_operator = false;
    for (const Node* inside = node->next();
         inside->kind() != ops::exit && inside->kind() != prim::Return; inside = inside->next()) {
      if (inside->kind() != prim::Constant && inside->kind() != prim::ListConstruct &&
          inside->kind() != ops::enter && inside->kind() != ops::cast && !is_unwrapping(inside)) {
        ++others;
        is_operator = inside->kind().toQualString() == node->s(ops::instead_of);
      }
    }
    if (others == 1 && is_operator) {
      dissolved.insert(node->i(ops::scope));
    }
  }
  return dissolved;
}

// What autocast does to an operator that is not in the trace is known where its lists are.
void check_kernels(Graph& graph, const std::set<int64_t>& dissolved) {
  for (const Node* node : all_nodes(graph, ops::enter)) {
    if (node->hasAttribute(ops::instead_of) && !dissolved.count(node->i(ops::scope))) {
      const std::string& device = node->s(ops::device_type);
      if (!has_lists(c10::Device(device).type())) {
        throw diagnostic(Diagnostic::third_device_kernel, node, {node->s(ops::instead_of), device});
      }
    }
  }
}

std::map<int64_t, std::string> devices_of_scopes(Graph& graph) {
  std::map<int64_t, std::string> devices;
  for (const Node* node : all_nodes(graph, ops::enter)) {
    devices[node->i(ops::scope)] = node->s(ops::device_type);
  }
  return devices;
}

// A cast of autocast's that stays is one of what is eligible.
void decide_at_run_time(Node* cast, const std::string& device) {
  Graph* graph = cast->owningGraph();
  std::vector<Value*> operands = cast->inputs().vec();
  if (cast->kind() == aten::to) {
    Value* none = graph->createNone()->insertBefore(cast)->output();
    operands = {cast->input(0), none, none};
    operands[device == "cpu" ? 1 : 2] = cast->input(1);
  }
  Node* call = graph->create(prim::CallFunction, operands, 1)->insertBefore(cast);
  cast->output()->replaceAllUsesWith(call->output());
  cast->destroy();
  const auto type = c10::Device(device).type();
  const std::string source = written_for(type, kDialect);
  replace_by(call, source, "cast", *definition(source, "cast"));
}

// Takes out a node without uses, and the constants that only it used.
void take_out(Node* node) {
  const std::vector<Value*> operands = node->inputs().vec();
  node->destroy();
  for (Value* operand : operands) {
    if (operand->node()->kind() == prim::Constant && !operand->hasUses()) {
      operand->node()->destroy();
    }
  }
}

// Gives the attribute itself to what takes it as it is.
void drop_unwrapping(Node* unwrap) {
  Value* attribute = unwrap->input();
  const auto uses = unwrap->output()->uses();
  for (const Use& use : uses) {
    const auto* schema = use.user->maybeSchema();
    const bool takes_none =
        schema && use.offset < schema->arguments().size() &&
        schema->arguments()[use.offset].type()->kind() == c10::TypeKind::OptionalType;
    if (takes_none || is_tensor(attribute->type())) {
      use.user->replaceInput(use.offset, attribute);
    }
  }
  if (unwrap->output()->hasUses()) {
    unwrap->removeAttribute(ops::of_autocast);
  } else {
    unwrap->destroy();
  }
}

}  // namespace

void restore(const std::shared_ptr<Graph>& graph, Graph& pattern) {
  const auto nodes = all_nodes(*graph);
  if (std::none_of(nodes.begin(), nodes.end(), is_recorded)) {
    return;
  }
  name_convolutions_of_the_author(*graph);
  name_convolutions(graph);
  const auto dissolved = dissolved_scopes(*graph);
  check_kernels(*graph, dissolved);
  const auto devices = devices_of_scopes(*graph);
  std::map<int64_t, Value*> objects;
  for (Node* node : all_nodes(*graph)) {
    if (is_unwrapping(node)) {
      continue;
    }
    if (node->hasAttribute(ops::of_autocast)) {
      const int64_t scope = node->i(ops::of_autocast);
      if (scope == ops::of_the_operator || dissolved.count(scope)) {
        node->output()->replaceAllUsesWith(node->input(0));
        take_out(node);
      } else {
        decide_at_run_time(node, devices.at(scope));
      }
    } else if (node->kind() == ops::enter) {
      if (!dissolved.count(node->i(ops::scope))) {
        const bool given = node->i(ops::dtype_given) != 0;
        const auto dtype = given ? std::optional(node->i(ops::dtype)) : std::nullopt;
        const auto cache = node->hasAttribute(ops::cache_enabled)
                               ? std::optional(node->i(ops::cache_enabled) != 0)
                               : std::nullopt;
        objects[node->i(ops::scope)] =
            enter_scope(node, pattern,
                        {node->s(ops::device_type), dtype, node->i(ops::enabled) != 0, cache,
                         node->sourceRange()});
      }
      take_out(node);
    } else if (node->kind() == ops::exit) {
      const auto entered = objects.find(node->i(ops::scope));
      if (entered != objects.end() &&
          entered->second->node()->owningBlock() == node->owningBlock()) {
        exit_scope(node, pattern, entered->second);
      } else if (!dissolved.count(node->i(ops::scope))) {
        throw diagnostic(Diagnostic::scope_across_modules, node);
      }
      take_out(node);
    }
  }
  for (Node* node : all_nodes(*graph, aten::_unwrap_optional)) {
    if (is_unwrapping(node)) {
      drop_unwrapping(node);
    }
  }
  // The dtypes of the trace are those of the state that it was made in.
  EraseShapeInformation(graph);
}

}  // namespace jit_amp
