// places: the line of the user's program that a node belongs to.
//
// Where code of a library was inlined, as that of torch.nn's modules, a node's own line is one that
// the user did not write. What they can change is the innermost call above it that stands in a file
// of theirs: the call stack of an inlined node has it, and so has the text that the tracer keeps
// for each node, all of Python's frames.
//
// The text of a line is that which was compiled: of a module that was loaded, the file has it, and
// today's file at that path may be anything.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace jit_amp {

// A place in a source file; a line of 0 is no file's.
struct Place {
  std::string file;
  size_t line = 0;
  size_t column = 0;
  std::string function;  // the call that the place belongs to; empty for the outermost
  // The line itself; empty where it is not known. None: Python has it, as the tracer has been here.
  std::optional<std::string> text = "";
};

// The place as its author knows it.
Place place_of(const torch::jit::SourceRange& range);

// File, number of the first line, text.
using SourceText = std::tuple<std::string, size_t, std::string>;

// The text that a place stands in; none for what the tracer has seen.
std::optional<SourceText> source_of(const torch::jit::SourceRange& range);

// The folders of PyTorch and jit_amp, in which nobody who reads an error has written anything.
void set_package_folders(std::vector<std::string> folders);

// The user's line of `node`, if it has one.
std::optional<Place> users_line(const torch::jit::Node* node);

// Each call that led to a node when it was traced, from the outermost, without those in the
// packages; empty for a node that was not traced.
std::vector<Place> traced_calls(const torch::jit::Node* node);

// The user's line of `node` as an error shows it; empty where it has none.
std::string users_place(const torch::jit::Node* node);

// The innermost line of `node` as an error shows it, whoever has written it; empty where it has
// none.
std::string innermost_place(const torch::jit::Node* node);

}  // namespace jit_amp
