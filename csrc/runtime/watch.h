// watch: what each operator that Python runs does under autocast, seen while it runs.
//
// The dispatcher tells of every operator that this thread runs; the outermost ones are those that
// the program called. Python says, for each, at which place of the program it is (`place` gives a
// number), and one OperatorRecord stands for the calls of one operator at one place, in one
// autocast state. What autograd runs belongs to the place of the operator whose derivative it is.
//
// The program is Python's own: nothing is compiled, and it takes the branches that it takes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/session.h"

namespace jit_amp {

class Watch {
 public:
  // `place` is called for each outermost operator of the first run, and may throw. Where it is
  // negative the operator does not count, such as what torch.compile runs while it compiles.
  Watch(std::function<int64_t()> place, ExplainOptions at);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Around a run of the program. The first run is looked at; of others the time counts, except of
  // the second, which warms up, and of those that run other operators than the first.
  void start();
  // Throws what `place` threw. Where `failed`, the program has: its run does not count.
  void stop(bool failed);
  // After the first run, before it stops: see gradients.h. Throws what `place` threw.
  void note_gradients(const std::vector<at::Tensor>& outputs);
  // Before the run stops: the operator that raised last, if one did, and the one that gave a tensor
  // last. Their numbers are places in what seen() returns.
  std::optional<Failed> failed();
  std::optional<size_t> maker_of(const at::Tensor& t) const;

  // Tensors whose values are to be what they were: what a run writes to them, restore() undoes.
  void protect(const std::vector<at::Tensor>& tensors);
  void restore();

  struct Seen {
    OperatorRecord operated;
    int64_t place;
    bool is_backward;
  };
  // What was seen, in the order of the first calls.
  std::vector<Seen> seen();

 private:
  class Looking;
  std::unique_ptr<Looking> run_;
  std::unique_ptr<SessionGuard> seeing_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jit_amp
