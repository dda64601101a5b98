#include "runtime/ignore.h"

#include <atomic>
#include <map>
#include <mutex>

namespace jit_amp {
namespace {

using namespace torch::jit;
using Pattern = std::shared_ptr<Graph>;

// By address, with what tells that the address is still the same object's.
struct Ignored {
  std::mutex mutex;
  std::map<const Graph*, std::pair<std::weak_ptr<Graph>, Pattern>> functions;
  std::map<std::pair<const c10::ivalue::Object*, std::string>,
           std::pair<c10::weak_intrusive_ptr<c10::ivalue::Object>, Pattern>>
      methods;
  std::atomic<uint64_t> version{0};
};

Ignored& all() {
  static auto& ignored = *new Ignored;  // outlives TorchScript's own statics
  return ignored;
}

template <typename Map>
void forget_dead(Map& map) {
  for (auto it = map.begin(); it != map.end();) {
    it = it->second.first.expired() ? map.erase(it) : std::next(it);
  }
}

}  // namespace

void ignore(const std::shared_ptr<Graph>& function, const Pattern& pattern, bool ignored) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  forget_dead(all().functions);
  all().functions.erase(function.get());
  if (ignored) {
    all().functions.try_emplace(function.get(), function, pattern);
  }
  ++all().version;
}

void ignore(const ObjectPtr& module, const std::string& method, const Pattern& pattern,
            bool ignored) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  forget_dead(all().methods);
  const std::pair key(static_cast<const c10::ivalue::Object*>(module.get()), method);
  all().methods.erase(key);
  if (ignored) {
    all().methods.try_emplace(key, c10::weak_intrusive_ptr<c10::ivalue::Object>(module), pattern);
  }
  ++all().version;
}

Pattern ignored(const GraphFunction& function, const ObjectPtr& module) {
  if (ignored_version() == 0) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(all().mutex);
  if (module) {
    const auto found = all().methods.find({module.get(), function.name()});
    return found == all().methods.end() || found->second.first.expired() ? nullptr
                                                                         : found->second.second;
  }
  const auto found = all().functions.find(function.graph().get());
  return found == all().functions.end() || found->second.first.expired() ? nullptr
                                                                         : found->second.second;
}

uint64_t ignored_version() { return all().version.load(); }

}  // namespace jit_amp
