#include "core/ignored.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "core/forks.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
// By address, with what tells that the address is still the same object's.
struct Ignored {
  Lock lock;
  std::map<const Graph*, std::pair<std::weak_ptr<Graph>, Ignoring>> functions;
  std::map<std::pair<const c10::ivalue::Object*, std::string>,
           std::pair<c10::weak_intrusive_ptr<c10::ivalue::Object>, Ignoring>>
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

void ignore(const std::shared_ptr<Graph>& function, const std::optional<Ignoring>& how) {
  const std::lock_guard lock(all().lock);
  forget_dead(all().functions);
  all().functions.erase(function.get());
  if (how) {
    all().functions.try_emplace(function.get(), function, *how);
  }
  ++all().version;
}

void ignore(const ObjectPtr& module, const std::string& method,
            const std::optional<Ignoring>& how) {
  const std::lock_guard lock(all().lock);
  forget_dead(all().methods);
  const std::pair key(static_cast<const c10::ivalue::Object*>(module.get()), method);
  all().methods.erase(key);
  if (how) {
    all().methods.try_emplace(key, c10::weak_intrusive_ptr<c10::ivalue::Object>(module), *how);
  }
  ++all().version;
}

std::optional<Ignoring> ignored(const GraphFunction& function, const ObjectPtr& module) {
  if (ignored_version() == 0) {
    return std::nullopt;
  }
  const std::lock_guard lock(all().lock);
  if (module) {
    const auto found = all().methods.find({module.get(), function.name()});
    return found == all().methods.end() || found->second.first.expired()
               ? std::nullopt
               : std::optional(found->second.second);
  }
  const auto found = all().functions.find(function.graph().get());
  return found == all().functions.end() || found->second.first.expired()
             ? std::nullopt
             : std::optional(found->second.second);
}

bool any_ignored(const c10::ClassType& cls, const std::string& method) {
  if (ignored_version() == 0) {
    return false;
  }
  const std::lock_guard lock(all().lock);
  return std::any_of(all().methods.begin(), all().methods.end(), [&](const auto& known) {
    const auto module = known.second.first.lock();
    return module && known.first.second == method && module->type().get() == &cls;
  });
}

void copy_ignored(const GraphFunction& from, const GraphFunction& to) {
  if (const auto how = ignored(from, nullptr)) {
    const std::lock_guard lock(all().lock);
    all().functions.try_emplace(to.graph().get(), to.graph(), *how);
  }
}

void copy_ignored(const Module& from, const Module& to) {
  if (ignored_version() == 0) {
    return;
  }
  for (const Method& method : from.get_methods()) {
    const auto* function = tryToGraphFunction(method.function());
    if (const auto how = function ? ignored(*function, from._ivalue()) : std::nullopt) {
      const std::lock_guard lock(all().lock);
      all().methods.try_emplace({to._ivalue().get(), method.name()},
                                c10::weak_intrusive_ptr<c10::ivalue::Object>(to._ivalue()), *how);
    }
  }
  for (const auto& child : from.named_children()) {
    copy_ignored(child.value, to.attr(child.name).toModule());
  }
}

uint64_t ignored_version() { return all().version.load(); }

}  // namespace jit_amp
