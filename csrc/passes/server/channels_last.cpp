#include "passes/server/channels_last.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "analysis/traits.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether the tensor has the same strides in every layout: if it is part of a sum, the layout of
// the result is that of the other part.
bool has_no_layout(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return tensor.dim() <= 4 &&
         std::count_if(sizes.begin(), sizes.end(), [](int64_t size) { return size != 1; }) <= 1;
}

// A list that is made to be concatenated.
bool is_list_for_cat(const Node* node) {
  return node->kind() == prim::ListConstruct &&
         std::all_of(node->output()->uses().begin(), node->output()->uses().end(),
                     [](const Use& use) { return use.user->kind() == aten::cat; });
}

// Whether the layout of the result is said, or may be.
bool names_layout(const Node* node) {
  const FunctionSchema* schema = node->maybeSchema();
  const auto number = schema ? schema->argumentIndexWithName("memory_format") : std::nullopt;
  return number && !node->input(*number)->mustBeNone();
}

// Of tensors in different layouts, the result of cat has the default one. Of a sum it depends on
// sizes.
bool makes_default_of_several(const Node* node) {
  return node->kind() == aten::cat || is_list_for_cat(node);
}

bool keeps_layout(const Node* node) {
  return (traits_in_place_or_not(node).strides == Strides::kept && !names_layout(node)) ||
         is_list_for_cat(node);
}

// The mean over height and width has no layout any more.
bool is_global_mean(const Node* node) {
  if (node->kind() != aten::mean || node->inputs().size() < 2) {
    return false;
  }
  const auto dims = toIValue(node->input(1));
  if (!dims || !dims->isIntList()) {
    return false;
  }
  std::vector<int64_t> over = dims->toIntVector();
  std::sort(over.begin(), over.end());
  return over == std::vector<int64_t>{2, 3} || over == std::vector<int64_t>{-2, -1};
}

// Asks for something that is the same in every layout.
bool asks_only(const Node* node) { return traits_of(node).group == Group::question; }

// A convolution over two dimensions whose weight is a constant that only such take, in a reduced
// dtype and the default layout, on a CPU.
bool can_compute_so(const Node* node) {
  if (node->kind() != aten::conv2d) {
    return false;
  }
  const at::Tensor* weight = tensor_in(node->input(1)->node());
  const auto& uses = node->input(1)->uses();
  return weight && weight->dim() == 4 && weight->device().is_cpu() &&
         weight->layout() == at::kStrided && weight->scalar_type() == at::kBFloat16 &&
         weight->numel() && weight->suggest_memory_format() == at::MemoryFormat::Contiguous &&
         std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
           return use.user->kind() == aten::conv2d && use.offset == 1 &&
                  use.user->owningBlock() == node->owningBlock();
         });
}

// The node of `block` that the other is, or is inside of.
Node* in_block(Node* node, const Block* block) {
  while (node->owningBlock() != block) {
    node = node->owningBlock()->owningNode();
  }
  return node;
}

// Convolutions whose inputs have the layout that the user gave, in program order.
using Entries = std::vector<Node*>;

class Chains {
 public:
  explicit Chains(Graph& graph) : graph_(graph), nodes_(all_nodes(graph)) { visit(graph.block()); }

  bool empty() const { return convolutions_.empty(); }

  // Finds where results leave; returns false where a view of one would be lost.
  bool find_exits(const AliasDb& aliases) {
    for (size_t i = 0; i < order_.size(); ++i) {
      Value* value = order_[i];
      for (const Use& use : value->uses()) {
        if (stays(use)) {
          continue;
        }
        const bool may_alias = use.user->owningBlock() != value->node()->owningBlock() ||
                               use.user->outputs().empty() ||  // the end, or kept in what is there
                               aliases.writesToAlias(use.user, {value}) ||
                               aliases.mayContainAlias(use.user->outputs(), {value});
        (may_alias ? views_ : copies_)[i].push_back(use);
      }
    }
    return std::all_of(views_.begin(), views_.end(), [&](const auto& each) {
      return can_leave(each.first, each.second, aliases);
    });
  }

  void rewrite() {
    for (Node* node : convolutions_) {
      Node* weight = node->input(1)->node();
      const at::Tensor held = weight->t(attr::value);
      if (held.suggest_memory_format() != at::MemoryFormat::ChannelsLast) {  // once
        weight->t_(attr::value, held.clone(at::MemoryFormat::ChannelsLast));
        weight->output()->inferTypeFrom(weight->t(attr::value));
      }
    }
    for (const auto& [i, uses] : copies_) {
      for (const Use& use : uses) {
        use.user->replaceInput(use.offset, as_eagers(order_[i], use.user));
      }
    }
    for (const auto& [i, uses] : views_) {
      Value* made = as_eagers(order_[i], first(uses, order_[i]->node()->owningBlock()));
      for (const Use& use : uses) {
        use.user->replaceInput(use.offset, made);
      }
    }
  }

 private:
  void visit(Block* block) {
    for (Node* node : block->nodes()) {
      if (node->kind() == prim::If) {
        visit_branches(node);
        continue;
      }
      const bool computes_so = can_compute_so(node) && (block == graph_.block() || is_within(node));
      if (!computes_so && !(keeps_layout(node) && has_no_other(node))) {
        continue;
      }
      keeps_.insert(node);
      if (computes_so) {
        convolutions_.push_back(node);
        const bool is_entry = !values_.count(node->input(0));
        hold(node->output(), is_entry ? Entries{node} : values_.at(node->input(0)));
      } else if (auto entries = entries_of(node->inputs(), makes_default_of_several(node))) {
        for (Value* output : node->outputs()) {
          hold(output, *entries);
        }
      } else {
        keeps_.erase(node);
      }
    }
  }

  // A result is of a chain if what each branch that ends gives is.
  void visit_branches(Node* node) {
    for (Block* branch : node->blocks()) {
      visit(branch);
    }
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      std::vector<Value*> given;
      for (Block* branch : node->blocks()) {
        if (branch->outputs()[i]->node()->kind() != prim::Uninitialized) {
          given.push_back(branch->outputs()[i]);
        }
      }
      const bool all = std::all_of(given.begin(), given.end(),
                                   [&](const Value* value) { return values_.count(value); });
      if (const auto entries = all ? entries_of(given, false) : std::nullopt) {
        hold(node->outputs()[i], *entries);
      }
    }
  }

  void hold(Value* value, const Entries& entries) {
    if (!entries.empty()) {
      values_[value] = entries;
      order_.push_back(value);
    }
  }

  // Whether a convolution in a branch takes what is of a chain: it cannot begin one, as what its
  // input was like could not be asked outside.
  bool is_within(const Node* convolution) const {
    return values_.count(convolution->input(0)) && convolution->input(1)->uses().size() == 1;
  }

  bool stays(const Use& use) const {
    if (use.user->kind() == prim::Return && use.user->owningBlock() != graph_.block()) {
      const Node* owner = use.user->owningBlock()->owningNode();
      return owner->kind() == prim::If && values_.count(owner->outputs()[use.offset]);
    }
    return asks_only(use.user) || keeps_.count(use.user) ||
           (use.user->owningBlock() == graph_.block() && is_global_mean(use.user));
  }

  // Whether all tensors that the node takes are of the chains, or constants without a layout: that
  // of anything else is not known, and would be part of the result's.
  bool has_no_other(const Node* node) const {
    return std::all_of(node->inputs().begin(), node->inputs().end(), [&](const Value* input) {
      const at::Tensor* constant = tensor_in(input->node());
      return values_.count(input) || !may_hold_tensors(input->type()) ||
             (constant && has_no_layout(*constant)) || input->mustBeNone();
    });
  }

  // Where the chains of the values began; none where eager may have given the values different
  // layouts, unless that has a known result.
  std::optional<Entries> entries_of(at::ArrayRef<Value*> values, bool of_any_layouts) const {
    std::optional<Entries> entries;
    for (const Value* value : values) {
      const auto known = values_.find(value);
      if (known == values_.end()) {
        continue;
      }
      const Entries& more = known->second;
      if (!entries) {
        entries = more;
      } else if (of_any_layouts) {
        std::copy_if(more.begin(), more.end(), std::back_inserter(*entries), [&](Node* entry) {
          return std::find(entries->begin(), entries->end(), entry) == entries->end();
        });
      } else if (!std::is_permutation(entries->begin(), entries->end(), more.begin(), more.end())) {
        return std::nullopt;
      }
    }
    return entries ? entries : Entries();
  }

  static Node* first(const std::vector<Use>& uses, const Block* block) {
    Node* found = nullptr;
    for (const Use& use : uses) {
      Node* node = in_block(use.user, block);
      found = !found || node->isBefore(found) ? node : found;
    }
    return found;
  }

  // Whether one copy of the value, made before the first of `uses`, does for all of them: nothing
  // else is or sees what is written to it, or what is written later to what it was.
  bool can_leave(size_t number, const std::vector<Use>& uses, const AliasDb& aliases) const {
    Value* value = order_[number];
    const auto is_same = [&](Value* other) {
      return may_hold_tensors(other->type()) && aliases.mayContainAlias(other, value);
    };
    if (std::any_of(graph_.inputs().begin(), graph_.inputs().end(), is_same)) {
      return false;
    }
    std::vector<Use> seen;  // of what stays as it is
    for (size_t i = 0; i < order_.size(); ++i) {
      if (!is_same(order_[i])) {
        continue;
      }
      if (i != number && views_.count(i)) {
        return false;
      }
      for (const Use& use : order_[i]->uses()) {
        const bool is_replaced = std::any_of(uses.begin(), uses.end(), [&](const Use& each) {
          return each.user == use.user && each.offset == use.offset;
        });
        if (i != number || !is_replaced) {
          seen.push_back(use);
        }
      }
    }
    const Node* anchor = first(uses, value->node()->owningBlock());
    for (Node* node : nodes_) {
      Node* write = in_block(node, graph_.block());
      if (!aliases.writesToAlias(node, {value}) || write->isBefore(anchor)) {
        continue;
      }
      if (std::any_of(seen.begin(), seen.end(), [&](const Use& use) {
            return !in_block(use.user, graph_.block())->isBefore(write);
          })) {
        return false;
      }
    }
    return true;
  }

  // Whether the convolution's input has channels last as eager's convolution sees it, which is what
  // c10/core/MemoryFormat.h says of strides. Said without a branch, which other engines' converters
  // could not read. Without a batch the first dimension is that of channels, and the answer is not
  // used.
  Value* was_given_so(Node* convolution) {
    Value*& known = given_[convolution];
    if (!known) {
      const WithInsertPoint here(convolution);
      Value* x = convolution->input(0);
      const auto stride = [&](int64_t dim) { return graph_.insert(aten::stride, {x, dim}); };
      const auto extent = [&](int64_t dim, Value* step) {
        return graph_.insert(aten::mul, {graph_.insert(aten::size, {x, dim}), step});
      };
      Value *batch = stride(0), *channel = stride(-3), *row = stride(-2), *column = stride(-1);
      Value* image = extent(-2, row);
      const auto all = {
          graph_.insert(aten::ge, {column, extent(-3, channel)}),
          graph_.insert(aten::ge, {row, extent(-1, column)}),
          graph_.insert(aten::ge, {batch, image}),
          graph_.insert(aten::ne, {image, channel}),  // one pixel of one channel
          graph_.insert(aten::gt, {channel, 0}),
          graph_.insert(aten::gt, {graph_.insert(Symbol::aten("numel"), {x}), 0}),
      };
      for (Value* each : all) {
        known = known ? graph_.insert(aten::__and__, {known, each}) : each;
      }
    }
    return known;
  }

  // `value` in the layout that eager would have given it, before the node: it has that already
  // where the inputs were given with channels last.
  Value* as_eagers(Value* value, Node* before) {
    std::vector<Value*> given;
    for (Node* entry : values_.at(value)) {
      given.push_back(was_given_so(entry));
    }
    const WithInsertPoint here(before);
    constexpr int64_t kDims = 4;
    Value* is_so = graph_.insert(aten::eq, {graph_.insert(aten::dim, {value}), kDims});
    for (Value* each : given) {
      is_so = graph_.insert(aten::__and__, {is_so, each});
    }
    const auto last = static_cast<int64_t>(at::MemoryFormat::ChannelsLast);
    Value* format = graph_.insert(aten::mul, {graph_.insert(aten::Int, {is_so}), last});
    const NamedValue as("memory_format", format);
    value = graph_.insert(aten::contiguous, {value}, {as});
    // What has one channel or one pixel is contiguous in both layouts, and its strides tell which.
    return graph_.insert(aten::to, {value}, {as});
  }

  Graph& graph_;
  const std::vector<Node*> nodes_;  // all, before any is inserted
  std::vector<Node*> convolutions_;
  std::unordered_set<const Node*> keeps_;             // take channels last, and give it
  std::unordered_map<const Value*, Entries> values_;  // that may have channels last
  std::vector<Value*> order_;
  std::map<size_t, std::vector<Use>> copies_;  // where one of them leaves to be read
  std::map<size_t, std::vector<Use>> views_;   // where one leaves to be held, viewed or written
  std::unordered_map<Node*, Value*> given_;
};

}  // namespace

bool channels_last(const std::shared_ptr<Graph>& graph) {
  Chains chains(*graph);
  if (chains.empty()) {
    return false;
  }
  if (!chains.find_exits(AliasDb(graph))) {
    return false;
  }
  chains.rewrite();
  return true;
}

}  // namespace jit_amp
