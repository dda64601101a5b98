// Loads AOTInductor's PACKAGE, calls it three times on the tensors of INPUTS, writes the results of
// each call, as a tuple, to OUTPUTS.
//
//   package_server PACKAGE INPUTS OUTPUTS
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <iostream>

#include "files.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "package_server PACKAGE INPUTS OUTPUTS\n";
    return 2;
  }
  const torch::NoGradGuard no_grad;
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  std::vector<at::Tensor> inputs;
  for (const auto& input : read_tuple(argv[2])) {
    inputs.push_back(input.toTensor());
  }
  std::vector<torch::IValue> outputs;
  for (int call = 0; call < 3; ++call) {
    const auto results = model.run(inputs);
    std::vector<torch::IValue> values(results.begin(), results.end());
    outputs.push_back(c10::ivalue::Tuple::create(std::move(values)));
  }
  write_tuple(argv[3], outputs);
}
