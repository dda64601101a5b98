#include "core/types.h"

#include <algorithm>
#include <regex>
#include <string>
#include <unordered_set>

namespace jit_amp {

using c10::TypeKind;

bool is_tensor(const c10::TypePtr& type) { return type->kind() == TypeKind::TensorType; }

bool is_tensor_list(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::ListType::ofTensors());
}

bool is_of_tensors(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::OptionalType::ofTensor()) || is_tensor_list(type) ||
         type->isSubtypeOf(*c10::ListType::ofOptionalTensors());
}

bool gives_new_tensors(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return !schema.is_mutable() &&
         std::none_of(results.begin(), results.end(),
                      [](const c10::Argument& each) { return each.alias_info(); });
}

bool mentions_tensors(const c10::TypePtr& type) {
  const auto inside = type->containedTypes();
  return is_tensor(type) || std::any_of(inside.begin(), inside.end(), mentions_tensors);
}

bool may_hold_tensors(const c10::TypePtr& type) {
  const auto inside = type->containedTypes();
  return is_tensor(type) || type->kind() == TypeKind::AnyType ||
         type->kind() == TypeKind::ClassType || type->kind() == TypeKind::InterfaceType ||
         std::any_of(inside.begin(), inside.end(), may_hold_tensors);
}

bool is_plain(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::NumberType::get()) || type->kind() == TypeKind::BoolType ||
         type->kind() == TypeKind::StringType || type->kind() == TypeKind::NoneType ||
         type->kind() == TypeKind::DeviceObjType;
}

bool is_autocast_class(const c10::TypePtr& type) {
  auto cls = type->cast<c10::ClassType>();
  if (!cls || !cls->name()) {
    return false;
  }
  static const std::regex mangling("\\.___torch_mangle_[0-9]+");
  static const std::unordered_set<std::string> names{
      "__torch__.torch.amp.autocast_mode.autocast", "__torch__.torch.autocast_mode.autocast",
      "__torch__.torch.cuda.amp.autocast_mode.autocast",
      "__torch__.torch.cpu.amp.autocast_mode.autocast"};
  return names.count(std::regex_replace(cls->name()->qualifiedName(), mangling, "")) != 0;
}

}  // namespace jit_amp
