// graphs: helpers that passes share, for walks over a graph, for `jit_amp::scoped` nodes, and for
// definitions in TorchScript.
#pragma once

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/types.h"

namespace jit_amp {

// The graph as text, without places. Nothing where PyTorch cannot write it: constants that are
// oneDNN's.
std::string text_of(const torch::jit::Graph& graph);

// Every node of the graph, those in blocks and forks included, in program order.
std::vector<torch::jit::Node*> all_nodes(torch::jit::Graph& graph);
// Those of a kind.
std::vector<torch::jit::Node*> all_nodes(torch::jit::Graph& graph, c10::Symbol kind);

// Whether a node of that kind is anywhere in the graph.
bool contains(torch::jit::Graph& graph, c10::Symbol kind);

// The tensor that a constant holds; null for other nodes, and for a tensor without memory.
const at::Tensor* tensor_in(const torch::jit::Node* node);

// The tensors with memory that a constant holds, also in lists, tuples and dictionaries.
std::vector<at::Tensor> tensors_in(const torch::jit::Node* node);
bool is_container(const c10::IValue& value);

// Whether the node's operator writes to one of its operands, by its schema.
bool is_write(const torch::jit::Node* node);

// Whether a list is as it was made, as far as its uses tell: operators that write nothing.
bool is_fixed_list(const torch::jit::Value* list);

// Whether the node is a norm that may write to its running statistics, as AliasDb says of it
// (torch/csrc/jit/ir/alias_analysis.cpp, analyzeBatchNorm): its schema does not say it.
bool updates_statistics(const torch::jit::Node* node);

// Whether the node, or anything in the block, may write to a tensor, or sets an attribute. Where
// nothing does, AliasDb need not be asked.
bool may_write(const torch::jit::Node* node);
bool may_write(const torch::jit::Block* block);

// A call of code that is not in the graph.
bool is_call(const torch::jit::Node* node);

// Everything in `graph` becomes a copy of what is in `from`; the object, which others hold, stays.
void replace_contents(torch::jit::Graph& graph, torch::jit::Graph& from);

// Inserts `yes() if condition else no()`; each is called with the insertion point in its side. Its
// results have the types of what `yes` gives: set a wider one where `no` needs it.
using MakeResults = std::function<torch::jit::value_list()>;
torch::jit::Node* insert_if(torch::jit::Value* condition, const MakeResults& yes,
                            const MakeResults& no);
// The same of one result.
using MakeResult = std::function<torch::jit::Value*()>;
torch::jit::Value* insert_if(torch::jit::Value* condition, const MakeResult& yes,
                             const MakeResult& no);

// The node that a `jit_amp::scoped` node runs under autocast.
torch::jit::Node* wrapped_node(torch::jit::Node* scoped);

// How many leading inputs of a `jit_amp::scoped` node are its state.
size_t state_inputs(const torch::jit::Node* scoped);

// Puts the wrapped node in the place of the `jit_amp::scoped` node; returns it.
torch::jit::Node* unwrap(torch::jit::Node* scoped);

// The function `name` of one of the sources in definitions.h, with calls inlined: a fresh graph. As
// their file its nodes have "<jit_amp name>", which the files of frozen modules keep.
std::shared_ptr<torch::jit::Graph> definition(const std::string& source, const std::string& name);

// The same with calls as they are written.
std::shared_ptr<torch::jit::Graph> source_graph(const std::string& source, const std::string& name);

// Whether the source has such a function.
bool has_definition(const std::string& source, const std::string& name);

// Puts `body` in the node's place.
void replace_by(torch::jit::Node* node, const std::string& source, const std::string& name,
                torch::jit::Graph& body);

// Puts a check, a function of `source` that returns nothing, at the insertion point. `title` is the
// line that an error shows.
void insert_check(torch::jit::Graph& graph, const std::string& source, const std::string& name,
                  const std::vector<torch::jit::Value*>& arguments, const std::string& title);

// Puts a `jit_amp::fail` before the node.
void insert_failure(torch::jit::Node* before, const std::string& message);

}  // namespace jit_amp
