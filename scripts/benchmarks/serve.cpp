// serve: calls one module from several threads, as a server in C++ would, and prints what it takes.
//
//   serve script|package MODULE INPUT THREADS SECONDS CALLS
//
// MODULE is a TorchScript file, or with `package` one of AOTInductor's. INPUT is a TorchScript file
// whose attribute `x` is the argument. Each thread calls for SECONDS, and all together at least
// CALLS times. Beside them one thread calls with a wrong input, which has to raise; every other
// result has to be the first one. Prints one line of JSON.
#include <ATen/Parallel.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/script.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;
using Call = std::function<at::Tensor(const at::Tensor&)>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Resident memory in MiB.
double resident() {
  std::ifstream file("/proc/self/statm");
  long total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

// A package computes as many calls at a time as it has runners.
Call loaded(const std::string& kind, const std::string& path, size_t threads) {
  if (kind == "package") {
    auto package =
        std::make_shared<torch::inductor::AOTIModelPackageLoader>(path, "model", false, threads);
    return [package](const at::Tensor& x) { return package->run({x})[0]; };
  }
  auto module = std::make_shared<torch::jit::Module>(torch::jit::load(path));
  return [module](const at::Tensor& x) { return module->forward({x}).toTensor(); };
}

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * sorted.size()))];
}

int main(int count, char** arguments) {
  const auto start = Clock::now();
  if (count != 7) {
    std::cerr << "serve script|package MODULE INPUT THREADS SECONDS CALLS\n";
    return 2;
  }
  at::set_num_threads(1);
  const c10::InferenceMode inference;
  const std::string kind = arguments[1];
  const at::Tensor x = torch::jit::load(arguments[3]).attr("x").toTensor();
  const size_t threads = std::stoul(arguments[4]);
  const Call call = loaded(kind, arguments[2], threads);
  const double seconds = std::stod(arguments[5]);
  const size_t calls = std::stoul(arguments[6]);
  const at::Tensor expected = call(x).clone();
  const double first = seconds_since(start);
  for (int i = 0; i < 5; ++i) {
    call(x);
  }
  const double before = resident();
  std::vector<std::vector<double>> taken(threads);
  std::atomic<size_t> done{0}, wrong{0}, raised{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  const auto begin = Clock::now();
  for (size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      const c10::InferenceMode inside;
      at::set_num_threads(1);
      while (seconds_since(begin) < seconds || done < calls) {
        const auto from = Clock::now();
        const at::Tensor result = call(x);
        taken[i].push_back(seconds_since(from));
        wrong += !at::equal(result, expected);
        ++done;
      }
    });
  }
  std::thread disturbing([&] {
    const c10::InferenceMode inside;
    while (!stop && kind == "script") {  // a package does not check what it is given
      try {
        call(x.to(at::kDouble));
      } catch (const std::exception&) {
        ++raised;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  for (auto& worker : workers) {
    worker.join();
  }
  const double all = seconds_since(begin);
  stop = true;
  disturbing.join();
  std::vector<double> sorted;
  for (const auto& each : taken) {
    sorted.insert(sorted.end(), each.begin(), each.end());
  }
  std::sort(sorted.begin(), sorted.end());
  std::cout << "{\"first\": " << first << ", \"rate\": " << done / all
            << ", \"median\": " << quantile(sorted, 0.5) << ", \"p99\": " << quantile(sorted, 0.99)
            << ", \"resident\": " << resident() << ", \"grown\": " << resident() - before
            << ", \"calls\": " << done << ", \"wrong\": " << wrong << ", \"raised\": " << raised
            << "}\n";
  return wrong == 0 ? 0 : 1;
}
