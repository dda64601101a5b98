// defined: whether a composite operator has a definition, and which.
//
// A composite has no autocast kernel of its own, but what it calls has. core/definitions.h says, in
// TorchScript, what composites do: on which devices each source holds stands here, as does what the
// definitions may ask of this machine and of the installed PyTorch.
//
// An analysis: it looks at one operator and changes nothing.
#pragma once

#include <ATen/core/function_schema.h>

#include <optional>
#include <string>

#include "analysis/scopes.h"

namespace jit_amp {

// A function of a source in TorchScript, of the operator's signature.
struct Defined {
  std::string source;
  std::string name;
};

// What the operator does in the state; nothing, where it has no definition.
std::optional<Defined> defined(const c10::FunctionSchema& op, const AutocastState& state);

// Whether there is one in a scope for the device.
bool is_defined(const c10::FunctionSchema& op, c10::DeviceType device);

}  // namespace jit_amp
