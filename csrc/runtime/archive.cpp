#include "runtime/archive.h"

#include <torch/csrc/jit/serialization/export.h>

#include <utility>

namespace jit_amp {

Output::Output(pybind11::object write) : write_(std::move(write)) {}

int64_t Output::write(const pybind11::object& data, int64_t size) {
  if (!failure_) {
    try {
      write_(data);
    } catch (const pybind11::error_already_set& error) {
      failure_.emplace(error);
    }
  }
  return size;
}

void Output::check() const {
  if (failure_) {
    throw *failure_;
  }
}

void save_module(const torch::jit::Module& module, const pybind11::object& write, bool is_lite) {
  Output output(write);
  const auto writer = [&output](const void* data, size_t size) -> size_t {
    const auto bytes = static_cast<int64_t>(size);
    return size == 0 ? 0 : output.write(pybind11::memoryview::from_memory(data, bytes), bytes);
  };
  torch::jit::ExportModule(module, writer, {}, /*bytecode_format=*/is_lite);
  output.check();
}

}  // namespace jit_amp
