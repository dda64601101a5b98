#include "passes/reach.h"

#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <memory>

#include "passes/decompose.h"
#include "passes/observed.h"
#include "passes/policy.h"

namespace jit_amp {
namespace {

std::shared_ptr<torch::jit::Operator> find(const std::string& overload) {
  const std::string name = overload.substr(0, overload.find('.'));
  for (const auto& op : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name))) {
    if (toString(op->schema().operator_name()) == overload) {
      return op;
    }
  }
  throw std::invalid_argument("jit_amp: no operator is called '" + overload + "'");
}

// Whether a list of tensors is all that is promoted.
bool takes_one_list(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return std::count_if(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
           return argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
         }) == 1;
}

}  // namespace

std::string reach(const std::string& overload, const std::string& device) {
  const auto op = find(overload);
  const c10::FunctionSchema& schema = op->schema();
  const auto type = c10::Device(device).type();
  switch (policy_of(schema, type)) {
    case Policy::untouched:
    case Policy::promote_parts:
      return "untouched";
    case Policy::lower:
    case Policy::fp32:
    case Policy::fp32_opt_dtype:
      return "cast";
    case Policy::promote:
      return "promote";
    case Policy::banned:
      return "refused: autocast refuses it, in eager too";
    case Policy::promote_inside:
      if (takes_one_list(schema)) {
        return "promote";
      }
      break;
    default:
      break;
  }
  if (is_decomposed(schema, type)) {
    return "decomposed";
  }
  if (observed(schema.operator_name())) {
    return "refused: it calls operators that autocast casts";
  }
  return "refused: no call of it was observed";
}

}  // namespace jit_amp
