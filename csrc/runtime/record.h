// record: what torch.jit.trace does not see of autocast, put into the trace.
//
// PyTorch's tracer records what the dispatcher runs: autocast's casts as if the author had written
// them, and nothing of the scopes. Under a TraceRecording, the scopes that Python enters and leaves
// become `jit_amp::enter` and `jit_amp::exit`, which set and restore the state where a trace is run
// as it is (PyTorch's check_trace), and autocast's own casts are marked.
// passes/source/restore_trace.h makes a source graph of that.
//
// An autocast kernel is seen by what it does (ATen/autocast_mode.h): autocast was on when an
// operator began, and is not inside it. An `aten::to` in there is a cast of autocast's; then comes
// the operator, or what the tracer records in its place, which goes into a scope where autocast is
// off.
#pragma once

#include <ATen/record_function.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>

#include "core/dialect.h"
#include "passes/source/wrap.h"

namespace jit_amp {

// Marks autocast's casts in what this thread traces.
class TraceRecording {
 public:
  TraceRecording();
  ~TraceRecording() { stop(); }
  void stop();
  // Throws AutocastError: an operator was traced in a state that no recorded scope has made.
  void check() const;
  TraceRecording(const TraceRecording&) = delete;
  TraceRecording& operator=(const TraceRecording&) = delete;

 private:
  std::optional<at::CallbackHandle> handle_;
};

// Records that a scope is entered, which its device has the state of. Returns its number; none if
// this thread is not tracing.
std::optional<int64_t> record_enter(const Around& scope, bool dtype_given);
// Records that it is left, and its device has the state `before` again.
void record_exit(int64_t scope, const Around& before);

}  // namespace jit_amp
