#include "analysis/state.h"

#include <algorithm>
#include <unordered_set>

#include "analysis/modules.h"
#include "core/graphs.h"
#include "core/types.h"
#include "core/written.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// An attribute that the graph reads.
struct Attribute {
  Node* node;
  std::string path;
  c10::IValue value;
};

std::vector<Attribute> attributes(Graph& graph, const Module& self) {
  const Modules modules(self._ivalue());
  std::vector<Attribute> found;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != prim::GetAttr || node->owningGraph() != &graph ||
        node->output()->type()->is_module() || is_plain(node->output()->type())) {
      continue;
    }
    const auto& name = node->s(attr::name);
    if (const auto [owner, path] = modules.find(node->input()); owner) {
      found.push_back({node, path + name, owner->getAttr(name)});
    }
  }
  return found;
}

// Whether it holds what another attribute is, or holds, too.
bool overlaps(const Attribute& attribute, const std::vector<Attribute>& all) {
  const c10::IValue& value = attribute.value;
  return !value.isTensor() && !value.isObject() &&
         std::any_of(all.begin(), all.end(), [&](const Attribute& each) {
           return !each.value.is(value) && !each.value.isObject() && value.overlaps(each.value);
         });
}

// Whether a norm's statistics may move: by what it says itself, by an attribute, or, as
// nn.BatchNorm does it, by whether its module trains.
bool is_on(const Value* training, const Module& self) {
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

std::vector<std::string> state_attributes(const std::shared_ptr<Graph>& graph, const Module& self) {
  constexpr size_t kMean = 3, kVariance = 4, kTraining = 5;
  const auto containers = written_containers(graph);
  std::unordered_set<const Node*> written(containers.begin(), containers.end());
  for (const Node* node : all_nodes(*graph)) {
    if (updates_statistics(node) && is_on(node->input(kTraining), self)) {
      written.insert({node->input(kMean)->node(), node->input(kVariance)->node()});
    }
  }
  const auto all = attributes(*graph, self);
  std::vector<std::string> found;
  for (const Attribute& each : all) {
    const bool is_new = std::find(found.begin(), found.end(), each.path) == found.end();
    if (is_new && (written.count(each.node) || overlaps(each, all))) {
      found.push_back(each.path);
    }
  }
  return found;
}

}  // namespace jit_amp
