// reach: what freezing does with an operator in a scope, for the report of
// `python -m jit_amp.policy --reach`. It asks the plan, and changes nothing.
#pragma once

#include <string>

namespace jit_amp {

// "cast", "promote", "untouched", "decomposed", or "refused: " and why. `overload`: its full name.
// Throws std::invalid_argument for one that TorchScript does not have.
std::string reach(const std::string& overload, const std::string& device);

}  // namespace jit_amp
