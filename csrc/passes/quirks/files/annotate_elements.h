// annotate_elements: a frozen module's file says of which type its lists and dictionaries are.
//
// torch.jit.save writes a list as `[(x, y)]` and a dictionary as `{"a": (x, y)}`, and
// torch.jit.load takes their type from the elements. Where that type is a tuple with an Optional in
// it, and the elements are tuples of tensors, it takes another one, and refuses the file: save
// names the type only where the element itself is Optional
// (torch/csrc/jit/serialization/python_print.cpp). So each element goes through
// `prim::unchecked_cast`, which the file has with its type.
//
// Preserved: everything that the graph does.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool annotate_elements(torch::jit::Graph& graph);

}  // namespace jit_amp
