#include "core/ambient.h"

#include <map>
#include <memory>
#include <utility>

namespace jit_amp {
namespace {

struct Scope {
  std::unique_ptr<Entered> entered;
  bool other_dtype;  // than that of a scope around or before it
};

thread_local bool cache_at_first = true;  // as the innermost graph that enters scopes found it

std::vector<Scope>& entered() {
  static thread_local std::vector<Scope> scopes;
  return scopes;
}

// Whether the cache may have casts to another dtype: of the scope around, or of one before it.
bool is_of_another_dtype(const Setting& setting) {
  static thread_local std::map<c10::DeviceType, c10::ScalarType> last;
  auto [known, is_new] = last.emplace(setting.device, setting.dtype);
  const auto before = std::exchange(known->second, setting.dtype);
  return at::autocast::is_autocast_enabled(setting.device)
             ? setting.dtype != at::autocast::get_autocast_dtype(setting.device)
             : !is_new && setting.dtype != before;
}

}  // namespace

Entered::Entered(std::vector<Setting> settings, std::optional<bool> cache_enabled)
    : cache_before_(at::autocast::is_autocast_cache_enabled()) {
  namespace autocast = at::autocast;
  autocast::set_autocast_cache_enabled(cache_enabled.value_or(cache_before_));
  before_.reserve(settings.size());
  for (const Setting& setting : settings) {
    before_.push_back({setting.device, autocast::is_autocast_enabled(setting.device),
                       autocast::get_autocast_dtype(setting.device)});
    autocast::set_autocast_enabled(setting.device, setting.enabled);
    autocast::set_autocast_dtype(setting.device, setting.dtype);
    autocast::increment_nesting();
  }
}

Entered::~Entered() {
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

void enter_scope(const Setting& setting, std::optional<bool> cache_enabled) {
  const bool other_dtype = setting.enabled && is_of_another_dtype(setting);
  entered().push_back({std::make_unique<Entered>(std::vector<Setting>{setting},
                                                 cache_enabled.value_or(cache_at_first)),
                       other_dtype});
  if (other_dtype) {
    at::autocast::clear_cache();
  }
}

void exit_scope() {
  if (entered().back().other_dtype) {
    at::autocast::clear_cache();
  }
  entered().pop_back();
}

Unwinding::Unwinding() : depth_(entered().size()), cache_around_(cache_at_first) {
  cache_at_first = at::autocast::is_autocast_cache_enabled();
}

Unwinding::~Unwinding() {
  while (entered().size() > depth_) {
    exit_scope();
  }
  cache_at_first = cache_around_;
}

Suspended::Suspended()
    : cpu_(at::autocast::is_autocast_enabled(at::kCPU)),
      cuda_(at::autocast::is_autocast_enabled(at::kCUDA)) {
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_enabled(at::kCUDA, false);
}

Suspended::~Suspended() {
  at::autocast::set_autocast_enabled(at::kCPU, cpu_);
  at::autocast::set_autocast_enabled(at::kCUDA, cuda_);
}

}  // namespace jit_amp
