// The same as tests/fuzz/soak_server.py in C++: answers requests in threads, and loads the file
// whenever it is another one. It prints a line of JSON.
//
//   soak_server FILE SECONDS THREADS PAUSE
#include <ATen/Parallel.h>
#include <sys/stat.h>
#include <torch/script.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Mark = std::tuple<ino_t, time_t, long>;

constexpr double kWarmsUp = 0.2;  // of the time

Mark mark_of(const std::string& path) {
  struct stat status{};
  TORCH_CHECK(stat(path.c_str(), &status) == 0, path, ": there is no such file");
  return {status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

double resident() {  // MiB
  std::ifstream file("/proc/self/statm");
  double whole = 0, pages = 0;
  file >> whole >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

struct Served {
  std::mutex mutex;
  std::shared_ptr<torch::jit::Module> model;
  int64_t requests = 0, loads = 0;
  std::vector<std::string> found;

  std::shared_ptr<torch::jit::Module> now() {
    const std::lock_guard<std::mutex> lock(mutex);
    return model;
  }
  void load(const std::string& path) {
    auto loaded = std::make_shared<torch::jit::Module>(torch::jit::load(path));
    const std::lock_guard<std::mutex> lock(mutex);
    model = std::move(loaded);
    ++loads;
  }
  void tell(std::string text) {
    const std::lock_guard<std::mutex> lock(mutex);
    found.push_back(std::move(text));
  }
};

// What is wrong with the answer to a request by chance; empty where nothing is.
std::string wrong(torch::jit::Module& model, std::mt19937& chance) {
  const double value = 1 + chance() % 4;
  const int64_t rows = 1 + chance() % 16;
  const auto results = model.forward({torch::full({rows, 8}, value)}).toTuple();
  const torch::Tensor y = results->elements()[0].toTensor();
  const double version = results->elements()[1].toTensor().item<double>();
  const torch::Tensor wanted = torch::full({rows, 8}, value * version, torch::kBFloat16);
  if (y.dtype() == wanted.dtype() && torch::equal(y, wanted)) {
    return "";
  }
  return std::to_string(value) + " x " + std::to_string(version);
}

void answer(Served& served, Clock::time_point until, Seconds pause, unsigned seed) {
  const torch::NoGradGuard no_grad;
  std::mt19937 chance(seed);
  int64_t requests = 0;
  while (Clock::now() < until) {
    try {
      if (std::string told = wrong(*served.now(), chance); !told.empty()) {
        served.tell(std::move(told));
      }
    } catch (const std::exception& error) {
      served.tell(error.what());
    }
    ++requests;
    std::this_thread::sleep_for(pause);
  }
  const std::lock_guard<std::mutex> lock(served.mutex);
  served.requests += requests;
}

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char each : text.substr(0, 200)) {
    made += each == '"' || each == '\\' || static_cast<unsigned char>(each) < 0x20 ? ' ' : each;
  }
  return made + "\"";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "soak_server FILE SECONDS THREADS PAUSE\n";
    return 2;
  }
  at::set_num_threads(1);
  const std::string path = argv[1];
  const Seconds seconds(std::stod(argv[2])), pause(std::stod(argv[4]));
  Served served;
  Mark mark = mark_of(path);
  served.load(path);
  const auto begin = Clock::now();
  const auto until = begin + std::chrono::duration_cast<Clock::duration>(seconds);
  std::vector<std::thread> workers;
  for (int i = 0; i < std::stoi(argv[3]); ++i) {
    workers.emplace_back([&, i] { answer(served, until, pause, i); });
  }
  std::vector<double> held;
  while (Clock::now() < until) {
    try {
      if (const Mark seen = mark_of(path); seen != mark) {
        served.load(path);
        mark = seen;
      }
    } catch (const std::exception& error) {
      served.tell(error.what());
    }
    if (Clock::now() > begin + kWarmsUp * seconds) {
      held.push_back(resident());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  std::cout << "{\"requests\": " << served.requests << ", \"loads\": " << served.loads
            << ", \"wrong\": [";
  for (size_t i = 0; i < std::min<size_t>(5, served.found.size()); ++i) {
    std::cout << (i ? ", " : "") << quoted(served.found[i]);
  }
  std::cout << "], \"wrong_count\": " << served.found.size() << ", \"mib\": [" << held.front()
            << ", " << held.back() << ", " << *std::max_element(held.begin(), held.end()) << "]}\n";
}
