// thresholds: from where on something is worth it, as constants; the table is thresholds.inc.
#pragma once

#include <cstdint>

namespace jit_amp {

#define THRESHOLD(name, value, of, why) inline constexpr int64_t name = value;
#include "analysis/thresholds.inc"
#undef THRESHOLD

}  // namespace jit_amp
