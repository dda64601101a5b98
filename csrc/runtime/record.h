// record: what torch.jit.trace does not see of autocast, put into the trace.
//
// PyTorch's tracer records what the dispatcher runs: autocast's casts as if the author had written
// them, and nothing of the scopes. Under a Recording, the scopes that Python enters and leaves
// become `jit_amp::enter` and `jit_amp::exit`, which set and restore the state where a trace is run
// as it is (PyTorch's check_trace), and autocast's own casts are marked. passes/restore.h makes a
// source graph of that.
//
// An autocast kernel is seen by what it does (ATen/autocast_mode.h): autocast was on when an
// operator began, and is not inside it. An `aten::to` in there is a cast of autocast's; then comes
// the operator, or what the tracer records in its place, which goes into a scope where autocast is
// off.
#pragma once

#include <ATen/record_function.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>

#include "passes/enclose.h"

namespace jit_amp::ops {

inline const c10::Symbol enter = c10::Symbol::fromQualString("jit_amp::enter");
inline const c10::Symbol exit = c10::Symbol::fromQualString("jit_amp::exit");
// Attributes of both: which enter an exit belongs to.
inline const c10::Symbol scope = c10::Symbol::attr("scope");
// Attributes of `enter`; `dtype_given` is false where the scope was made without a dtype.
inline const c10::Symbol device_type = c10::Symbol::attr("device_type");
inline const c10::Symbol dtype = c10::Symbol::attr("dtype");
inline const c10::Symbol dtype_given = c10::Symbol::attr("dtype_given");
inline const c10::Symbol enabled = c10::Symbol::attr("enabled");
// Attribute of an `enter` that autocast's kernel stands behind, or of a `_convolution`: the
// operator that the author called.
inline const c10::Symbol instead_of = c10::Symbol::attr("instead_of");
// Attribute of an `aten::to` that autocast put in, or of a `jit_amp::cast` that it would put in for
// other operands: the number of that scope, or of_the_operator where the operator itself is what
// was recorded.
inline const c10::Symbol of_autocast = c10::Symbol::attr("of_autocast");
inline constexpr int64_t of_the_operator = -1;

}  // namespace jit_amp::ops

namespace jit_amp {

// Marks autocast's casts in what this thread traces.
class Recording {
 public:
  Recording();
  ~Recording() { stop(); }
  void stop();
  // Throws AutocastError: an operator was traced in a state that no recorded scope has made.
  void check() const;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  std::optional<at::CallbackHandle> handle_;
};

// Records that a scope is entered. Returns its number; none if this thread is not tracing.
std::optional<int64_t> record_enter(const Around& scope, bool dtype_given);
void record_exit(int64_t scope);

}  // namespace jit_amp
