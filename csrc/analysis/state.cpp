#include "analysis/state.h"

#include <torch/csrc/jit/ir/alias_analysis.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
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
  const Modules modules(method.self._ivalue(), *method.graph);
  for (const Node* node : all_nodes(*method.graph, prim::GetAttr)) {
    if (node->output()->type()->is_module() || is_plain(node->output()->type())) {
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

// A condition that constants and attributes alone decide.
std::optional<bool> decided(const Value* value, const Modules& modules) {
  const Node* node = value->node();
  if (const auto known = constant_as<bool>(value)) {
    return known;
  }
  if (node->kind() == prim::GetAttr) {
    const auto [owner, path] = modules.find(node->input());
    return owner ? std::optional(owner->getAttr(node->s(attr::name)).toBool()) : std::nullopt;
  }
  if (node->kind() == aten::__not__) {
    const auto known = decided(node->input(), modules);
    return known ? std::optional(!*known) : std::nullopt;
  }
  if (node->kind() == prim::If) {
    const auto condition = decided(node->input(), modules);
    const auto& blocks = node->blocks();
    const auto first = decided(blocks[0]->outputs()[value->offset()], modules);
    const auto second = decided(blocks[1]->outputs()[value->offset()], modules);
    return condition ? (*condition ? first : second) : first == second ? first : std::nullopt;
  }
  return std::nullopt;
}

// The attributes that PyTorch's freezing sees written to.
std::set<std::string> seen_by_pytorch(const FlatMethod& method) {
  const AliasDb aliases(method.graph, /*isFrozen=*/true);
  const Modules modules(method.self._ivalue(), *method.graph);
  std::set<std::string> found;
  for (const Node* node : all_nodes(*method.graph, prim::GetAttr)) {
    if (node->owningGraph() == method.graph.get() && aliases.hasOutputWriters(node)) {
      const auto [owner, path] = modules.find(node->input());
      found.insert(method.path + path + node->s(attr::name));
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> state_attributes(const std::vector<FlatMethod>& methods) {
  constexpr size_t kTraining = 5;
  Sharing sharing;
  Attributes all;
  bool has_tasks = false;
  for (const FlatMethod& method : methods) {
    has_tasks |= contains(*method.graph, prim::fork);
    const Modules modules(method.self._ivalue(), *method.graph);
    sharing.see(*method.graph, [&](const Node* norm) {
      return decided(norm->input(kTraining), modules) != false;
    });
    find_attributes(method, all);
  }
  for (const auto& [path, each] : all) {
    sharing.holds(each.read, each.value);
  }
  std::optional<std::set<std::string>> seen;
  const auto is_seen = [&](const std::string& path) {
    if (!seen) {
      seen.emplace();
      for (const FlatMethod& method : methods) {
        seen->merge(seen_by_pytorch(method));
      }
    }
    return seen->count(path) != 0;
  };
  const Overlaps overlaps(all);
  std::vector<Attribute*> ahead;
  for (auto& [path, each] : all) {
    const bool is_shared =
        !each.value.isTensor() && !each.value.isObject() && !overlaps.with(each).empty();
    const bool may_be_seen = each.value.isTensor() && !has_tasks;
    if (is_shared || (sharing.is_written(each.read) && !(may_be_seen && is_seen(path)))) {
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
