// places: the line of the user's program that a node belongs to.
//
// Where code of a library was inlined, as that of torch.nn's modules, a node's own line is one that
// the user did not write. What they can change is the innermost call above it that stands in a file
// of theirs: the call stack of an inlined node has it, and so has the text that the tracer keeps
// for each node, all of Python's frames.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace jit_amp {

// The folders of PyTorch and jit_amp, in which nobody who reads an error has written anything.
void set_package_folders(std::vector<std::string> folders);

// File, line and column of the user's line of `node`, if it has one.
std::optional<std::tuple<std::string, size_t, size_t>> users_line(const torch::jit::Node* node);

// File, line and function of each call that led to a node when it was traced, from the outermost,
// without those in the packages; empty for a node that was not traced.
std::vector<std::tuple<std::string, size_t, std::string>> traced_calls(
    const torch::jit::Node* node);

// The user's line of `node` as an error shows it; empty where it has none.
std::string users_place(const torch::jit::Node* node);

// The innermost line of `node` as an error shows it, whoever has written it; empty where it has
// none.
std::string innermost_place(const torch::jit::Node* node);

}  // namespace jit_amp
