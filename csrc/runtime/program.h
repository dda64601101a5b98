// program: what a lowered function runs.
//
// The optimized graph of a lowered function is one node, `jit_amp::program`, whatever the ambient
// autocast is. Its first input is a Program: the function's source graph, and the lowered graphs
// that calls have needed so far, one per ambient state (off, on for CPU, for CUDA, for both), one
// for calls whose gradients are recorded (passes/lowering/enter_scopes.h), and each of these per
// value of the attributes that scopes read. A graph is lowered when it is first needed. It serves
// all modules of the function's class, and keeps none of them alive: not a weak pointer either, for
// which PyTorch would keep a module's weights.
//
// Safe to call from several threads. One thread lowers at a time; the others wait or run. A forked
// child finds it whole (core/forks.h).
#pragma once

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/object.h>
#include <torch/custom_class.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "analysis/scopes.h"
#include "core/forks.h"
#include "core/ignored.h"
#include "passes/source/fix_attributes.h"

namespace jit_amp {

struct Ambient {
  bool cpu;
  bool cuda;
};

// Its dtypes are asked for when the graph runs.
AutocastState entry_state(Ambient ambient);

// The graph that a call of `function` runs on `self`, null if it is no method. Throws
// AutocastError.
std::shared_ptr<torch::jit::Graph> lowered_graph(torch::jit::GraphFunction& function,
                                                 const torch::jit::ObjectPtr& self, Ambient ambient,
                                                 std::vector<Read>* reads = nullptr);

// Says which unit owns a function that is not PyTorch's: programs that call the function keep it.
void own(const torch::jit::StrongFunctionPtr& function);

// The graph that it runs where gradients are recorded, whatever the ambient state is; null if it
// has to run the other one.
std::shared_ptr<torch::jit::Graph> recording_graph(torch::jit::GraphFunction& function,
                                                   const torch::jit::ObjectPtr& self,
                                                   std::vector<Read>* reads = nullptr);

class Program : public torch::CustomClassHolder {
 public:
  explicit Program(const torch::jit::GraphFunction& function);
  ~Program() override;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The Program that the function runs, and owns; null if it runs none.
  static Program* behind(const torch::jit::GraphFunction& function);

  // Lowers for calls outside any autocast; warns of what eager would warn of when it gets there.
  // Throws AutocastError where a scope cannot be known when compiling.
  void prepare(const torch::jit::ObjectPtr& self);
  // Runs on the stack's last `inputs` values.
  void run(torch::jit::Stack& stack, size_t inputs);
  // How many values a run leaves in the place of its inputs.
  size_t results() const;
  // A graph that runs this program, which it holds as a constant, with the source graph's inputs
  // and outputs.
  std::shared_ptr<torch::jit::Graph> graph();

 private:
  // What a call may need: a graph for an ambient state, or for recording gradients.
  static constexpr size_t kWithGradients = 4;
  static constexpr size_t kKinds = 5;

  // A lowered graph, and what the interpreter makes of it once it is called.
  struct LoweredGraph {
    bool is_made = false;
    std::shared_ptr<torch::jit::Graph> graph;  // null: there is none of that kind
    std::optional<torch::jit::Code> code;
    bool makes_leaves = false;    // it makes tensors that require grad
    bool writes_to_cast = false;  // to a tensor whose cast eager may keep
    bool enters_scopes = false;   // as it runs, and it runs under the ambient autocast
    bool waits = false;           // for a task
    bool is_unchecked = false;    // it is to be compared with eager (runtime/reference.h)
  };

  // The lowered graphs for modules on which these attributes are what they were; for a function,
  // which reads none, for any call; and on which the same is made to ignore autocast, which can be
  // said of one module's method.
  struct Variant {
    uint64_t version;   // of what is ignored
    uint64_t policies;  // the version of what users stated
    IgnoredIn ignored;  // in the module
    std::vector<Read> reads;
    std::array<LoweredGraph, kKinds> lowered;

    bool may_hold() const;
    bool holds_on(const torch::jit::ObjectPtr& self, const IgnoredIn& ignored_now) const;
  };

  // What holds now for this module; not made where nothing does yet.
  LoweredGraph find(const torch::jit::ObjectPtr& self, size_t kind);
  LoweredGraph make(const torch::jit::ObjectPtr& self, size_t kind, bool with_code);
  LoweredGraph of_kind(const torch::jit::ObjectPtr& self, size_t kind);
  // What eager gives for these inputs, where it can be told without doing anything else.
  std::optional<torch::jit::Stack> reference(const LoweredGraph& lowered,
                                             const torch::jit::Stack& inputs);
  torch::jit::ObjectPtr self_of(const torch::jit::Stack& stack, size_t inputs) const;

  torch::jit::GraphFunction source_;  // shares its graph with the function
  // Of the functions that it calls, which are known by address only.
  std::vector<std::shared_ptr<torch::jit::CompilationUnit>> callees_;
  Lock lock_;  // of variants_; never held while lowering
  std::vector<Variant> variants_;
};

}  // namespace jit_amp
