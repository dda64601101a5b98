// Loads MODEL, calls it three times on the tensors of INPUTS, writes the results to OUTPUTS.
//
//   server MODEL INPUTS OUTPUTS
#include <torch/script.h>

#include <iostream>

#include "files.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "server MODEL INPUTS OUTPUTS\n";
    return 2;
  }
  const torch::NoGradGuard no_grad;
  auto model = torch::jit::load(argv[1]);
  const auto inputs = read_tuple(argv[2]);
  std::vector<torch::IValue> outputs;
  for (int call = 0; call < 3; ++call) {
    outputs.push_back(model.forward(inputs));
  }
  write_tuple(argv[3], outputs);
}
