// kept_operators: operators of a program of Python's that stay in float32 under autocast.
//
// The dispatcher asks here first, before autocast and autograd, of every operator that a thread
// calls between enter() and exit(). One of these names runs with autocast off for every device, and
// what it is given in bfloat16 and float16 is cast to float32. What an operator calls inside
// belongs to it. Operators that write to an operand, or give a view of one, are left alone. So does
// passes/source/widen.h, `widen_kept`, in graphs.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace jit_amp {

class KeptOperators {
 public:
  // Names of all overloads: "aten::softmax". With none, only running_operator() is told.
  explicit KeptOperators(const std::vector<std::string>& names);

  // For this thread; leaves in the opposite order.
  void enter() const;
  void exit() const;
  bool is_entered() const;

 private:
  std::shared_ptr<const std::unordered_set<std::string>> names_;
};

// The operator that this thread's program has called and that runs now, without its overload; empty
// where there is none, and outside of enter() and exit().
std::string running_operator();

}  // namespace jit_amp
