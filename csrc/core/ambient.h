// ambient: this thread's autocast state in PyTorch's dispatcher, set and restored as torch.autocast
// does. Who enters or suspends it here leaves it as it was, also where an exception is thrown.
#pragma once

#include <ATen/autocast_mode.h>

#include <optional>
#include <vector>

namespace jit_amp {

// What torch.autocast(device, dtype=…, enabled=…) sets when it is entered.
struct AutocastSetting {
  c10::DeviceType device;
  bool enabled;
  c10::ScalarType dtype;
};

// Enters the settings and leaves them again, as nested `with torch.autocast(...)` blocks would
// (torch/amp/autocast_mode.py, __enter__ and __exit__): the weight cache is dropped when the
// outermost one is left.
class AutocastGuard {
 public:
  AutocastGuard(std::vector<AutocastSetting> settings, std::optional<bool> cache_enabled);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  std::vector<AutocastSetting> before_;
  bool cache_before_;
};

// The scopes that this thread has entered one by one, by operators of a graph; without
// `cache_enabled`, the cache is as it was when the graph began. Eager's weight cache
// forgets the dtype, and hands a scope of another dtype the casts of the one around it; here it is
// dropped between them.
void enter_scope(const AutocastSetting& setting, std::optional<bool> cache_enabled);
void exit_scope();

// Around a graph that enters scopes: leaves what it has entered and not left, where it has raised.
class LeaveScopesGuard {
 public:
  LeaveScopesGuard();
  ~LeaveScopesGuard();
  LeaveScopesGuard(const LeaveScopesGuard&) = delete;
  LeaveScopesGuard& operator=(const LeaveScopesGuard&) = delete;

 private:
  size_t depth_;
  bool cache_around_;  // what a graph around this one began with
};

// Turns autocast off for CPU and CUDA, dtypes and cache kept, and back. A lowered graph that runs
// under an ambient autocast holds its casts itself: the dispatcher must not add to them.
class NoAutocastGuard {
 public:
  NoAutocastGuard();
  ~NoAutocastGuard();
  NoAutocastGuard(const NoAutocastGuard&) = delete;
  NoAutocastGuard& operator=(const NoAutocastGuard&) = delete;

 private:
  bool cpu_;
  bool cuda_;
};

}  // namespace jit_amp
