// debug_info: where the code of a file was written, as the file tells it.
//
// torch.jit.save writes it beside the code, and PyTorch reads it when a place is asked for: then a
// file that is damaged raises, or ends the process, where loading and calling it has told nothing.
// So it is read here first. Where it is no such information, PyTorch forgets it too: the places of
// its nodes are those in the file's own code.
#pragma once

#include <torch/csrc/jit/frontend/source_range.h>

#include <optional>

namespace jit_amp {

// Of a module that was loaded: the place in the source that it was made of. None for what was
// compiled here, and where a file has none, or a damaged one.
std::optional<torch::jit::SourceRange> before_saving(const torch::jit::SourceRange& range);

// A place as its author knows it: that before it was saved, if there is one.
torch::jit::SourceRange as_written(const torch::jit::SourceRange& range);

}  // namespace jit_amp
