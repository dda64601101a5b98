// verify: what has to be true of a graph in each phase.
//
// A pipeline says of each pass in which phase it takes a graph and in which it leaves it. With
// JIT_AMP_VERIFY=1 in the environment, as in all tests, this is checked after each pass.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <string>

namespace jit_amp {

enum class Phase {
  source,     // as TorchScript's compiler, or the tracer, made it
  inlined,    // one graph of all that a call runs; autocast objects and scopes are in it
  flat,       // the same with loops marked
  lowered,    // what autocast does is in the graph, in operators of the dialect (core/dialect.h)
  runnable,   // the same for PyTorch's interpreter: loops are not marked any more
  freezable,  // the same for PyTorch's freezing, which makes weights constants
  decided,    // composites have their definitions, so that policies are decided; loops are marked
              // again. Casts are the dialect's still
  legalized,  // PyTorch's own operators alone, and marks of loops
  stock,      // PyTorch's own operators alone
};

const char* name_of(Phase phase);
// Throws std::invalid_argument for another name.
Phase phase_named(const std::string& name);

// Whether graphs of the phase have their loops marked (core/loops.h): AliasDb may be asked, and
// dead code eliminated.
bool has_marked_loops(Phase phase);

// Throws std::logic_error, which is a fault of ours and not of the user's, where the graph is not
// what the phase promises. `pass` is named in it. PyTorch's own check, Graph::lint, takes longer
// than all passes: it runs after each pass that has changed a small graph, and of large graphs
// once, at the end of a pipeline.
void verify(torch::jit::Graph& graph, Phase phase, const std::string& pass, bool changed = true);

// Whether the environment asks for it.
bool is_verifying();

}  // namespace jit_amp
