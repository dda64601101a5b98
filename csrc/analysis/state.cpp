#include "analysis/state.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include "analysis/modules.h"
#include "core/graphs.h"
#include "core/sharing.h"
#include "core/types.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// An attribute that a graph reads.
struct Attribute {
  const Value* read;  // the first
  c10::IValue value;
  bool is_kept = false;
};

using Attributes = std::map<std::string, Attribute>;  // by path

void find_attributes(const FlatMethod& method, Attributes& found) {
  Modules modules(method.self._ivalue());
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
      found.emplace(method.path + path + name, Attribute{node->output(), owner->getAttr(name)});
    }
  }
}

// Attributes that are, or hold, one thing, as PyTorch's freezing asks it.
class Overlaps {
 public:
  explicit Overlaps(Attributes& all) {
    for (auto& [path, attribute] : all) {
      if (may_hold_tensors(attribute.read->type()) && !attribute.value.isObject()) {
        for (const c10::IValue& inside : values_in(attribute)) {
          of_[inside].push_back(&attribute);
        }
      }
    }
  }

  // Those that are not the same, but have something in common.
  std::vector<Attribute*> with(const Attribute& attribute) const {
    std::vector<Attribute*> found;
    for (const c10::IValue& inside : values_in(attribute)) {
      if (const auto others = of_.find(inside); others != of_.end()) {
        std::copy_if(others->second.begin(), others->second.end(), std::back_inserter(found),
                     [&](const Attribute* each) { return !each->value.is(attribute.value); });
      }
    }
    return found;
  }

 private:
  static c10::IValue::HashAliasedIValues values_in(const Attribute& attribute) {
    c10::IValue::HashAliasedIValues inside;
    attribute.value.getSubValues(inside);
    return inside;
  }

  std::unordered_map<c10::IValue, std::vector<Attribute*>, c10::IValue::HashAliasedIValue,
                     c10::IValue::CompAliasedIValues>
      of_;
};

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

}  // namespace

std::vector<std::string> state_attributes(const std::vector<FlatMethod>& methods) {
  Sharing sharing;
  Sharing seen;  // as PyTorch's freezing does
  Attributes all;
  bool has_tasks = false;
  for (const FlatMethod& method : methods) {
    has_tasks |= contains(*method.graph, prim::fork);
    sharing.see(*method.graph, [&](const Node* norm) { return updates(norm, method.self); });
    seen.see(*method.graph, [](const Node*) { return false; });
    find_attributes(method, all);
  }
  for (const auto& [path, each] : all) {
    sharing.holds(each.read, each.value);
    seen.holds(each.read, each.value);
  }
  const Overlaps overlaps(all);
  std::vector<Attribute*> ahead;
  for (auto& [path, each] : all) {
    const bool is_seen = each.value.isTensor() && !has_tasks && seen.is_written(each.read);
    const bool is_shared =
        !each.value.isTensor() && !each.value.isObject() && !overlaps.with(each).empty();
    if (is_shared || (!is_seen && sharing.is_written(each.read))) {
      ahead.push_back(&each);
    }
  }
  while (!ahead.empty()) {  // and what has any of it
    Attribute& kept = *ahead.back();
    ahead.pop_back();
    if (!kept.is_kept) {
      kept.is_kept = true;
      const auto others = overlaps.with(kept);
      ahead.insert(ahead.end(), others.begin(), others.end());
    }
  }
  std::vector<std::string> paths;
  for (const auto& [path, each] : all) {
    if (each.is_kept) {
      paths.push_back(path);
    }
  }
  return paths;
}

}  // namespace jit_amp
