// sharing: which constants and attributes a graph may write to.
//
// PyTorch's AliasDb takes whatever comes out of a list, an attribute or an argument for one thing:
// a write to any of them is one to all. Here a write is followed back, from the tensor that is
// written to, through views, branches, loops, tasks and what was put into lists, dictionaries,
// tuples and objects, to what it may be. Containers that may be one, or one in the other, are one.
//
// An analysis: the graph does not change. Not seen: results that are operands and whose operators
// do not say so (analysis/traits.h), where passes/quirks/operators/tell_aliases.h has not run.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace jit_amp {

class Sharing {
 public:
  // `updates`: whether a norm writes to its running statistics. Graphs that have attributes in
  // common are seen together.
  void see(torch::jit::Graph& graph,
           const std::function<bool(const torch::jit::Node*)>& updates = {});
  // What a value is: the same memory, or container, may be behind another.
  void holds(const torch::jit::Value* value, const c10::IValue& what);

  // To be asked when all has been said. Of a container: it, or anything in it.
  bool is_written(const torch::jit::Value* value);

 private:
  using Key = const void*;  // a value, memory, a container, or an attribute

  struct Container {
    Key parent;                 // the same one
    bool is_changed = false;    // something is put into it, or taken out
    std::vector<Key> elements;  // tensors
  };

  Container& container(Key key);
  void unite(Key a, Key b);
  // The result may be the operand, or hold it, or come out of it.
  void connect(const torch::jit::Value* result, const torch::jit::Value* operand);
  void write(const torch::jit::Value* value, bool with_elements);
  void see(torch::jit::Node* node, const std::function<bool(const torch::jit::Node*)>& updates);
  void see_attribute(const torch::jit::Node* node);
  void see_operator(const torch::jit::Node* node, const c10::FunctionSchema& schema);
  void see_unknown(const torch::jit::Node* node, bool writes);
  void follow();

  std::unordered_map<Key, Container> containers_;
  std::unordered_map<Key, std::vector<Key>> from_;  // of a tensor: tensors and containers
  std::map<std::pair<c10::TypePtr, std::string>, int> attributes_;
  std::unordered_set<Key> written_;
  std::vector<Key> ahead_;
};

// The constants that the graph may write to: tensors, and what holds a tensor, list or object that
// it may write to.
std::vector<torch::jit::Node*> written_constants(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
