#include "passes/freeze/declare_interfaces.h"

namespace jit_amp {

bool declare_interfaces(const torch::jit::Module& module) {
  bool changed = false;
  for (const torch::jit::Module& each : module.modules()) {
    const auto type = each.type();
    for (size_t i = 0; i < type->numAttributes(); ++i) {
      const auto& value = each._ivalue()->getSlot(i);
      if (value.isModule() && type->getAttribute(i)->cast<c10::InterfaceType>()) {
        type->unsafeChangeAttributeType(type->getAttributeName(i), value.type());
        changed = true;
      }
    }
  }
  return changed;
}

}  // namespace jit_amp
