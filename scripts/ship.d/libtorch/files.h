// Tuples in files, as torch.save writes them and torch.load reads them.
#pragma once

#include <torch/script.h>

#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

inline std::vector<torch::IValue> read_tuple(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file),
                                std::istreambuf_iterator<char>()};
  return torch::jit::pickle_load(bytes).toTupleRef().elements().vec();
}

inline void write_tuple(const char* path, std::vector<torch::IValue> values) {
  const auto bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(values)));
  std::ofstream(path, std::ios::binary).write(bytes.data(), bytes.size());
}
