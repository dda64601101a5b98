#include "analysis/reach.h"

#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <stdexcept>

#include "analysis/defined.h"
#include "analysis/plan.h"
#include "analysis/traits.h"

namespace jit_amp {

std::string reach(const std::string& overload, const std::string& device) {
  const auto op = torch::jit::findOperatorFor(torch::jit::parseName(overload));
  if (!op) {
    throw std::invalid_argument("jit_amp: no operator is called '" + overload + "'");
  }
  const c10::FunctionSchema& schema = op->schema();
  const auto type = c10::Device(device).type();
  const Policy policy = policy_of(schema, type);
  switch (action_of(policy, type, Destination::stock)) {
    case Action::none:
      return "untouched";
    case Action::to_scope:
    case Action::to_float32:
    case Action::set_dtype:
      return "cast";
    case Action::promote:
      return "promote";
    case Action::dispatch:
      break;
  }
  if (policy == Policy::banned) {
    return "refused: autocast refuses it, in eager too";
  }
  if (is_defined(schema, type)) {
    return "decomposed";
  }
  if (observed(schema.operator_name())) {
    return "refused: it calls operators that autocast casts";
  }
  return "refused: no call of it was observed";
}

}  // namespace jit_amp
