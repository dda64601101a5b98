// archive: PyTorch's archives, written to what Python has opened.
//
// Where a write fails, PyTorch's writer ends the process: while it goes through the exception it
// writes the end of the archive, which fails too (caffe2/serialize/inline_container.cc, the
// destructor of PyTorchStreamWriter). So what a write raises is kept until PyTorch is done, and
// nothing is written after it.
#pragma once

#include <c10/macros/Export.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>

namespace jit_amp {

class C10_HIDDEN Output {
 public:
  // What writes: `file.write` of a file that writes all it is given or raises.
  explicit Output(pybind11::object write);

  // Raises nothing. Returns how many bytes there are, as if they were written.
  int64_t write(const pybind11::object& data, int64_t size);

  // Throws what the first write that failed has raised.
  void check() const;

 private:
  pybind11::object write_;
  std::optional<pybind11::error_already_set> failure_;
};

// What torch.jit.save writes; for the lite interpreter, what _save_for_lite_interpreter does.
void save_module(const torch::jit::Module& module, const pybind11::object& write, bool is_lite);

}  // namespace jit_amp
