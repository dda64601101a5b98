#include "passes/lowering/share_casts.h"

#include <torch/csrc/jit/ir/alias_analysis.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_set>

#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// What is cast, the two targets, and the accelerator's name.
using Key = std::tuple<Value*, Value*, Value*, Value*>;

bool is_tensor_cast(const Node* node) {
  return node->kind() == ops::cast && is_tensor(node->output()->type());
}

Key key_of(Node* cast) {
  return {cast->input(0), cast->input(1), cast->input(2),
          cast->inputs().size() > 3 ? cast->input(3) : nullptr};
}

std::vector<Node*> nodes_of(Block* block) { return {block->nodes().begin(), block->nodes().end()}; }

// Makes one of equal reads of a module's attribute, `self.a.b`, at the graph's beginning; not where
// the graph assigns an attribute of that name, or calls code that may.
bool unify_attributes(Graph& graph) {
  bool changed = false;
  std::vector<Node*> reads;
  std::set<std::string> assigned;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == prim::SetAttr) {
      assigned.insert(node->s(attr::name));
    } else if (node->kind() == prim::GetAttr && node->owningGraph() == &graph) {
      reads.push_back(node);
    } else if (is_call(node) || node->kind() == prim::fork || node->kind() == ops::scoped_effect) {
      return false;
    }
  }
  std::map<std::pair<Value*, std::string>, Node*> first;
  std::unordered_set<const Node*> early{graph.param_node()};
  Node* last = nullptr;
  for (Node* read : reads) {
    const std::string& name = read->s(attr::name);
    if (!early.count(read->input()->node()) || !read->input()->type()->is_module() ||
        assigned.count(name)) {
      continue;
    }
    const auto [at, is_new] = first.emplace(std::pair{read->input(), name}, read);
    if (!is_new) {
      read->output()->replaceAllUsesWith(at->second->output());
      read->destroy();
      changed = true;
      continue;
    }
    if (last) {
      read->moveAfter(last);
      changed = true;
    } else if (read != *graph.nodes().begin()) {
      read->moveBefore(*graph.nodes().begin());
      changed = true;
    }
    early.insert(read);
    last = read;
  }
  return changed;
}

// Whether the node may change how a cast is recorded for autograd: entering or leaving no_grad, or
// code that is not seen.
bool changes_mode(const Node* node) {
  const auto inside = [](const Block* block) {
    return std::any_of(block->nodes().begin(), block->nodes().end(), changes_mode);
  };
  return node->kind() == prim::Enter || node->kind() == prim::Exit ||
         node->kind() == Symbol::aten("set_grad_enabled") || is_call(node) ||
         node->kind() == ops::scoped_effect ||
         std::any_of(node->blocks().begin(), node->blocks().end(), inside);
}

class Sharer {
 public:
  explicit Sharer(const std::shared_ptr<Graph>& graph)
      : graph_(graph), may_write_(may_write(graph->block())) {}

  bool run() {
    raise(graph_->block());
    share(graph_->block());
    return changed_;
  }

 private:
  // Whether anything may write to what is cast, or to the cast, which may be the same.
  bool is_written(const Node* cast) {
    if (may_write_ && !aliases_) {
      aliases_.emplace(graph_);
    }
    return may_write_ && aliases_->hasWriters(cast);
  }

  // Moves casts up where that makes none more: out of a loop in which the value does not change,
  // and in front of a node whose blocks cast the same. Returns what the block casts.
  std::set<Key> raise(Block* block) {
    std::set<Key> here;
    std::map<Key, Node*> within;  // by what is cast, the first node in whose blocks it is
    for (Node* node : nodes_of(block)) {
      if (is_tensor_cast(node)) {
        raise_to_first(node, here, within);
        continue;
      }
      const bool changes = changes_mode(node);
      if (changes) {
        within.clear();
      }
      for (Block* inner : node->blocks()) {
        for (const Key& key : raise(inner)) {
          within.emplace(key, node);
        }
      }
      if (node->kind() == prim::Loop && !changes) {
        for (Node* cast : nodes_of(node->blocks()[0])) {
          if (is_tensor_cast(cast) &&
              std::all_of(cast->inputs().begin(), cast->inputs().end(),
                          [&](const Value* input) { return node->isDominatedBy(input->node()); }) &&
              !is_written(cast)) {
            cast->moveBefore(node);
            changed_ = true;
            raise_to_first(cast, here, within);
          }
        }
      }
    }
    for (const auto& [key, node] : within) {
      here.insert(key);
    }
    return here;
  }

  void raise_to_first(Node* cast, std::set<Key>& here, const std::map<Key, Node*>& within) {
    const auto found = within.find(key_of(cast));
    if (here.insert(key_of(cast)).second && found != within.end() && cast->isAfter(found->second) &&
        !is_written(cast)) {
      cast->moveBefore(found->second);
      changed_ = true;
    }
  }

  // A cast becomes the earlier one that says the same, in this block or one around it.
  void share(Block* block) {
    std::vector<Key> added;
    for (Node* node : nodes_of(block)) {
      for (Block* inner : node->blocks()) {
        share(inner);
      }
      if (changes_mode(node)) {
        seen_.clear();
      }
      if (!is_tensor_cast(node)) {
        continue;
      }
      const auto [at, is_new] = seen_.emplace(key_of(node), node);
      if (is_new) {
        added.push_back(at->first);
      } else if (!is_written(at->second)) {
        node->output()->replaceAllUsesWith(at->second->output());
        node->destroy();
        changed_ = true;
      }
    }
    for (const Key& key : added) {
      seen_.erase(key);
    }
  }

  std::shared_ptr<Graph> graph_;
  bool may_write_;
  std::optional<AliasDb> aliases_;
  std::map<Key, Node*> seen_;
  bool changed_ = false;
};

}  // namespace

bool share_casts(const std::shared_ptr<torch::jit::Graph>& graph) {
  const auto nodes = all_nodes(*graph);
  if (std::none_of(nodes.begin(), nodes.end(), is_tensor_cast)) {
    return false;
  }
  const bool unified = unify_attributes(*graph);
  return Sharer(graph).run() || unified;
}

}  // namespace jit_amp
