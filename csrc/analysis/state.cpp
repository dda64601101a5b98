#include "analysis/state.h"

#include <algorithm>

#include "analysis/modules.h"
#include "core/graphs.h"
#include "core/sharing.h"
#include "core/types.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// An attribute that a graph reads.
struct Attribute {
  const Value* read;
  std::string path;
  c10::IValue value;
  bool is_kept = false;
};

std::vector<Attribute> attributes(const FlatMethod& method) {
  Modules modules(method.self._ivalue());
  std::vector<Attribute> found;
  for (Node* node : all_nodes(*method.graph)) {
    if (node->kind() == prim::fork) {
      modules.enter(node);
    }
    if (node->kind() != prim::GetAttr || node->output()->type()->is_module() ||
        is_plain(node->output()->type())) {
      continue;
    }
    const auto& name = node->s(attr::name);
    if (const auto [owner, path] = modules.find(node->input()); owner) {
      found.push_back({node->output(), method.path + path + name, owner->getAttr(name)});
    }
  }
  return found;
}

// Whether a norm's statistics may move: by what it says itself, by an attribute, or, as
// nn.BatchNorm does it, by whether its module trains.
bool updates(const Node* norm, const Module& self) {
  constexpr size_t kTraining = 5;
  const Value* training = norm->input(kTraining);
  if (const auto known = constant_as<bool>(training)) {
    return *known;
  }
  const Node* node = training->node();
  if (node->kind() == prim::GetAttr) {
    const auto [owner, path] = Modules(self._ivalue()).find(node->input());
    return !owner || owner->getAttr(node->s(attr::name)).toBool();
  }
  for (const Module& each : self.modules()) {
    if (each.hasattr("training") && each.is_training()) {
      return true;
    }
  }
  return false;
}

// Whether one of them is, or holds, what the other is or holds, and they are not the same.
bool overlap(const Attribute& a, const Attribute& b) {
  return !a.value.is(b.value) && !a.value.isObject() && !b.value.isObject() &&
         a.value.overlaps(b.value);
}

}  // namespace

std::vector<std::string> state_attributes(const std::vector<FlatMethod>& methods) {
  Sharing sharing;
  Sharing seen;  // as PyTorch's freezing does
  std::vector<Attribute> all;
  bool has_tasks = false;
  for (const FlatMethod& method : methods) {
    has_tasks |= contains(*method.graph, prim::fork);
    sharing.see(*method.graph, [&](const Node* norm) { return updates(norm, method.self); });
    seen.see(*method.graph, [](const Node*) { return false; });
    for (const Attribute& each : attributes(method)) {
      sharing.holds(each.read, each.value);
      seen.holds(each.read, each.value);
      all.push_back(each);
    }
  }
  std::vector<size_t> ahead;
  const auto keep = [&](size_t i) {
    if (!all[i].is_kept) {
      all[i].is_kept = true;
      ahead.push_back(i);
    }
  };
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_shared =
        !all[i].value.isTensor() && std::any_of(all.begin(), all.end(), [&](const Attribute& each) {
          return overlap(all[i], each);
        });
    const bool is_seen = all[i].value.isTensor() && !has_tasks && seen.is_written(all[i].read);
    if (is_shared || (!is_seen && sharing.is_written(all[i].read))) {
      keep(i);
    }
  }
  while (!ahead.empty()) {  // and what has any of it
    const size_t kept = ahead.back();
    ahead.pop_back();
    for (size_t i = 0; i < all.size(); ++i) {
      if (overlap(all[kept], all[i])) {
        keep(i);
      }
    }
  }
  std::vector<std::string> paths;
  for (const Attribute& each : all) {
    if (each.is_kept && std::find(paths.begin(), paths.end(), each.path) == paths.end()) {
      paths.push_back(each.path);
    }
  }
  return paths;
}

}  // namespace jit_amp
