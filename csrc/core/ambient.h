// The dispatcher's autocast state, set and restored as torch.autocast does.
#pragma once

#include <ATen/autocast_mode.h>

#include <optional>
#include <vector>

namespace jit_amp {

// What torch.autocast(device, dtype=…, enabled=…) sets when it is entered.
struct Setting {
  c10::DeviceType device;
  bool enabled;
  c10::ScalarType dtype;
};

// Enters the settings and leaves them again, as nested `with torch.autocast(...)` blocks would
// (torch/amp/autocast_mode.py, __enter__ and __exit__): the weight cache is dropped when the
// outermost one is left.
class Entered {
 public:
  Entered(std::vector<Setting> settings, std::optional<bool> cache_enabled);
  ~Entered();
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  std::vector<Setting> before_;
  bool cache_before_;
};

// Turns autocast off for CPU and CUDA, dtypes and cache kept, and back. A lowered graph that runs
// under an ambient autocast holds its casts itself: the dispatcher must not add to them.
class Suspended {
 public:
  Suspended();
  ~Suspended();
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  bool cpu_;
  bool cuda_;
};

}  // namespace jit_amp
