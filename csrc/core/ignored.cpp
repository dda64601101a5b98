#include "core/ignored.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "core/forks.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using Object = c10::ivalue::Object;

struct IgnoredFunction {
  std::weak_ptr<Graph> graph;
  Ignoring how;
};

struct Method {
  c10::weak_intrusive_ptr<Object> module;
  Ignoring how;
  uint64_t number;            // no other's, ever
  const c10::ClassType* cls;  // the module's, and there as long as it is
};

// By address, with what tells that the address is still the same object's.
struct Ignored {
  Lock lock;
  std::map<const Graph*, IgnoredFunction> functions;
  std::map<const Object*, std::map<std::string, Method>> methods;
  uint64_t count = 0;
  std::atomic<uint64_t> version{0};
};

Ignored& all() {
  static auto& ignored = *new Ignored;  // outlives TorchScript's own statics
  return ignored;
}

void put(const std::shared_ptr<Graph>& function, const Ignoring& how) {
  all().functions.insert_or_assign(function.get(), IgnoredFunction{function, how});
}

// The address may have been that of a module that is gone: not while its weak pointer is here.
void put(const ObjectPtr& module, const std::string& method, const Ignoring& how) {
  all().methods[module.get()].insert_or_assign(
      method,
      Method{c10::weak_intrusive_ptr<Object>(module), how, ++all().count, module->type().get()});
}

void number_in(const Object& module, size_t& at, IgnoredIn& found) {
  const size_t here = at++;
  if (const auto known = all().methods.find(&module); known != all().methods.end()) {
    for (const auto& [name, method] : known->second) {
      found.emplace_back(here, method.number);
    }
  }
  for (const c10::IValue& slot : module.slots()) {
    if (slot.isModule()) {
      number_in(slot.toObjectRef(), at, found);
    }
  }
}

}  // namespace

void forget_ignored() {
  std::vector<std::map<std::string, Method>> gone;  // frees tensors, which may run Python
  const std::lock_guard lock(all().lock);
  auto& methods = all().methods;
  for (auto it = methods.begin(); it != methods.end();) {
    if (it->second.empty() || it->second.begin()->second.module.expired()) {
      gone.push_back(std::move(it->second));
      it = methods.erase(it);
    } else {
      ++it;
    }
  }
  auto& functions = all().functions;
  for (auto it = functions.begin(); it != functions.end();) {
    it = it->second.graph.expired() ? functions.erase(it) : std::next(it);
  }
}

void ignore(const std::shared_ptr<Graph>& function, const std::optional<Ignoring>& how) {
  forget_ignored();
  const std::lock_guard lock(all().lock);
  how ? put(function, *how) : void(all().functions.erase(function.get()));
  ++all().version;
}

void ignore(const ObjectPtr& module, const std::string& method,
            const std::optional<Ignoring>& how) {
  forget_ignored();
  const std::lock_guard lock(all().lock);
  how ? put(module, method, *how) : void(all().methods[module.get()].erase(method));
  ++all().version;
}

std::optional<Ignoring> ignored(const GraphFunction& function, const ObjectPtr& module) {
  if (ignored_version() == 0) {
    return std::nullopt;
  }
  const std::lock_guard lock(all().lock);
  if (module) {
    const auto found = all().methods.find(module.get());
    if (found == all().methods.end()) {
      return std::nullopt;
    }
    const auto method = found->second.find(function.name());
    return method == found->second.end() ? std::nullopt : std::optional(method->second.how);
  }
  const auto found = all().functions.find(function.graph().get());
  return found == all().functions.end() || found->second.graph.expired()
             ? std::nullopt
             : std::optional(found->second.how);
}

bool any_ignored(const c10::ClassType& cls, const std::string& method) {
  if (ignored_version() == 0) {
    return false;
  }
  const std::lock_guard lock(all().lock);
  return std::any_of(all().methods.begin(), all().methods.end(), [&](const auto& known) {
    const auto found = known.second.find(method);
    return found != known.second.end() && !found->second.module.expired() &&
           found->second.cls == &cls;
  });
}

void copy_ignored(const GraphFunction& from, const GraphFunction& to) {
  if (const auto how = ignored(from, nullptr)) {
    const std::lock_guard lock(all().lock);
    put(to.graph(), *how);
  }
}

void copy_ignored(const Module& from, const Module& to) {
  if (ignored_version() == 0) {
    return;
  }
  for (const auto& method : from.get_methods()) {
    const auto* function = tryToGraphFunction(method.function());
    if (const auto how = function ? ignored(*function, from._ivalue()) : std::nullopt) {
      const std::lock_guard lock(all().lock);
      put(to._ivalue(), method.name(), *how);
    }
  }
  for (const auto& child : from.named_children()) {
    copy_ignored(child.value, to.attr(child.name).toModule());
  }
}

IgnoredIn ignored_in(const ObjectPtr& module) {
  IgnoredIn found;
  if (module && ignored_version() != 0) {
    const std::lock_guard lock(all().lock);
    if (!all().methods.empty()) {
      size_t at = 0;
      number_in(*module, at, found);
    }
  }
  return found;
}

uint64_t ignored_version() { return all().version.load(); }

}  // namespace jit_amp
