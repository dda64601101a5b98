#include "core/ambient.h"

#include <map>
#include <memory>
#include <utility>

namespace jit_amp {
namespace {

struct EnteredScope {
  std::unique_ptr<AutocastGuard> entered;
  c10::DeviceType device;
  bool other_dtype;  // than that of the scope around
};

thread_local bool cache_at_first = true;  // as the innermost graph that enters scopes found it

std::vector<EnteredScope>& entered() {
  static thread_local std::vector<EnteredScope> scopes;
  return scopes;
}

// By device, the dtype of the casts that the cache may have: since it was empty, when the outermost
// scope was entered.
std::map<c10::DeviceType, c10::ScalarType>& cached() {
  static thread_local std::map<c10::DeviceType, c10::ScalarType> dtypes;
  return dtypes;
}

bool is_outermost() {
  const bool is = at::autocast::increment_nesting() == 1;
  at::autocast::decrement_nesting();
  return is;
}

}  // namespace

AutocastGuard::AutocastGuard(std::vector<AutocastSetting> settings,
                             std::optional<bool> cache_enabled)
    : cache_before_(at::autocast::is_autocast_cache_enabled()) {
  namespace autocast = at::autocast;
  autocast::set_autocast_cache_enabled(cache_enabled.value_or(cache_before_));
  before_.reserve(settings.size());
  for (const AutocastSetting& setting : settings) {
    before_.push_back({setting.device, autocast::is_autocast_enabled(setting.device),
                       autocast::get_autocast_dtype(setting.device)});
    autocast::set_autocast_enabled(setting.device, setting.enabled);
    autocast::set_autocast_dtype(setting.device, setting.dtype);
    autocast::increment_nesting();
  }
}

AutocastGuard::~AutocastGuard() {
  namespace autocast = at::autocast;
  for (auto setting = before_.rbegin(); setting != before_.rend(); ++setting) {
    if (autocast::decrement_nesting() == 0) {
      autocast::clear_cache();
    }
    autocast::set_autocast_enabled(setting->device, setting->enabled);
    autocast::set_autocast_dtype(setting->device, setting->dtype);
  }
  autocast::set_autocast_cache_enabled(cache_before_);
}

void enter_scope(const AutocastSetting& setting, std::optional<bool> cache_enabled) {
  namespace autocast = at::autocast;
  auto& dtypes = cached();
  if (is_outermost()) {
    dtypes.clear();
  }
  bool other_dtype = false;
  if (setting.enabled) {
    if (autocast::is_autocast_enabled(setting.device)) {
      dtypes[setting.device] = autocast::get_autocast_dtype(setting.device);
      other_dtype = dtypes[setting.device] != setting.dtype;
    }
    const auto [known, is_new] = dtypes.emplace(setting.device, setting.dtype);
    if (known->second != setting.dtype) {
      autocast::clear_cache();
      known->second = setting.dtype;
    }
  }
  entered().push_back({std::make_unique<AutocastGuard>(std::vector<AutocastSetting>{setting},
                                                       cache_enabled.value_or(cache_at_first)),
                       setting.device, other_dtype});
}

void exit_scope() {
  TORCH_CHECK(!entered().empty(), "jit_amp: a scope is left in a thread that has not entered it");
  const EnteredScope& scope = entered().back();
  const c10::DeviceType device = scope.device;
  if (scope.other_dtype) {
    at::autocast::clear_cache();
  }
  entered().pop_back();
  if (at::autocast::is_autocast_enabled(device)) {
    cached()[device] = at::autocast::get_autocast_dtype(device);
  }
}

LeaveScopesGuard::LeaveScopesGuard() : depth_(entered().size()), cache_around_(cache_at_first) {
  cache_at_first = at::autocast::is_autocast_cache_enabled();
}

LeaveScopesGuard::~LeaveScopesGuard() {
  while (entered().size() > depth_) {
    exit_scope();
  }
  cache_at_first = cache_around_;
}

// Not by c10's ExcludeDispatchKeyGuard: what it brings back, if code inside leaves autocast of
// another device on, is not the same in every release.
NoAutocastGuard::NoAutocastGuard()
    : cpu_(at::autocast::is_autocast_enabled(at::kCPU)),
      cuda_(at::autocast::is_autocast_enabled(at::kCUDA)) {
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_enabled(at::kCUDA, false);
}

NoAutocastGuard::~NoAutocastGuard() {
  at::autocast::set_autocast_enabled(at::kCPU, cpu_);
  at::autocast::set_autocast_enabled(at::kCUDA, cuda_);
}

}  // namespace jit_amp
