// Answers requests with the file that ship.py wrote; without Python and without jit_amp.
//
//   server FILE [SHAPE...]
//
// A request is the shape of images, as in 2x3x64x64, which are made here. It prints a line for
// each: the best class of each image, or what the model raised. A request that raises is answered,
// and the next one is served. The exit status is 1 where the file cannot be loaded.
#include <torch/script.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<int64_t> sizes_of(const std::string& shape) {
  std::vector<int64_t> sizes;
  std::istringstream text(shape);
  for (std::string size; std::getline(text, size, 'x');) {
    sizes.push_back(std::stoll(size));
  }
  return sizes;
}

torch::Tensor images_of(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  return torch::linspace(0, 1, count).reshape(sizes);
}

// The last line of an error of TorchScript's is what eager would raise; those above tell where.
std::string reason_of(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  std::istringstream text(torchs ? torchs->what_without_backtrace() : error.what());
  std::string last;
  for (std::string line; std::getline(text, line);) {
    last = line.empty() ? last : line;
  }
  return last;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "server FILE [SHAPE...]\n";
    return 2;
  }
  const torch::NoGradGuard no_grad;
  torch::jit::Module model;
  try {
    model = torch::jit::load(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << argv[1] << ": " << reason_of(error) << "\n";
    return 1;
  }
  for (int i = 2; i < argc; ++i) {
    std::cout << argv[i] << ": ";
    try {
      const torch::IValue results = model.forward({images_of(sizes_of(argv[i]))});
      const torch::Tensor scores = results.toGenericDict().at("scores").toTensor();
      const torch::Tensor best = scores.argmax(-1);
      for (int64_t image = 0; image < best.size(0); ++image) {
        std::cout << (image ? ", " : "class ") << best[image].item<int64_t>();
      }
      std::cout << " (" << scores.dtype() << ")\n";
    } catch (const std::exception& error) {
      std::cout << "refused: " << reason_of(error) << "\n";
    }
  }
}
