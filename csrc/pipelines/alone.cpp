#include "pipelines/alone.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "core/graphs.h"
#include "passes/source/specialize.h"
#include "pipelines/script.h"
#include "pipelines/tables.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

AbstractValue known_of_type(const c10::TypePtr& type) {
  const auto tensor = type->cast<c10::TensorType>();
  if (!tensor) {
    return {};
  }
  Fact fact;
  if (const auto dtype = tensor->scalarType()) {
    fact.dtypes = DTypes::only(*dtype);
  }
  if (const auto device = tensor->device()) {
    fact.device = device->type();
  }
  if (const auto dims = tensor->dim()) {
    fact.dims = *dims ? Dims::some : Dims::none;
  }
  return AbstractValue::of_tensor(fact);
}

std::vector<AbstractValue> inputs_by_type(const Graph& graph) {
  std::vector<AbstractValue> inputs;
  for (const Value* input : graph.inputs()) {
    inputs.push_back(known_of_type(input->type()));
  }
  return inputs;
}

const Pass& pass_named(const std::string& wanted) {
  const size_t colon = wanted.find(':');
  const std::string name = wanted.substr(0, colon);
  int row = colon == std::string::npos ? 1 : std::stoi(wanted.substr(colon + 1));
  for (const auto& [table, passes] : graph_tables()) {
    for (const Pass& pass : *passes) {
      if (pass.name == name && --row == 0) {
        return pass;
      }
    }
  }
  throw std::invalid_argument("jit_amp: no pass is called '" + wanted + "'");
}

void print(std::ostream& out, const AbstractValue& known) {
  switch (known.kind) {
    case AbstractValue::tensor: {
      const auto& fact = known.fact;
      std::string dtypes = fact.dtypes.is_any() ? "any" : "";
      for (const auto dtype :
           fact.dtypes.is_any() ? std::vector<c10::ScalarType>() : fact.dtypes.list()) {
        dtypes += (dtypes.empty() ? "" : "|") + std::string(c10::toString(dtype));
      }
      out << dtypes << " " << (fact.device ? c10::DeviceTypeName(*fact.device, true) : "?") << " "
          << (fact.dims == Dims::some   ? "some"
              : fact.dims == Dims::none ? "none"
                                        : "?");
      break;
    }
    case AbstractValue::tuple:
    case AbstractValue::list:
    case AbstractValue::dict: {
      out << (known.kind == AbstractValue::tuple  ? "tuple"
              : known.kind == AbstractValue::list ? "list"
                                                  : "dict")
          << (known.kind == AbstractValue::tuple || known.is_fixed ? "(" : " of any length (");
      for (size_t i = 0; i < known.parts.size(); ++i) {
        out << (i ? ", " : "");
        print(out, known.parts[i]);
      }
      out << ")";
      break;
    }
    default:
      out << (known.kind == AbstractValue::none    ? "None"
              : known.kind == AbstractValue::plain ? "plain"
              : known.kind == AbstractValue::never ? "never"
                                                   : "unknown");
  }
  out << (known.maybe_none ? " or None" : "");
}

}  // namespace

bool run_alone(const std::string& name, Context& context) {
  const Pass& pass = pass_named(name);
  if (pass.needs == Phase::source) {
    throw std::invalid_argument("jit_amp: `" + name + "` takes a function, not a graph");
  }
  if (pass.targets == For::exact) {
    context.target = Target::exact;
  }
  if (context.graph) {
    verify(*context.graph, pass.needs, "a test's graph");
    context.inputs = inputs_by_type(*context.graph);
    if (pass.reads == Reads::facts || pass.needs == Phase::decided) {
      context.facts = find_facts(context.graph, context.inputs);
    }
  }
  const bool changed = is_for(pass, context) && pass.run(context);
  verify(*context.graph, pass.gives, pass.name);
  return changed;
}

std::shared_ptr<Graph> flattened(GraphFunction& function, const ObjectPtr& self,
                                 const std::string& last) {
  Context context{&function, self};
  std::vector<Pass> rows;
  for (const Pass& pass : flattening()) {
    rows.push_back(pass);
    if (pass.name == last) {
      run_pipeline(rows, context);
      return context.graph;
    }
  }
  throw std::invalid_argument("jit_amp: `" + last + "` is no pass of flattening");
}

std::shared_ptr<Graph> specialized(const std::shared_ptr<Graph>& graph, const std::string& source,
                                   const std::string& name) {
  auto body = source_graph(source, name);
  specialize(body, *graph->nodes().rbegin(), fixed_lists(graph),
             [](Value* value) { return value; });
  return body;
}

std::string facts_of(const std::shared_ptr<Graph>& graph) {
  const Facts facts = find_facts(graph, inputs_by_type(*graph));
  std::ostringstream out;
  for (const Node* node : all_nodes(*graph)) {
    for (const Value* value : node->outputs()) {
      if (value->type()->kind() != c10::TypeKind::NoneType && node->kind() != prim::Constant) {
        out << node->kind().toQualString() << " ";
        print(out, facts.known(value));
        out << "\n";
      }
    }
  }
  return out.str();
}

std::string scopes_of(const std::shared_ptr<Graph>& graph, const AutocastState& entry) {
  const Scopes scopes = find_scopes(*graph, entry);
  std::ostringstream out;
  for (const Node* node : all_nodes(*graph)) {
    const auto found = scopes.state.find(node);
    if (found == scopes.state.end() || node->kind() == prim::Constant) {
      continue;
    }
    out << node->kind().toQualString();
    for (const auto device : found->second->named()) {
      const DeviceState at = found->second->at(device);
      out << " " << c10::DeviceTypeName(device, true) << "="
          << (!at.enabled ? "off"
              : at.dtype  ? c10::toString(*at.dtype)
                          : "ambient");
    }
    out << "\n";
  }
  return out.str();
}

}  // namespace jit_amp
