// Loads MODEL, calls it three times on the tensors of INPUTS, writes the results to OUTPUTS.
//
//   server MODEL INPUTS OUTPUTS
#include <torch/script.h>

#include <fstream>
#include <iostream>
#include <iterator>

namespace {

std::vector<char> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "server MODEL INPUTS OUTPUTS\n";
    return 2;
  }
  const torch::NoGradGuard no_grad;
  auto model = torch::jit::load(argv[1]);
  const auto inputs = torch::jit::pickle_load(read(argv[2])).toTupleRef().elements().vec();
  std::vector<torch::IValue> outputs;
  for (int call = 0; call < 3; ++call) {
    outputs.push_back(model.forward(inputs));
  }
  const auto bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(outputs));
  std::ofstream(argv[3], std::ios::binary).write(bytes.data(), bytes.size());
}
