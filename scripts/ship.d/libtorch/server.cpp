// Loads MODEL, calls it three times on the tensors of INPUTS, writes the results to OUTPUTS; with
// `autocast`, under autocast for the CPU.
//
//   server MODEL INPUTS OUTPUTS [autocast]
#include <ATen/autocast_mode.h>
#include <torch/script.h>

#include <iostream>
#include <string>

#include "files.h"

int main(int argc, char** argv) {
  const bool has_autocast = argc == 5 && argv[4] == std::string("autocast");
  if (argc != 4 && !has_autocast) {
    std::cerr << "server MODEL INPUTS OUTPUTS [autocast]\n";
    return 2;
  }
  const torch::NoGradGuard no_grad;
  auto model = torch::jit::load(argv[1]);
  const auto inputs = read_tuple(argv[2]);
  at::autocast::set_autocast_enabled(at::kCPU, has_autocast);
  std::vector<torch::IValue> outputs;
  for (int call = 0; call < 3; ++call) {
    outputs.push_back(model.forward(inputs));
  }
  write_tuple(argv[3], outputs);
}
